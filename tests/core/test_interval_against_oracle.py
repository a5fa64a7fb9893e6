"""Iso8601 and Every against oracles that count slot by slot from where the series begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.oracle import (
    DAY,
    SECOND,
    EveryOracle,
    IntervalOracle,
    IsoOracle,
    Window,
    load_zone,
    occurrences,
    read_duration,
    shown_at,
)
from tests.core.test_schedule_samples import Chooser, Drawn, any_moment, any_zone, near, seeded
from tests.tier import examples

from horae import Every, Iso8601, Schedule

CHUNKS = examples(8)
SCHEDULES_IN_CHUNK = 130
QUESTIONS_PER_SCHEDULE = 6
DURATIONS = (
    "P1D",
    "P1M",
    "P1Y",
    "P3W",
    "P2D",
    "P10D",
    "P6M",
    "P1Y2M10D",
    "P1M1D",
    "P1DT1H",
    "P1MT30M",
    "P1WT12H",
    "P0Y0M1D",
    "PT1H",
    "PT15M",
    "PT24H",
    "PT7H30M",
    "PT1M1S",
    "PT90000S",
)
INTERVALS = {
    "15m": timedelta(minutes=15),
    "10s": timedelta(seconds=10),
    "59s": timedelta(seconds=59),
    "1h30m": timedelta(hours=1, minutes=30),
    "1d": timedelta(days=1),
    "25h": timedelta(hours=25),
    "7d": timedelta(days=7),
    "365d": timedelta(days=365),
}


def typical_length(duration: str) -> timedelta:
    months, days, exact = read_duration(duration)
    return months * timedelta(days=30.5) + days * DAY + exact


def written(chooser: Chooser, at: datetime, tz: str) -> str:
    """The instant as a start or an end may be written: in UTC, with the zone's offset, or on the zone's clock."""
    zone = load_zone(tz)
    wall = shown_at(at, zone)
    offset = at.astimezone(zone).utcoffset()
    form = chooser.randint(0, 2)
    if form == 1 and occurrences(wall, zone)[0] == at:
        return wall.isoformat()
    if form == 2 and offset is not None and not offset.seconds % 60:
        return at.astimezone(zone).isoformat()
    return at.isoformat().replace("+00:00", "Z")


def any_iso(chooser: Chooser, tz: str, moment: datetime) -> IsoOracle:
    """A series that passes near `moment`, often with a slot at that very reading of the clock."""
    zone = load_zone(tz)
    duration = chooser.choice(DURATIONS)
    length = typical_length(duration)
    steps = chooser.choice((0, chooser.randint(0, 60), chooser.randint(0, 60 if length > 20 * DAY else 300)))
    repeats = chooser.choice(("", "R/", "R-1/", "R1/", "R5/", f"R{steps + 2}/"))
    form = chooser.choice(("start", "end", "anchor", "both"))
    away = steps * (length // DAY * DAY if length >= DAY else length)
    wall = shown_at(moment, zone) + (away if form == "end" else -away)
    base = (occurrences(wall, zone) or [moment])[chooser.choice((0, -1))]
    if form == "anchor":
        return IsoOracle(f"{repeats}{duration}", tz, base)
    if form == "end":
        return IsoOracle(f"{repeats}{duration}/{written(chooser, base, tz)}", tz)
    if form == "both":
        end = base + max(length, SECOND)
        return IsoOracle(f"{repeats}{written(chooser, base, tz)}/{written(chooser, end, tz)}", tz)
    return IsoOracle(f"{repeats}{written(chooser, base, tz)}/{duration}", tz)


def any_every(chooser: Chooser, moment: datetime) -> tuple[Every, EveryOracle]:
    text, interval = chooser.choice(tuple(INTERVALS.items()))
    seconds = interval // SECOND
    base = moment - chooser.randint(-2, 300) * interval + chooser.randint(-5, 5) * SECOND
    end = max(base, near(chooser, moment, 5 * seconds)) if chooser.randint(0, 2) == 2 else None
    if chooser.randint(0, 1):
        return Every(text, start=base, end=end), EveryOracle(interval, start=base, end=end)
    return Every(interval, anchor=base, end=end), EveryOracle(interval, anchor=base, end=end)


def any_question(chooser: Chooser, moment: datetime, window: Window, reach: timedelta) -> datetime:
    if window.times and chooser.randint(0, 2):
        found = near(chooser, chooser.choice(window.times), chooser.choice((0, 1)))
        return min(max(found, window.first), window.last)
    return near(chooser, moment, reach // SECOND)


def check(chooser: Chooser, schedule: Schedule, oracle: IntervalOracle, moment: datetime, reach: timedelta) -> None:
    window = oracle.around(moment - reach - 10 * SECOND, moment + reach + 10 * SECOND)
    questions = [any_question(chooser, moment, window, reach) for _ in range(QUESTIONS_PER_SCHEDULE)]
    for at in questions:
        assert schedule.next(at) == window.next(at), f"next({at.isoformat()}) of {schedule!r}"
        assert schedule.previous(at) == window.previous(at), f"previous({at.isoformat()}) of {schedule!r}"
        assert schedule.matches(at) == window.matches(at), f"matches({at.isoformat()}) of {schedule!r}"
    start, end = sorted(questions[:2])
    assert list(schedule.between(start, end)) == window.between(start, end), f"between({start}, {end}) of {schedule!r}"


def check_any_iso(chooser: Chooser) -> None:
    tz = any_zone(chooser)
    moment = any_moment(chooser, tz)
    oracle = any_iso(chooser, tz, moment)
    months, days, exact = oracle.units
    reach = 3 * (months * 31 * DAY + days * DAY + exact) + 2 * DAY if months or days else 4 * exact
    check(chooser, Iso8601(oracle.text, tz=tz, anchor=oracle.anchor), oracle, moment, reach)


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_generated_iso8601_series_fire_exactly_when_the_oracle_says(seed: int) -> None:
    chooser = seeded(seed)
    for number in range(SCHEDULES_IN_CHUNK):
        try:
            check_any_iso(chooser)
        except AssertionError as error:
            error.add_note(f"seed {seed}, schedule {number}")
            raise


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(st.data())
def test_iso8601_series_hypothesis_makes_fire_exactly_when_the_oracle_says(data: st.DataObject) -> None:
    check_any_iso(Drawn(data.draw))


@pytest.mark.parametrize("seed", range(CHUNKS))
def test_generated_intervals_fire_exactly_when_the_oracle_says(seed: int) -> None:
    chooser = seeded(2000 + seed)
    for number in range(SCHEDULES_IN_CHUNK):
        moment = any_moment(chooser, "Europe/Berlin")
        schedule, oracle = any_every(chooser, moment)
        try:
            check(chooser, schedule, oracle, moment, 4 * oracle.interval)
        except AssertionError as error:
            error.add_note(f"seed {2000 + seed}, schedule {number}")
            raise


@pytest.mark.parametrize("duration", ["P1M", "P1Y", "P7D", "P1M1D", "P2MT5H"])
@pytest.mark.parametrize("tz", ["Europe/Berlin", "Pacific/Apia", "Asia/Manila"])
def test_a_series_of_centuries_drifts_nowhere(duration: str, tz: str) -> None:
    text = f"1799-12-31T23:30:00Z/{duration}"
    start, end = datetime(1799, 1, 1, tzinfo=UTC), datetime(2201, 1, 1, tzinfo=UTC)
    expected = IsoOracle(text, tz).times(start, end)
    schedule = Iso8601(text, tz=tz)
    assert list(schedule.between(start, end)) == expected
    for earlier, later in list(pairwise(expected))[::50]:
        assert schedule.previous(later) == earlier


@pytest.mark.parametrize("duration", DURATIONS)
def test_a_bare_series_counts_from_the_time_it_is_asked_about(duration: str) -> None:
    chooser = seeded(3000)
    for _ in range(15):
        tz = any_zone(chooser)
        at = any_moment(chooser, tz)
        schedule = Iso8601(duration, tz=tz)
        assert schedule.next(at) == IsoOracle(duration, tz, anchor=at).next(at), f"next({at}) of {schedule!r}"
        backwards = IsoOracle(f"{duration}/{at.isoformat()}", tz)
        assert schedule.previous(at) == backwards.previous(at), f"previous({at}) of {schedule!r}"


def test_a_bare_interval_counts_from_the_time_it_is_asked_about() -> None:
    at = datetime(2026, 3, 29, 0, 59, 7, tzinfo=UTC)
    assert Every("15m").next(at) == at + timedelta(minutes=15)
    assert Every("15m").previous(at) == at - timedelta(minutes=15)
    assert not Every("15m").matches(at)
