"""What a registration is to the catalog, which minutes it is owed, and the job it stands for."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import at
from tests.tier import examples

from horae import Cron, Retry
from horae.core.declarative import (
    HANDLER,
    NAMESPACE,
    KnownTask,
    RegistrationStatus,
    catch_up_cursor,
    classify,
    compared_values,
    declared_spec,
    job_name,
    task_name,
)
from horae.core.job.definition import JobSpec, Settings, effective, parse_settings
from horae.core.run.attempt import settle
from horae.core.run.lifecycle import AttemptState, TaskState
from horae.errors import InvalidDuration, InvalidName

HOURLY = "0 * * * *"
FIVE = timedelta(minutes=5)
NEW, PRESERVED, OVERRIDDEN = RegistrationStatus.NEW, RegistrationStatus.PRESERVED, RegistrationStatus.OVERRIDDEN
ORPHANED, ABSENT = RegistrationStatus.ORPHANED, RegistrationStatus.ABSENT
law = settings(derandomize=True, deadline=None, max_examples=examples(200))


def spec(expression: str = HOURLY, delay: timedelta = FIVE, *, tz: str = "UTC") -> JobSpec:
    return declared_spec("a", Cron(expression, tz=tz, dialect="posix", fold="both"), delay)


@pytest.mark.parametrize(
    ("registered", "known", "expected"),
    [
        (spec(), None, NEW),
        (spec(), KnownTask(HOURLY, FIVE), PRESERVED),
        (spec(tz="Europe/Brussels"), KnownTask(HOURLY, FIVE), PRESERVED),
        (spec(delay=timedelta(seconds=300)), KnownTask(HOURLY, FIVE), PRESERVED),
        (spec("1 * * * *"), KnownTask(HOURLY, FIVE), OVERRIDDEN),
        (spec("00 * * * *"), KnownTask(HOURLY, FIVE), OVERRIDDEN),
        (spec("0  * * * *"), KnownTask(HOURLY, FIVE), OVERRIDDEN),
        (spec(delay=timedelta(0)), KnownTask(HOURLY, FIVE), OVERRIDDEN),
        (spec(delay=FIVE + timedelta(milliseconds=1)), KnownTask(HOURLY, FIVE), OVERRIDDEN),
        (spec(), KnownTask(HOURLY, FIVE, orphaned=True), ORPHANED),
        (spec("1 * * * *"), KnownTask(HOURLY, FIVE, orphaned=True), ORPHANED),
        (None, KnownTask(HOURLY, FIVE), ABSENT),
        (None, KnownTask(HOURLY, FIVE, orphaned=True), ABSENT),
    ],
)
def test_what_a_registration_is_follows_from_what_the_catalog_has(
    registered: JobSpec | None, known: KnownTask | None, expected: RegistrationStatus
) -> None:
    assert classify(registered, known) is expected


NOW = "10:30:40.500"
"""The minute before it begins ends at 10:29:59."""


@pytest.mark.parametrize(
    ("standing", "cursor", "attempted", "expected"),
    [
        # Never tried: this very minute, and none that lies before.
        (NEW, None, None, "10:29:59"),
        (NEW, "09:00", None, "10:29:59"),
        (NEW, "10:30", None, "10:30"),
        (PRESERVED, "09:00", None, "10:29:59"),
        (PRESERVED, "10:30", None, "10:30"),
        (OVERRIDDEN, "09:00", None, "10:29:59"),
        # Tried before: whatever was missed since.
        (PRESERVED, "09:00", "09:00:03", "09:00"),
        (PRESERVED, "10:30", "09:00:03", "10:30"),
        # Minutes of a new expression that lie before the last attempt were not missed.
        (OVERRIDDEN, "09:00", "09:20:03.700", "09:20:03"),
        (OVERRIDDEN, "10:00", "09:20:03", "10:00"),
        # What was cut off stands for everything up to now.
        (ORPHANED, "09:00", "09:00:03", "10:30:40"),
        (ORPHANED, "09:00", None, "10:30:40"),
        (ORPHANED, "11:00", "09:00:03", "11:00"),
    ],
)
def test_what_a_task_is_owed_begins_after_its_cursor(
    standing: RegistrationStatus, cursor: str | None, attempted: str | None, expected: str
) -> None:
    times = [None if text is None else at(text) for text in (cursor, attempted)]
    assert catch_up_cursor(standing, times[0], times[1], at(NOW)) == at(expected)


minutes = st.integers(-10_000, 0).map(lambda back: at(NOW) + timedelta(seconds=back))


@law
@given(st.sampled_from([PRESERVED, OVERRIDDEN, ORPHANED]), minutes, st.none() | minutes)
def test_a_cursor_never_goes_back_and_stands_on_whole_seconds(
    standing: RegistrationStatus, cursor: datetime, attempted: datetime | None
) -> None:
    floored = cursor.replace(microsecond=0)
    found = catch_up_cursor(standing, floored, attempted, at(NOW))
    assert found >= floored
    assert found.microsecond == 0
    assert found <= at(NOW)


def test_a_registration_stands_for_a_job_that_owes_one_run() -> None:
    made = spec()
    assert (made.name, made.namespace, made.payload) == ("declarative:a", NAMESPACE, None)
    assert [(task.name, task.handler) for task in made.tasks] == [("a", HANDLER)]
    rules = effective({}, made.settings)
    assert rules.owes_once
    assert (rules.overlap, rules.recovery, rules.retry.max_retries) == ("coalesce", "last", None)
    assert (rules.execution_timeout, rules.task_timeout, rules.deadline, rules.max_lost) == (None, None, None, None)


def test_a_task_is_named_by_its_job_and_back() -> None:
    for name in ("a", "sync mails", "declarative:a", "ü"):
        assert task_name(job_name(name)) == name


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(milliseconds=1), FIVE, timedelta(days=366 * 50)])
def test_what_registrations_are_compared_by_survives_being_written_down(delay: timedelta) -> None:
    made = spec("0,30  9 * * 1-5", delay)
    again = JobSpec.from_dict(json.loads(json.dumps(made.to_dict())))
    assert compared_values(again) == compared_values(made) == ("0,30  9 * * 1-5", delay)
    assert again == made


def test_a_long_delay_is_waited_for_in_full() -> None:
    for days in (1, 366, 367, 36_600):
        delay = timedelta(days=days)
        assert effective({}, spec(delay=delay).settings).retry.delay(0, "") == delay
        assert effective({}, spec(delay=delay).settings).retry.delay(1000, "") == delay


@pytest.mark.parametrize("name", ["", "x" * 250])
def test_a_name_that_no_job_could_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        declared_spec(name, Cron(HOURLY, dialect="posix"), FIVE)


def test_a_delay_below_zero_is_refused() -> None:
    with pytest.raises(InvalidDuration):
        spec(delay=timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({"overlap": "coalesce", "recovery": "last", "retry": Retry(None, "1m")}, True),
        ({"overlap": "coalesce", "retry": Retry(None, "1m")}, True),
        ({"overlap": "coalesce", "recovery": "last", "retry": Retry(1000, "1m")}, False),
        ({"overlap": "queue", "recovery": "last", "retry": Retry(None, "1m")}, False),
        ({"overlap": "coalesce", "recovery": "all", "retry": Retry(None, "1m")}, False),
        ({"overlap": "coalesce", "recovery": "none", "retry": Retry(None, "1m")}, False),
        ({}, False),
    ],
)
def test_one_run_is_owed_where_all_three_policies_say_so(policies: dict[str, object], expected: bool) -> None:
    assert effective(parse_settings(policies)).owes_once is expected


def retried(retry: Retry, failures: int = 1) -> timedelta | None:
    """How long a failed attempt waits."""
    rules = Settings(retry=retry)
    found = settle(AttemptState.FAILED, failures=failures, lost=0, settings=rules, attempt_id="x", now=at("10:00"))
    assert found.state is TaskState.PENDING
    return None if found.retry_at is None else found.retry_at - at("10:00")


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(milliseconds=1), timedelta(milliseconds=999)])
def test_what_is_tried_without_end_is_tried_once_a_second_at_most(interval: timedelta) -> None:
    assert retried(Retry(None, interval)) == timedelta(seconds=1)
    assert retried(Retry(None, interval), failures=10_000) == timedelta(seconds=1)


def test_an_interval_of_a_second_or_more_is_kept_and_so_is_one_of_retries_that_end() -> None:
    assert retried(Retry(None, "1s")) == timedelta(seconds=1)
    assert retried(Retry(None, "1500ms")) == timedelta(milliseconds=1500)
    assert retried(Retry(3, 0)) == timedelta(0)
    assert retried(Retry(3, "20ms")) == timedelta(milliseconds=20)
