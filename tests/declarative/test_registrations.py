"""Registrations that are not in order: each is refused at the call, in the documented words, before anything exists."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.declarative.place import EVERY, GOOD, MINUTE, Place, callback

from horae.core.declarative import job_name, task_name
from horae.core.job.ids import checked_name
from horae.declarative import (
    CronExpressionInvalidError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    Scheduler,
    SchedulerState,
    read_state,
)
from horae.testing import Simulation

QUICK = 10.0
"""Seconds of the processor, which other work on the machine does not count towards: whoever compares each with each, or
goes through a megabyte again and again, takes minutes."""
SHAPE = "Invalid registration shape: expected [string, string, function, Duration]"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ---- containers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        None,
        0,
        7.5,
        math.nan,
        True,
        "",
        "good",
        b"good",
        {},
        {"good": GOOD},
        {1, 2},
        frozenset(),
        deque([GOOD]),
        iter([GOOD]),
        (each for each in [GOOD]),
        range(3),
        callback,
        object(),
        SimpleNamespace(length=0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_list_is_refused(place: Place, given: Any) -> None:
    error = place.refused(given)
    assert type(error) is RegistrationsNotArrayError
    assert str(error) == "Registrations must be an array"
    assert error.details == {}


def test_lists_and_tuples_are_taken_at_both_levels(place: Place) -> None:
    for outer in (list, tuple):
        for inner in (list, tuple):
            place.accepted(outer([inner(GOOD)]))


def test_no_registrations_at_all_are_in_order(place: Place) -> None:
    place.accepted([])
    place.accepted(())


# ---- shapes ----------------------------------------------------------------------------------------------------------

SHAPES: list[Any] = [
    None,
    "good",
    b"good",
    7,
    {},
    {"name": "good"},
    {1, 2, 3, 4},
    callback,
    (),
    ("good",),
    GOOD[:3],
    (*GOOD, None),
    (*GOOD, *GOOD),
    (None, *GOOD[1:]),
    (7, *GOOD[1:]),
    (b"good", *GOOD[1:]),
    (["good"], *GOOD[1:]),
    ("good", None, callback, MINUTE),
    ("good", b"* * * * *", callback, MINUTE),
    ("good", 5, callback, MINUTE),
    ("good", ["*"] * 5, callback, MINUTE),
    ("good", EVERY, None, MINUTE),
    ("good", EVERY, "callback", MINUTE),
    ("good", EVERY, 7, MINUTE),
    ("good", EVERY, callback, None),
    ("good", EVERY, callback, 5),
    ("good", EVERY, callback, 5.0),
    ("good", EVERY, callback, math.nan),
    ("good", EVERY, callback, math.inf),
    ("good", EVERY, callback, True),
    ("good", EVERY, callback, "5m"),
    ("good", EVERY, callback, "PT5M"),
    ("good", EVERY, callback, datetime(2026, 1, 1)),
    ("good", EVERY, callback, time_of_day(0, 5)),
    (EVERY, "good", MINUTE, callback),
    (MINUTE, callback, EVERY, "good"),
]


@pytest.mark.parametrize("given", SHAPES, ids=[str(number) for number in range(len(SHAPES))])
def test_a_registration_of_another_shape_is_refused_by_its_number(place: Place, given: Any) -> None:
    error = place.refused([GOOD, given])
    assert type(error) is RegistrationShapeError
    assert str(error) == SHAPE
    assert set(error.details) == {"registrationIndex", "received"}
    assert error.details["registrationIndex"] == 1
    assert error.details["received"] is given


def test_a_coroutine_that_was_called_already_is_no_callback(place: Place) -> None:
    called: Coroutine[Any, Any, None] = callback()
    try:
        assert type(place.refused([("good", EVERY, called, MINUTE)])) is RegistrationShapeError
    finally:
        called.close()


def test_the_first_registration_that_is_wrong_is_the_one_that_is_named(place: Place) -> None:
    assert place.refused([None, GOOD, None]).details["registrationIndex"] == 0
    assert place.refused([GOOD, GOOD[:3], None]).details["registrationIndex"] == 1


def test_the_words_of_a_refused_shape_do_not_repeat_what_was_given(place: Place) -> None:
    error = place.refused([("good", EVERY, callback, "password=hunter2")])
    assert "hunter2" not in str(error) + repr(error.hint)


# ---- names -----------------------------------------------------------------------------------------------------------

NAMES = [
    ("", "must be a non-empty string"),
    ("n" * 244, "must have 1 to 243 characters, has 244"),
    ("n" * 300, "must have 1 to 243 characters, has 300"),
    ("\n" * 100, "must have 1 to 243 characters, has too many that cannot be shown, which take more"),
    ("n" * 1_000_000, "must have 1 to 243 characters, has 1000000"),
]


@pytest.mark.parametrize(("name", "reason"), NAMES, ids=[str(number) for number in range(len(NAMES))])
def test_a_name_that_cannot_be_one_is_refused(place: Place, name: str, reason: str) -> None:
    error = place.refused([GOOD, (name, EVERY, callback, MINUTE)])
    assert type(error) is InvalidRegistrationError
    assert error.details == {"field": "name", "value": name, "reason": reason}
    assert str(error).startswith("Invalid name ")
    assert str(error).endswith(f": {reason}")
    assert len(str(error)) < 500
    assert str(error).isprintable()


@pytest.mark.parametrize(
    "name",
    ["a", "n" * 243, "two words", "naïve", "任务", "🎉", 'a"b', "a'b", "a\\b", "declarative:a", "__proto__", "%s {}",
     " ", " a", "a ", "\u2003a\n", "a\nb", "a\tb", "a\0b", "\x1b[31mred", "a\u200bb", "a\u202eb", "\ud800",
     "\u241b61", "\n"],
)  # fmt: skip
def test_any_name_will_do_that_is_not_empty(place: Place, name: str) -> None:
    place.accepted([(name, EVERY, callback, MINUTE)])


def test_odd_names_come_back_as_they_were_registered(place: Place) -> None:
    names = [" ", "  ", " a", "a ", "a", "a\nb", "a\0b", "\ud800", "\u241b20a", "\u241b", "\u2003", "naïve "]
    written = [job_name(name) for name in names]
    assert len(set(written)) == len(names)
    assert [task_name(each) for each in written] == names
    assert all(checked_name(each) for each in written)
    assert job_name("two words") == "declarative:two words"


def test_a_task_with_blanks_around_its_name_runs_and_is_read_under_that_name() -> None:
    ran: list[str] = []

    async def work() -> None:
        ran.append("ran")

    async def scene() -> None:
        scheduler = Scheduler("sqlite://", tz="UTC")
        async with Simulation(scheduler, start=datetime(2026, 1, 1, 9, 0, 20, tzinfo=UTC)) as sim:
            await scheduler.initialize([(" odd\n", "* * * * *", work, timedelta(minutes=5))])
            starts = await sim.advance("1m")
            assert [each.task for each in starts] == [" odd\n"] * 2
            assert list(await read_state(scheduler)) == [" odd\n"]
            await scheduler.stop()

    asyncio.run(scene())
    assert ran


def test_a_name_that_comes_twice_is_refused(place: Place) -> None:
    error = place.refused([GOOD, ("other", EVERY, callback, MINUTE), ("good", "5 5 * * *", callback, timedelta(0))])
    assert type(error) is ScheduleDuplicateTaskError
    assert str(error) == 'Task with name "good" is already scheduled'
    assert error.details == {"taskName": "good"}


def test_names_that_differ_in_case_or_in_their_letters_form_are_not_the_same(place: Place) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    place.accepted([(name, EVERY, callback, MINUTE) for name in ("a", "A", composed, decomposed)])


# ---- expressions and delays ------------------------------------------------------------------------------------------


def test_an_expression_of_a_megabyte_is_refused_within_a_moment(place: Place) -> None:
    for text in ("* " * 500_000, "0," * 500_000 + "0 * * * *", "9" * 1_000_000, "\0" * 1_000_000):
        began = time.thread_time()
        error = place.refused([("good", text, callback, MINUTE)])
        assert time.thread_time() - began < QUICK
        assert type(error) is CronExpressionInvalidError
        assert error.details == {
            "expression": text,
            "field": "expression",
            "reason": "is longer than 1000 characters",
        }
        assert len(str(error)) < 1000


@pytest.mark.parametrize(
    "delay", [timedelta(microseconds=-1), timedelta(seconds=-1), timedelta(days=-1, seconds=86_399), timedelta.min]
)
def test_a_negative_delay_is_refused(place: Place, delay: timedelta) -> None:
    error = place.refused([GOOD, ("other", EVERY, callback, delay)])
    assert type(error) is NegativeRetryDelayError
    assert str(error) == "Retry delay must be non-negative"
    assert error.details == {"retryDelayMs": delay / timedelta(milliseconds=1)}


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=366_001)])
def test_a_delay_that_leads_out_of_the_calendar_is_refused(place: Place, delay: timedelta) -> None:
    error = place.refused([("good", EVERY, callback, delay)])
    assert type(error) is InvalidRegistrationError
    assert str(error) == 'Invalid retryDelay of task "good": is longer than a thousand years'
    assert error.details == {"field": "retryDelay", "value": delay, "reason": "is longer than a thousand years"}


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), MINUTE, timedelta(days=3660)])
def test_any_other_delay_will_do(place: Place, delay: timedelta) -> None:
    place.accepted([("good", EVERY, callback, delay)])


# ---- many, and in what order -----------------------------------------------------------------------------------------


def test_a_name_that_comes_twice_among_a_hundred_thousand_is_found_within_a_moment(place: Place) -> None:
    many = [(f"task {number}", EVERY, callback, MINUTE) for number in range(100_000)]
    began = time.thread_time()
    error = place.refused([*many, ("task 77", EVERY, callback, MINUTE)])
    assert time.thread_time() - began < QUICK
    assert type(error) is ScheduleDuplicateTaskError
    assert error.details == {"taskName": "task 77"}


def test_everything_is_checked_before_anything_is_done(place: Place) -> None:
    many = [(f"task {number}", EVERY, callback, MINUTE) for number in range(1000)]
    for last in (None, ("", EVERY, callback, MINUTE), ("a", "x", callback, MINUTE), ("a", EVERY, callback, -MINUTE)):
        place.refused([*many, last])


def test_a_refused_scheduler_can_be_initialized_with_something_better(place: Place) -> None:
    place.refused([None])

    async def main() -> None:
        await place.scheduler.initialize([])
        await place.scheduler.stop()

    asyncio.run(main())
    assert place.heard[0] == "SchedulerInitializationStarted"


def test_what_happens_to_the_list_after_the_call_changes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    given: list[Any] = [GOOD]
    begun = place.scheduler.initialize(given)
    given.append(None)

    async def main() -> None:
        await begun
        await place.scheduler.stop()

    asyncio.run(main())
    assert place.scheduler.state is SchedulerState.STOPPED
