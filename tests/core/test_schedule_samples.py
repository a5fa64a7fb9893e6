"""Samples for the tests that hold schedules against the oracle, and proof that they reach the odd hours.

A sample is made from choices. `random.Random` makes them in bulk; `Drawn` lets Hypothesis make them, and shrink them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from tests.core.oracle import (
    DAY,
    MACROS,
    MONTH,
    NAMES,
    RANGES,
    SECOND,
    WEEKDAY,
    CronOracle,
    Dialect,
    Fold,
    Gap,
    load_zone,
    occurrences,
    shown_at,
    zone_names,
)

from horae import Cron
from horae.core.time import zone as zones

Chosen = TypeVar("Chosen")

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "Pacific/Apia",
    "Europe/Dublin",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Manila",
    "America/Juneau",
    "Pacific/Kwajalein",
    "America/Nuuk",
    "Asia/Gaza",
)
DIALECTS: tuple[Dialect, ...] = ("extended", "posix", "vixie")
GAPS: tuple[Gap, ...] = ("skip", "shift")
FOLDS: tuple[Fold, ...] = ("auto", "both", "once")
_CALENDAR_CORNERS = ((1, 1), (1, 31), (2, 28), (2, 29), (3, 1), (4, 30), (12, 31))
_STARS_IN_TWELVE = (1, 3, 6, 8, 6)


@cache
def changes(name: str, first_year: int, last_year: int) -> tuple[datetime, ...]:
    """The instants between two Januaries at which the zone's offset becomes another, to within five-day blips."""
    zone = load_zone(name)
    found = []
    early = datetime(first_year, 1, 1, tzinfo=UTC)
    while early.year < last_year:
        until = early + 5 * DAY
        before = early.astimezone(zone).utcoffset()
        if until.astimezone(zone).utcoffset() != before:
            late = until
            while late - early > SECOND:
                middle = early + (late - early) // SECOND // 2 * SECOND
                if middle.astimezone(zone).utcoffset() != before:
                    late = middle
                else:
                    early = middle
            found.append(late)
        early = until
    return tuple(found)


class Chooser(Protocol):
    def choice(self, options: Sequence[Chosen], /) -> Chosen: ...
    def randint(self, low: int, high: int, /) -> int: ...


class Drawn:
    """Hypothesis as a chooser."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def choice(self, options: Sequence[Chosen], /) -> Chosen:
        found: Chosen = self._draw(st.sampled_from(options))
        return found

    def randint(self, low: int, high: int, /) -> int:
        found: int = self._draw(st.integers(low, high))
        return found


def seeded(seed: int) -> Random:
    return Random(seed)


def any_zone(chooser: Chooser) -> str:
    return chooser.choice(ZONES) if chooser.randint(0, 9) < 7 else chooser.choice(zone_names())


def any_moment(chooser: Chooser, tz: str) -> datetime:
    """A whole second, most often close to where the clocks of `tz` change or the calendar does."""
    aim = chooser.randint(0, 19)
    year = chooser.choice((1800, 2100, 2399, 2400, 4000, 6000)) if aim == 19 else chooser.randint(1850, 2120)
    found: tuple[datetime, ...] = ()
    if aim < 8:
        found = changes(tz, 1970, 2045)
    elif aim < 11:
        found = changes(tz, 1840, 2045)
    elif aim < 13:
        found = changes(tz, year, year + 1)
    if found:
        return chooser.choice(found) + timedelta(seconds=chooser.choice((0, chooser.randint(-90_000, 90_000))))
    month, day = chooser.choice(_CALENDAR_CORNERS)
    if day == 29 and year % 4:
        year -= year % 4
    if day == 29 and year % 100 == 0 and year % 400:
        year += 4
    return datetime(year, month, day, tzinfo=UTC) + timedelta(seconds=chooser.randint(-90_000, 180_000))


def near(chooser: Chooser, moment: datetime, seconds: int) -> datetime:
    """An instant at most so far from `moment`, now and then with a fraction, or on another zone's clock."""
    found = moment + timedelta(seconds=chooser.randint(-seconds, seconds))
    if chooser.randint(0, 5) == 5:
        found += timedelta(microseconds=chooser.choice((1, 500_000, 999_999)))
    return found.astimezone(load_zone(chooser.choice(ZONES))) if chooser.randint(0, 5) == 5 else found


def any_value(chooser: Chooser, field: int, value: int, dialect: Dialect) -> str:
    names = [name for name, number in NAMES[field].items() if number == (value % 7 if field == WEEKDAY else value)]
    if dialect == "posix" or not names or chooser.randint(0, 2) < 2:
        return chooser.choice((str(value), str(value), f"{value:02}"))
    return chooser.choice((names[0], names[0].upper(), names[0].title()))


