"""The seconds of a window that its constraints allow, as stretches, computed by day and minute and not one by one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date
from functools import reduce

from horae.core.time.zone import Zone
from horae.core.window.constraint import ConstraintClause, Rules, split_wall_time

Stretch = tuple[int, int]
"""First and last second, both included."""
_DAY = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_EVERY_MINUTE = (1 << 1440) - 1
_HOUR_OF_MINUTES = (1 << 60) - 1
_OF_THE_CLOCK = ("hours", "between")


def allowed_stretches(rules: Rules, clocks: Zone, first: int, last: int) -> tuple[Stretch, ...]:
    """The UTC seconds from `first` to `last` that `rules` allow in the wall time of `clocks`.

    The stretches are in order, and none touches the next. A second whose wall time lies outside the years 1 to 9999 is
    not allowed.
    """
    found: list[Stretch] = []
    days = _Days(rules)
    for begin, end, offset in _same_offset(clocks, first, last):
        for day in range((begin + offset) // _DAY, (end + offset) // _DAY + 1):
            midnight = day * _DAY - offset
            for opens, closes in days.stretches(day):
                low, high = max(midnight + opens, begin), min(midnight + closes, end)
                if low > high:
                    continue
                if found and found[-1][1] + 1 == low:
                    low = found.pop()[0]
                found.append((low, high))
    return tuple(found)


def seconds_in(stretches: Sequence[Stretch]) -> int:
    return sum(last - first + 1 for first, last in stretches)


def second_at(stretches: Sequence[Stretch], share: float) -> int:
    """The second at position `share`, in [0, 1), among all seconds of `stretches`, which must not be empty."""
    left = min(int(share * seconds_in(stretches)), seconds_in(stretches) - 1)
    for first, last in stretches:
        if left <= last - first:
            return first + left
        left -= last - first + 1
    raise AssertionError("stretches have fewer seconds than they have")


def _same_offset(clocks: Zone, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a window without a clock change, as (first second, last second, offset)."""
    begin, offset = first, clocks.offset_at(first)
    for change in clocks.transitions(first, last):
        yield begin, change.at - 1, offset
        begin, offset = change.at, change.after
    yield begin, last, offset


class _Days:
    """The allowed stretches of each day, in seconds from midnight, cached by which clauses hold on the day."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._dated = tuple(
            {
                clause
                for clauses in (*rules.only, *rules.avoid)
                for clause in clauses
                if clause.kind not in _OF_THE_CLOCK
            }
        )
        self._known: dict[tuple[bool, ...], tuple[Stretch, ...]] = {}
        self._dates = {clause: _apart(clause.ranges) for clause in self._dated if clause.kind == "dates"}

    def stretches(self, day: int) -> tuple[Stretch, ...]:
        if not 1 <= day + _EPOCH_DAY <= _LAST_DAY:
            return ()
        at = split_wall_time(day * _DAY)
        holds = tuple(
            _covers(self._dates[clause], at.dates) if clause in self._dates else clause.matches(at)
            for clause in self._dated
        )
        found = self._known.get(holds)
        if found is None:
            found = self._known[holds] = tuple(_runs(self._minutes(dict(zip(self._dated, holds, strict=True)))))
        return found

    def _minutes(self, holds: dict[ConstraintClause, bool]) -> int:
        """The allowed minutes of a day as a bit mask. `holds` says which dated clauses hold on that day."""

        def minutes(clause: ConstraintClause) -> int:
            if clause in holds:
                return _EVERY_MINUTE if holds[clause] else 0
            return _minutes_of(clause)

        def any_of(sets: tuple[tuple[ConstraintClause, ...], ...]) -> int:
            """The minutes that match every clause of at least one set."""
            found = 0
            for clauses in sets:
                found |= reduce(int.__and__, map(minutes, clauses))
            return found

        allowed = any_of(self._rules.only) if self._rules.only else _EVERY_MINUTE
        return allowed & ~any_of(self._rules.avoid)


def _apart(ranges: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """The ranges in order, merged where they touch or overlap, for binary search."""
    found: list[Stretch] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _covers(ranges: Sequence[Stretch], value: int) -> bool:
    index = bisect_right(ranges, value, key=lambda each: each[0]) - 1
    return index >= 0 and value <= ranges[index][1]


def _minutes_of(clause: ConstraintClause) -> int:
    found = 0
    if clause.kind == "hours":
        for hour in range(24):
            if clause.mask >> hour & 1:
                found |= _HOUR_OF_MINUTES << 60 * hour
        return found
    for first, last in clause.ranges:
        until, since = (1 << last + 1) - 1, _EVERY_MINUTE >> first << first
        # A range whose end comes before its start wraps around midnight.
        found |= until & since if first <= last else until | since
    return found & _EVERY_MINUTE


def _runs(minutes: int) -> Iterator[Stretch]:
    """The sequences of set bits, as stretches in seconds from midnight."""
    start = 0
    while minutes:
        zeros = (minutes & -minutes).bit_length() - 1
        minutes >>= zeros
        ones = (minutes + 1 & ~minutes).bit_length() - 1
        minutes >>= ones
        first = start + zeros
        start = first + ones
        yield first * 60, start * 60 - 1
