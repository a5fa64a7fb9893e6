"""What schedules mean, written to be obvious and slow, and samples to hold the real ones against it.

Nothing here comes from `horae`: offsets come from `zoneinfo` over the files of the `tzdata` package, dates from
`datetime`. An oracle lists the times in a span; what is next, previous and between follows from the list.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from importlib.resources import files
from itertools import count, takewhile
from typing import Literal
from zoneinfo import ZoneInfo

Dialect = Literal["extended", "posix", "vixie"]
Gap = Literal["skip", "shift"]
Fold = Literal["auto", "both", "once"]

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(microsecond=0, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Refused(Exception):
    """The text means nothing in the dialect it was read in."""


@cache
def load_zone(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def zone_names() -> tuple[str, ...]:
    return tuple(files("tzdata").joinpath("zones").read_text("ascii").split())


def shown_at(at: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks of `zone` show at the instant `at`, as a naive datetime."""
    return at.astimezone(zone).replace(tzinfo=None)


def occurrences(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Every instant at which the clocks of `zone` show `wall`, in order: none in a gap, two in a fold."""
    try:
        readings = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(at for at in readings if shown_at(at, zone) == wall)
    except OverflowError:
        return []


def gap_end(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which the clocks, which never show `wall`, show something later."""
    instants = [wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    early, late = min(instants), max(instants)
    while late - early > SECOND:
        middle = early + (late - early) // SECOND // 2 * SECOND
        if shown_at(middle, zone) > wall:
            late = middle
        else:
            early = middle
    return late


class Oracle(ABC):
    @abstractmethod
    def times(self, first: datetime, last: datetime) -> list[datetime]:
        """Every time from `first` to `last`, both included, in order."""

    @abstractmethod
    def next(self, after: datetime) -> datetime | None: ...

    @abstractmethod
    def previous(self, before: datetime) -> datetime | None: ...

    def around(self, first: datetime, last: datetime) -> Window:
        return Window(self, first, last, self.times(first, last))


@dataclass(frozen=True)
class Window:
    """An oracle's times over one span, kept to answer many questions that lie inside it."""

    oracle: Oracle
    first: datetime
    last: datetime
    times: list[datetime]

    @cached_property
    def next_outside(self) -> datetime | None:
        return self.oracle.next(self.last)

    @cached_property
    def previous_outside(self) -> datetime | None:
        return self.oracle.previous(self.first)

    def next(self, after: datetime) -> datetime | None:
        index = bisect_right(self.times, after)
        return self.times[index] if index < len(self.times) else self.next_outside

    def previous(self, before: datetime) -> datetime | None:
        index = bisect_left(self.times, before)
        return self.times[index - 1] if index else self.previous_outside

    def between(self, start: datetime, end: datetime) -> list[datetime]:
        return [at for at in self.times if start < at <= end]

    def matches(self, at: datetime) -> bool:
        # In UTC, because a datetime in a repeated hour equals none on another zone's clock.
        return at.astimezone(UTC) in self.times


def moved(at: datetime, days: int) -> datetime:
    """`at` so many days on, or the end of the calendar where that comes first."""
    try:
        return at + days * DAY
    except OverflowError:
        return LAST if days > 0 else FIRST


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
NAMES: tuple[dict[str, int], ...] = (
    {},
    {},
    {},
    dict(zip(MONTH_NAMES, range(1, 13), strict=True)),
    dict(zip(WEEKDAY_NAMES, range(7), strict=True)),
)
MONTH, WEEKDAY = 3, 4
_ELEMENT = re.compile(r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")


def read_fields(expr: str, dialect: Dialect) -> list[str]:
    if dialect != "posix" and expr.strip(" \t") in MACROS:
        expr = MACROS[expr.strip(" \t")]
    texts = [text for text in re.split("[ \t]+", expr) if text]
    if len(texts) != 5:
        raise Refused(expr)
    return texts


def read_field(text: str, field: int, dialect: Dialect) -> frozenset[int]:
    """The values that the field at index `field` (0 for minutes, 4 for weekdays) names."""
    low, high = RANGES[field]
    if text == "*":
        return frozenset(range(low, high + 1))
    values: set[int] = set()
    for element in text.split(","):
        found = _ELEMENT.fullmatch(element)
        if found is None:
            raise Refused(element)
        star, first_text, last_text, step_text = found.groups()
        if (star and not step_text) or (step_text and (dialect == "posix" or not 0 < int(step_text) <= 9999)):
            raise Refused(element)
        first, last = low, high
        if not star:
            first = read_value(first_text, field, dialect)
            if last_text:
                last = read_value(last_text, field, dialect)
                if field == WEEKDAY and last_text.lower() == "sun" and first > 0:
                    last = 7
            elif step_text:
                first = 0 if field == WEEKDAY and first == 7 else first
            else:
                last = first
        if first > last:
            raise Refused(element)
        values.update(range(first, last + 1, int(step_text or 1)))
    return frozenset(0 if field == WEEKDAY and value == 7 else value for value in values)


def read_value(text: str, field: int, dialect: Dialect) -> int:
    low, high = RANGES[field]
    if field == WEEKDAY and dialect != "posix":
        high = 7
    if text.isdigit():
        value = int(text)
    elif dialect != "posix" and text.lower() in NAMES[field]:
        value = NAMES[field][text.lower()]
    else:
        raise Refused(text)
    if not low <= value <= high:
        raise Refused(text)
    return value


@dataclass(frozen=True)
class CronOracle(Oracle):
    expr: str
    tz: str = "UTC"
    dialect: Dialect = "extended"
    gap: Gap = "skip"
    fold: Fold = "auto"
    start: datetime | None = None
    end: datetime | None = None

    @cached_property
    def texts(self) -> list[str]:
        return read_fields(self.expr, self.dialect)

    @cached_property
    def fields(self) -> list[frozenset[int]]:
        return [read_field(text, field, self.dialect) for field, text in enumerate(self.texts)]

    @cached_property
    def only_first_occurrence(self) -> bool:
        follows_hours = re.fullmatch(r"\*(/[0-9]+)?", self.texts[1]) is not None
        return self.fold == "once" or (self.fold == "auto" and not follows_hours)

    def unrestricted(self, text: str) -> bool:
        return text.startswith("*") if self.dialect == "vixie" else text == "*"

    def matches_date(self, day: date) -> bool:
        _, _, days, months, weekdays = self.fields
        day_matches = day.day in days
        weekday_matches = day.isoweekday() % 7 in weekdays
        if self.unrestricted(self.texts[2]) or self.unrestricted(self.texts[4]):
            return day.month in months and day_matches and weekday_matches
        return day.month in months and (day_matches or weekday_matches)

    def dates(self, first: date, last: date) -> Iterator[date]:
        for year in range(first.year, last.year + 1):
            for month in sorted(self.fields[MONTH]):
                if (first.year, first.month) <= (year, month) <= (last.year, last.month):
                    for number in range(1, monthrange(year, month)[1] + 1):
                        day = date(year, month, number)
                        if first <= day <= last and self.matches_date(day):
                            yield day

    def dates_backwards(self, first: date, last: date) -> Iterator[date]:
        for year in range(last.year, first.year - 1, -1):
            whole = self.dates(max(first, date(year, 1, 1)), min(last, date(year, 12, 31)))
            yield from sorted(whole, reverse=True)

    def firings(self, wall: datetime) -> list[datetime]:
        zone = load_zone(self.tz)
        instants = occurrences(wall, zone)
        if instants:
            return instants[:1] if self.only_first_occurrence else instants
        is_gap = wall.replace(tzinfo=zone).utcoffset() != wall.replace(tzinfo=zone, fold=1).utcoffset()
        return [gap_end(wall, zone)] if is_gap and self.gap == "shift" else []

    def times(self, first: datetime, last: datetime) -> list[datetime]:
        first = first if self.start is None else max(first, self.start)
        last = last if self.end is None else min(last, self.end)
        found: set[datetime] = set()
        # No clock is a whole day away from UTC.
        for day in self.dates(moved(first, -1).date(), moved(last, 1).date()):
            for hour in self.fields[1]:
                for minute in self.fields[0]:
                    found.update(self.firings(datetime(day.year, day.month, day.day, hour, minute)))
        return sorted(at for at in found if first <= at <= last)

    def next(self, after: datetime) -> datetime | None:
        start = after if self.start is None else max(after, self.start)
        for day in self.dates(moved(start, -1).date(), moved(self.end or LAST, 1).date()):
            searched = moved(midnight(day), 2)
            found = [at for at in self.times(after, searched) if at > after]
            if found:
                return found[0]
            after = max(after, searched)
        return None

    def previous(self, before: datetime) -> datetime | None:
        end = before if self.end is None else min(before, self.end)
        for day in self.dates_backwards(moved(self.start or FIRST, -1).date(), moved(end, 1).date()):
            searched = moved(midnight(day), -1)
            found = [at for at in self.times(searched, before) if at < before]
            if found:
                return found[-1]
            before = min(before, searched)
        return None


class IntervalOracle(Oracle):
    """Walks from the slot it counts from, forwards, or backwards where only the end is given."""

    backwards = False

    @abstractmethod
    def walk(self) -> Iterator[datetime]: ...

    def next(self, after: datetime) -> datetime | None:
        if self.backwards:
            return min(takewhile(lambda at: at > after, self.walk()), default=None)
        return next((at for at in self.walk() if at > after), None)

    def previous(self, before: datetime) -> datetime | None:
        if self.backwards:
            return next((at for at in self.walk() if at < before), None)
        return max(takewhile(lambda at: at < before, self.walk()), default=None)

    def times(self, first: datetime, last: datetime) -> list[datetime]:
        if self.backwards:
            walked = takewhile(lambda at: at >= first, self.walk())
        else:
            walked = takewhile(lambda at: at <= last, self.walk())
        return sorted(at for at in walked if first <= at <= last)


@dataclass(frozen=True)
class EveryOracle(IntervalOracle):
    interval: timedelta
    start: datetime | None = None
    end: datetime | None = None
    anchor: datetime | None = None

    def walk(self) -> Iterator[datetime]:
        base = self.start or self.anchor
        assert base is not None
        at = base if self.start else base + self.interval
        while at <= (self.end or LAST):
            yield at
            at += self.interval


_DURATION = re.compile(r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


@dataclass
class IsoOracle(IntervalOracle):
    text: str
    tz: str = "UTC"
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        parts = self.text.split("/")
        spans = [part for part in parts if part.startswith("P")]
        moments = [self.read_moment(part) for part in parts if part[0] not in "RP"]
        base = moments[0] if moments else self.anchor
        assert base is not None
        self.base = base
        self.first_number = 0 if moments else 1
        self.backwards = bool(spans) and parts[-1] not in spans
        self.units = read_duration(spans[0]) if spans else (0, 0, moments[1] - moments[0])
        repeats = parts[0][1:] if parts[0].startswith("R") else ""
        self.repeats = None if repeats in ("", "-1") else int(repeats)

    def read_moment(self, text: str) -> datetime:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else occurrences(at, load_zone(self.tz))[0]

    def slot(self, number: int) -> datetime | None:
        """The time `number` intervals from the base, None where the clocks skip it."""
        if number == 0:
            return self.base
        months, days, exact = self.units
        if not months and not days:
            return self.base + number * exact
        wall = shown_at(self.base, load_zone(self.tz))
        year, month = divmod(wall.year * 12 + wall.month - 1 + number * months, 12)
        if not 1 <= year <= 9999:
            raise OverflowError
        wall = wall.replace(year=year, month=month + 1, day=min(wall.day, monthrange(year, month + 1)[1]))
        instants = occurrences(wall + number * days * DAY, load_zone(self.tz))
        return instants[0] + number * exact if instants else None

    def walk(self) -> Iterator[datetime]:
        for number in count() if self.repeats is None else range(self.repeats):
            try:
                at = self.slot(-number if self.backwards else self.first_number + number)
            except OverflowError:
                return
            if at is not None:
                yield at


def read_duration(text: str) -> tuple[int, int, timedelta]:
    """Months and days, which move on the wall clock, and the exact rest."""
    found = _DURATION.fullmatch(text)
    assert found is not None
    years, months, weeks, days, hours, minutes, seconds = (int(number or 0) for number in found.groups())
    return years * 12 + months, weeks * 7 + days, timedelta(hours=hours, minutes=minutes, seconds=seconds)