def any_element(chooser: Chooser, field: int, dialect: Dialect) -> str:
    low, high = RANGES[field]
    highest = 7 if field == WEEKDAY and dialect != "posix" else high
    shape = chooser.choice(("value", "value", "range", "steps", "steps from", "steps in range"))
    step = chooser.choice(("1", "2", "3", "5", "7", "15", "20", "30", "99"))
    if shape == "steps" and dialect != "posix":
        return f"*/{step}"
    if shape == "steps from" and dialect != "posix":
        return f"{any_value(chooser, field, chooser.randint(low, high), dialect)}/{step}"
    first = chooser.randint(low, highest)
    if shape == "value":
        return any_value(chooser, field, first, dialect)
    last = chooser.randint(first, min(highest, first + chooser.choice((0, 2, 30))))
    # "sun" is 0 where a range begins and 7 where it ends, so the other two ends are written as numbers.
    first_text = str(first) if field == WEEKDAY and first == 7 else any_value(chooser, field, first, dialect)
    last_text = str(last) if field == WEEKDAY and last == 0 else any_value(chooser, field, last, dialect)
    text = f"{first_text}-{last_text}"
    return f"{text}/{step}" if shape == "steps in range" and dialect != "posix" else text


def any_field(chooser: Chooser, field: int, dialect: Dialect) -> str:
    if chooser.randint(1, 12) <= _STARS_IN_TWELVE[field]:
        return "*"
    return ",".join(any_element(chooser, field, dialect) for _ in range(chooser.choice((1, 1, 1, 2, 3))))


def any_expression(chooser: Chooser, dialect: Dialect) -> str:
    if dialect != "posix" and chooser.randint(0, 29) == 29:
        return chooser.choice(tuple(MACROS))
    fields = [any_field(chooser, field, dialect) for field in range(5)]
    if chooser.randint(0, 5) < 2:
        fields[2] = fields[MONTH] = fields[WEEKDAY] = "*"
    return chooser.choice((" ", " ", " ", "\t", "  ")).join(fields)


def any_expression_around(chooser: Chooser, dialect: Dialect, wall: datetime) -> str:
    """An expression for the hours around `wall`, on all days or a few."""
    minute = chooser.choice((str(wall.minute), "0", "30", "0,15,45", any_field(chooser, 0, dialect)))
    first = max(0, wall.hour - chooser.randint(0, 2))
    hours = [str((wall.hour + chooser.randint(-2, 2)) % 24), f"{first}-{min(23, first + 2)}", "*"]
    hour = chooser.choice(hours if dialect == "posix" else [*hours, "*/2", f"{wall.hour % 3}/3"])
    day = chooser.choice(("*", "*", f"{wall.day}", f"{wall.day},{wall.day % 28 + 1}"))
    weekday = chooser.choice(("*", "*", "*", str(wall.isoweekday() % 7)))
    return f"{minute} {hour} {day} * {weekday}"


def any_cron(chooser: Chooser, tz: str, moment: datetime) -> CronOracle:
    """A cron on the clocks of `tz`; where it has bounds, they lie within two days of `moment`."""
    dialect = chooser.choice(DIALECTS)
    bounded = chooser.randint(0, 9)
    start = near(chooser, moment, 90_000) if bounded in (7, 9) else None
    end = near(chooser, max(moment, start or moment), 90_000) if bounded in (8, 9) else None
    if start is not None and end is not None:
        start, end = min(start, end), max(start, end)
    if chooser.randint(0, 1):
        expression = any_expression_around(chooser, dialect, shown_at(moment, load_zone(tz)))
    else:
        expression = any_expression(chooser, dialect)
    return CronOracle(expression, tz, dialect, chooser.choice(GAPS), chooser.choice(FOLDS), start, end)


def cron_of(oracle: CronOracle, *, fresh: bool = False) -> Cron:
    """The schedule `oracle` knows the times of; `fresh` makes the zone forget how far into the future it has looked."""
    if fresh and oracle.tz != "UTC":
        zones._known.pop(oracle.tz, None)
    return Cron(
        oracle.expr,
        tz=oracle.tz,
        dialect=oracle.dialect,
        gap=oracle.gap,
        fold=oracle.fold,
        start=oracle.start,
        end=oracle.end,
    )


def test_the_samples_reach_the_hours_that_clocks_skip_and_repeat() -> None:
    chooser = seeded(1)
    skipped = repeated = 0
    for _ in range(500):
        tz = any_zone(chooser)
        wall = shown_at(any_moment(chooser, tz), load_zone(tz))
        for minutes in (-30, 0, 30):
            count = len(occurrences(wall + timedelta(minutes=minutes), load_zone(tz)))
            skipped += count == 0
            repeated += count == 2
    assert skipped > 50
    assert repeated > 50


def test_the_zones_change_their_clocks_when_history_says_so() -> None:
    assert datetime(2011, 12, 30, 10, tzinfo=UTC) in changes("Pacific/Apia", 1970, 2045)
    assert datetime(1993, 8, 21, 12, tzinfo=UTC) in changes("Pacific/Kwajalein", 1970, 2045)
    assert datetime(2026, 3, 29, 1, tzinfo=UTC) in changes("Europe/Berlin", 1970, 2045)
    assert changes("UTC", 1970, 2045) == ()
