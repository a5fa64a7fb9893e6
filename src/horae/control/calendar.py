"""A year of a schedule, day by day on its own clocks: what a heat map is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from math import gcd
from typing import Any

from horae.control.effort import Effort
from horae.core.decision import decide
from horae.core.instant import instant, seconds_of
from horae.core.interval import Every, Iso8601
from horae.core.krontab import KrontabJob
from horae.core.schedule import Cron, Schedule
from horae.core.zone import Zone, zone
from horae.errors import InvalidInput

MOST_WALKED = 20_000
"""Slots that are looked at one by one, where a schedule cannot say how many it has."""
MOST_DRAWN = 30_000
"""Candidates that are drawn for slots with constraints; then counting ends too."""
_DAY = 86_400
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Year:
    """Occurrences by day; `changes` are the days on which the zone's clocks change."""

    year: int
    timezone: str
    counts: tuple[tuple[date, int], ...]
    changes: tuple[date, ...]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def most(self) -> int:
        return max((count for _, count in self.counts), default=0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "year": self.year,
            "timezone": self.timezone,
            "total": self.total,
            "days": {day.isoformat(): count for day, count in self.counts if count},
            "clock_changes": [day.isoformat() for day in self.changes],
        }


def year_of(schedule: Schedule, year: int, job: KrontabJob | None = None) -> Year:
    """How often the schedule fires on each day of `year`; with `job`, how often it really starts there."""
    clocks = _clocks(schedule, year)
    # An interval without a start counts from the beginning of the year shown.
    anchored = schedule.anchored(datetime(year, 1, 1, tzinfo=UTC))
    counted = count_days(anchored, year, job=job, most=None)
    return Year(
        year,
        clocks.key,
        tuple((day, counted.days[day]) for day in days_of(year)),
        clock_changes(clocks, year),
    )


def days_of(year: int) -> list[date]:
    first = date(year, 1, 1)
    return [first + timedelta(days=offset) for offset in range((date(year, 12, 31) - first).days + 1)]


def clock_changes(clocks: Zone, year: int) -> tuple[date, ...]:
    """The days of `year` on which the clocks change."""
    begin, end = _around(year)
    changes = (_EPOCH + timedelta(days=(at + before) // _DAY) for at, before in _changes(clocks, begin, end))
    return tuple(day for day in changes if day.year == year)


@dataclass(frozen=True, slots=True)
class Counted:
    """Slots by day on the schedule's own clocks. `until`: they were counted only that far."""

    days: Counter[date]
    until: datetime | None = None


def count_days(
    schedule: Schedule,
    year: int,
    *,
    after: datetime | None = None,
    job: KrontabJob | None = None,
    most: int | None = MOST_WALKED,
    stopped: Callable[[], bool] = bool,
) -> Counted:
    """The slots of `year` after a moment, day by day. Crons and even intervals know how many without walking them; of
    all others at most `most` are looked at, and none once `stopped` says so. With `job`, days are those on which it
    really starts."""
    clocks = _clocks(schedule, year)
    begin, end = _around(year)
    if after is not None:
        begin = max(begin, seconds_of(after))
    is_choosy = job is not None and bool(job.window.constraints.rules())
    if is_choosy or not _knows_its_counts(schedule):
        slots = schedule.between(instant(begin), instant(end))
        effort = None if most is None else Effort(most, MOST_DRAWN, stopped)
        return _walked(slots, job if is_choosy else None, clocks, year, effort)
    found: Counter[date] = Counter()
    for first, last, day in _stretches(clocks, begin + 1, end):
        if day.year == year:
            count = schedule.count(instant(first - 1), instant(last - 1))
            if count:
                found[day] += count
    return Counted(found)


def _walked(
    slots: Iterator[datetime], job: KrontabJob | None, clocks: Zone, year: int, effort: Effort | None
) -> Counted:
    """Counted one by one. The slots of a `job` whose constraints may leave some out are decided first, which takes
    longest where nothing will do."""
    found: Counter[date] = Counter()
    for slot in slots:
        if effort is not None and effort.is_spent:
            return Counted(found, slot)
        at: datetime | None = slot
        decision = None if job is None else decide(job.window.request(job.name, slot, job.schedule.tz))
        if decision is not None:
            at = decision.chosen_time
        if effort is not None:
            effort.spend(None if job is None else job.window, decision)
        if at is None:
            continue
        day = local_day(clocks, at)
        if day.year == year:
            found[day] += 1
    return Counted(found)


def _knows_its_counts(schedule: Schedule) -> bool:
    if isinstance(schedule, Iso8601):
        return not (schedule.months or schedule.days)
    return isinstance(schedule, Cron | Every)


def _stretches(clocks: Zone, begin: int, end: int) -> Iterator[tuple[int, int, date]]:
    """From `begin` to `end`, cut where the clocks show midnight and where they change: first, behind the last, day. A
    day may come twice, where the clocks go back over midnight."""
    changes = [at for at, _ in _changes(clocks, begin, end)]
    for start, stop in pairwise([begin, *changes, end]):
        offset = clocks.offset_at(start)
        second = start
        while second < stop:
            number = (second + offset) // _DAY
            behind = min((number + 1) * _DAY - offset, stop)
            yield second, behind, _EPOCH + timedelta(days=number)
            second = behind


def step_of(clocks: Zone, year: int) -> timedelta:
    """The longest step, up to an hour, such that steps of whole UTC time never straddle midnight on these clocks."""
    begin, end = _around(year)
    changes = clocks.transitions(begin, end)
    offsets = {clocks.offset_at(begin), *(each.after for each in changes)}
    return timedelta(seconds=max(gcd(3600, *offsets), 60))


def local_day(clocks: Zone, at: datetime) -> date:
    second = seconds_of(at)
    return _EPOCH + timedelta(days=(second + clocks.offset_at(second)) // _DAY)


def bounds_of(year: int) -> tuple[datetime, datetime]:
    """Whole UTC days that hold all of `year`, on whatever clocks."""
    begin, end = _around(year)
    return instant(begin), instant(end)


def _changes(clocks: Zone, begin: int, end: int) -> list[tuple[int, int]]:
    return [(change.at, change.before) for change in clocks.transitions(begin, end)]


def _around(year: int) -> tuple[int, int]:
    # Two days on either side cover every offset; days outside the year are dropped by whoever counts.
    begin = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=2)
    return seconds_of(begin), seconds_of(datetime(year, 12, 31, tzinfo=UTC) + timedelta(days=3))


def _clocks(schedule: Schedule, year: int) -> Zone:
    if not 2 <= year <= 9998:
        raise InvalidInput(f"Invalid year {year}: must lie between 2 and 9998")
    return zone(schedule.timezone)


def this_year(now: datetime, schedule: Schedule) -> int:
    """The year the schedule's own clocks show at `now`."""
    return zone(schedule.timezone).wall(instant(seconds_of(now))).year


def next_clock_change(timezone: str, after: datetime, *, forward: bool) -> datetime:
    """When the clocks of `timezone` next go forward, or back; `after` itself where they never do again."""
    second = seconds_of(after)
    for change in zone(timezone).transitions(second, second + 2 * 366 * _DAY):
        if change.is_gap == forward:
            return instant(change.at)
    return after
