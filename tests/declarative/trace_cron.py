"""POSIX cron the slow and obvious way: every minute there was is looked at by the clock on the wall.

A minute that a clock change leaves out never comes by, and one that it repeats comes by twice: nothing else is to be
known about clock changes. Shares no code with what it is there to check.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from tests.declarative.trace import zone_of

MINUTE = timedelta(minutes=1)
Wall = tuple[int, int, int, int, int]
"""Minute, hour, day, month, weekday with Sunday as 0."""
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def minute_of(at: datetime) -> datetime:
    """When the minute of `at` began."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


class Expression:
    """A cron expression, taken to be valid."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        self._fields = [_values(part, *limits) for part, limits in zip(parts, _RANGES, strict=True)]
        self._either_day = parts[2] != "*" and parts[4] != "*"

    def matches(self, wall: Wall) -> bool:
        """Whether the clock on the wall is one that the expression means."""
        minutes, hours, days, months, weekdays = self._fields
        if wall[0] not in minutes or wall[1] not in hours or wall[3] not in months:
            return False
        day, weekday = wall[2] in days, wall[4] in weekdays
        return day or weekday if self._either_day else day and weekday


def _values(text: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for element in text.split(","):
        first, _, last = element.partition("-")
        begin, end = (low, high) if element == "*" else (int(first), int(last or first))
        assert low <= begin <= end <= high, text
        values.update(range(begin, end + 1))
    return frozenset(values)


class Calendar:
    """Every minute of a span of time, as the clock on the wall of a zone showed it."""

    def __init__(self, zone: str, first: datetime, last: datetime) -> None:
        self._zone = zone_of(zone)
        begin = minute_of(first)
        self._minutes = [begin + index * MINUTE for index in range((last - begin) // MINUTE + 1)]
        self._walls = [self._wall(at) for at in self._minutes]
        self._found: dict[str, list[datetime]] = {}

    def _wall(self, at: datetime) -> Wall:
        local = at.astimezone(self._zone)
        return local.minute, local.hour, local.day, local.month, local.isoweekday() % 7

    def all(self, expression: str) -> list[datetime]:
        """Every minute of the span that matches, in order."""
        if expression not in self._found:
            matches = Expression(expression).matches
            pairs = zip(self._minutes, self._walls, strict=True)
            self._found[expression] = [at for at, wall in pairs if matches(wall)]
        return self._found[expression]

    def first(self, expression: str, after: datetime, until: datetime) -> datetime | None:
        """The first matching minute that began after `after` and not after `until`."""
        found = self.all(expression)
        place = bisect_right(found, after)
        return found[place] if place < len(found) and found[place] <= until else None

    def last(self, expression: str, after: datetime, until: datetime) -> datetime | None:
        """The last matching minute that began after `after` and not after `until`."""
        found = self.all(expression)
        place = bisect_right(found, until) - 1
        return found[place] if place >= 0 and found[place] > after else None

    def count(self, expression: str, after: datetime, until: datetime) -> int:
        found = self.all(expression)
        return max(0, bisect_right(found, until) - bisect_right(found, after))

    def clock_changes(self) -> int:
        """How often the clock on the wall was changed in the span."""
        offsets = [at.astimezone(self._zone).utcoffset() for at in self._minutes[::15]]
        return sum(1 for one, other in pairwise(offsets) if one != other)
