"""Cron schedules against an oracle that walks days and minutes: tens of thousands of generated questions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.core.oracle import (
    SECOND,
    CronOracle,
    Dialect,
    Refused,
    Window,
    read_field,
    read_fields,
)
from tests.core.test_schedule_samples import (
    DIALECTS,
    ZONES,
    Chooser,
    Drawn,
    any_cron,
    any_expression,
    any_moment,
    any_zone,
    changes,
    cron_of,
    near,
    seeded,
)
from tests.tier import examples

from horae import Cron
from horae.core.schedule.cron import compile_cron
from horae.errors import CronNeverFires, InvalidCron

CHUNKS = examples(16)
SCHEDULES_IN_CHUNK = 110
QUESTIONS_PER_SCHEDULE = 12
MUTATIONS_IN_CHUNK = 400
REACH = timedelta(days=2)


def any_question(chooser: Chooser, moment: datetime, window: Window) -> datetime:
    """A time inside the window: exactly at a firing, just beside one, or anywhere close to the moment."""
    aim = chooser.randint(0, 3)
    if aim == 0 or not window.times:
        return near(chooser, moment, 100_000)
    if aim == 1:
        return near(chooser, moment, 3)
    nearest = min(range(len(window.times)), key=lambda index: abs(window.times[index] - moment))
    at = window.times[max(0, min(len(window.times) - 1, nearest + chooser.randint(-3, 3)))]
    return at if aim == 2 else near(chooser, at, 1)


def check_answers(schedule: Cron, window: Window, at: datetime) -> None:
    assert schedule.next(at) == window.next(at), f"next({at.isoformat()}) of {schedule!r}"
    assert schedule.previous(at) == window.previous(at), f"previous({at.isoformat()}) of {schedule!r}"
    assert schedule.matches(at) == window.matches(at), f"matches({at.isoformat()}) of {schedule!r}"


def check_span(schedule: Cron, window: Window, one: datetime, other: datetime) -> None:
    start, end = min(one, other), max(one, other)
    assert list(schedule.between(start, end)) == window.between(start, end), f"between({start}, {end}) of {schedule!r}"


def never_fires(oracle: CronOracle) -> bool:
    """Whether no day matches in 28 years without a century, which hold every kind of year on every weekday."""
    return not any(oracle.dates(date(1972, 1, 1), date(1999, 12, 31)))


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_generated_crons_fire_exactly_when_the_oracle_says(seed: int) -> None:
    chooser = seeded(seed)
    asked = 0
    for number in range(SCHEDULES_IN_CHUNK):
        tz = any_zone(chooser)
        moment = any_moment(chooser, tz)
        oracle = any_cron(chooser, tz, moment)
        fresh = chooser.randint(0, 1) == 1
        try:
            schedule = cron_of(oracle, fresh=fresh)
        except CronNeverFires:
            assert never_fires(oracle), oracle
            continue
        window = oracle.around(moment - REACH, moment + REACH)
        questions = [any_question(chooser, moment, window) for _ in range(QUESTIONS_PER_SCHEDULE)]
        try:
            for at in questions:
                check_answers(schedule, window, at)
            check_span(schedule, window, questions[0], questions[1])
            check_span(schedule, window, window.first, window.last)
        except AssertionError as error:
            error.add_note(f"seed {seed}, schedule {number}, {'a zone not asked before' if fresh else 'a known zone'}")
            raise
        asked += len(questions)
    assert asked > 0.9 * SCHEDULES_IN_CHUNK * QUESTIONS_PER_SCHEDULE


@pytest.mark.parametrize("tz", [tz for tz in ZONES if tz != "UTC"])
def test_what_a_zone_answers_does_not_depend_on_what_it_was_asked_before(tz: str) -> None:
    for change in changes(tz, 1970, 2045):
        for expression in ("30 1 15 1 *", "30 1 15 7 *"):
            oracle = CronOracle(expression, tz)
            for at in (change - timedelta(minutes=5), change - timedelta(hours=20), change, change + SECOND):
                expected = oracle.next(at)
                assert cron_of(oracle, fresh=True).next(at) == expected, (
                    f"next({at}) of {oracle}, a zone not asked before"
                )
                assert cron_of(oracle).next(at) == expected, f"next({at}) of {oracle}, a known zone"


@settings(derandomize=True, deadline=None, max_examples=examples(150))
@given(st.data())
def test_crons_hypothesis_makes_fire_exactly_when_the_oracle_says(data: st.DataObject) -> None:
    chooser = Drawn(data.draw)
    tz = chooser.choice(ZONES)
    moment = any_moment(chooser, tz)
    oracle = any_cron(chooser, tz, moment)
    try:
        schedule = cron_of(oracle, fresh=chooser.choice((False, True)))
    except CronNeverFires:
        assume(False)
        raise
    window = oracle.around(moment - REACH, moment + REACH)
    at = any_question(chooser, moment, window)
    check_answers(schedule, window, at)
    check_span(schedule, window, at, near(chooser, moment, 100_000))


def mutated(chooser: Chooser, expression: str) -> str:
    """The expression after one to three typing errors."""
    for _ in range(chooser.randint(1, 3)):
        position = chooser.randint(0, len(expression))
        letter = chooser.choice("0123456789*/-,, \tjansunSUNfri?L#@\n\N{ARABIC-INDIC DIGIT THREE}")
        removed = chooser.randint(0, 1)
        expression = expression[:position] + chooser.choice(("", letter)) + expression[position + removed :]
    return expression


def values_of(expression: str, dialect: Dialect) -> list[frozenset[int]] | None:
    try:
        return [read_field(text, field, dialect) for field, text in enumerate(read_fields(expression, dialect))]
    except Refused:
        return None


def bits(mask: int) -> frozenset[int]:
    return frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_mistyped_expressions_are_refused_or_mean_what_the_oracle_reads(seed: int) -> None:
    chooser = seeded(1000 + seed)
    for number in range(MUTATIONS_IN_CHUNK):
        dialect = chooser.choice(DIALECTS)
        expression = mutated(chooser, any_expression(chooser, chooser.choice(DIALECTS)))
        expected = values_of(expression, dialect)
        told = f"{expression!r} in {dialect}, seed {1000 + seed}, text {number}"
        try:
            table = compile_cron(expression, dialect)
        except CronNeverFires:
            assert expected is not None, told
            assert never_fires(CronOracle(expression, dialect=dialect)), told
        except InvalidCron:
            assert expected is None, told
        else:
            masks = (table.minutes, table.hours, table.days, table.months, table.weekdays)
            assert [bits(mask) for mask in masks] == expected, told


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "expression", ["0 0 29 2 *", "0 0 29 2 */3", "0 0 29 2 1", "0 0 31 */2 *", "59 23 31 12 5", "0 0 30 2 */2"]
)
def test_rare_days_are_found_across_decades_and_centuries(expression: str, dialect: Dialect) -> None:
    oracle = CronOracle(expression, "America/New_York", dialect)
    if values_of(expression, dialect) is None or never_fires(oracle):
        with pytest.raises(InvalidCron):
            cron_of(oracle)
        return
    schedule = cron_of(oracle)
    for year in (1896, 1999, 2071, 2096, 2196, 2399):
        at = datetime(year, 3, 1, tzinfo=UTC)
        expected = oracle.next(at)
        assert expected is not None
        assert schedule.next(at) == expected
        assert schedule.previous(expected) == oracle.previous(expected)
        assert schedule.matches(expected)
        assert not schedule.matches(expected + SECOND)
