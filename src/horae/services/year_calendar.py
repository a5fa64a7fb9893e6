"""Occurrences of a schedule by day of a year, in the schedule's zone: the data of a heat map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from math import gcd
from typing import Any

from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Schedule
from horae.core.time.instant import instant, seconds_of
from horae.core.time.zone import Zone, zone
from horae.core.window.decision import decide
from horae.errors import InvalidInput
from horae.formats.krontab.parser import KrontabJob
from horae.services.effort import Effort

MOST_WALKED = 20_000
"""Scheduled times that are examined one by one, where a schedule cannot count them."""
MOST_DRAWN = 30_000
"""Candidates that are drawn for times with constraints. Then counting ends too."""
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
    """Counts the scheduled times on each day of `year`; with `job`, its starts."""
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
class DayCounts:
    """Scheduled times by day in the schedule's zone. `until`: they were counted only that far."""

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
) -> DayCounts:
    """Counts the scheduled times of `year` after `after`, by day. Cron schedules and even intervals are counted without
    examining each time. Of all others, at most `most` are examined (None: all), and none once `stopped` returns True.
    With `job`, the days are those of its starts."""
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
    return DayCounts(found)


def _walked(
    slots: Iterator[datetime], job: KrontabJob | None, clocks: Zone, year: int, effort: Effort | None
) -> DayCounts:
    """Counts times one by one. The starts of a `job` with constraints are decided first, which takes longest where no
    time is allowed."""
    found: Counter[date] = Counter()
    for slot in slots:
        if effort is not None and effort.is_spent:
            return DayCounts(found, slot)
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
    return DayCounts(found)


def _knows_its_counts(schedule: Schedule) -> bool:
    if isinstance(schedule, Iso8601):
        return not (schedule.months or schedule.days)
    return isinstance(schedule, Cron | Every)


def _stretches(clocks: Zone, begin: int, end: int) -> Iterator[tuple[int, int, date]]:
    """Splits `begin` to `end` at midnight of the clocks and at their changes. Yields the first second, the second after
    the last, and the day. A day comes twice where the clocks go back over midnight."""
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
    """Returns the longest step, from a minute to an hour, such that steps counted in UTC do not straddle a midnight of
    these clocks."""
    begin, end = _around(year)
    changes = clocks.transitions(begin, end)
    offsets = {clocks.offset_at(begin), *(each.after for each in changes)}
    return timedelta(seconds=max(gcd(3600, *offsets), 60))


def local_day(clocks: Zone, at: datetime) -> date:
    second = seconds_of(at)
    return _EPOCH + timedelta(days=(second + clocks.offset_at(second)) // _DAY)


def bounds_of(year: int) -> tuple[datetime, datetime]:
    """Returns whole UTC days that contain all of `year` in any zone."""
    begin, end = _around(year)
    return instant(begin), instant(end)


def _changes(clocks: Zone, begin: int, end: int) -> list[tuple[int, int]]:
    return [(change.at, change.before) for change in clocks.transitions(begin, end)]


def _around(year: int) -> tuple[int, int]:
    # Two days on either side cover every offset. The callers leave out days of other years.
    begin = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=2)
    return seconds_of(begin), seconds_of(datetime(year, 12, 31, tzinfo=UTC) + timedelta(days=3))


def _clocks(schedule: Schedule, year: int) -> Zone:
    if not 2 <= year <= 9998:
        raise InvalidInput(f"Invalid year {year}: must lie between 2 and 9998")
    return zone(schedule.timezone)


def this_year(now: datetime, schedule: Schedule) -> int:
    """Returns the year that the schedule's own clocks show at `now`."""
    return zone(schedule.timezone).wall(instant(seconds_of(now))).year


def next_clock_change(timezone: str, after: datetime, *, forward: bool) -> datetime:
    """Returns when the clocks of `timezone` next go forward, or back, within two years; `after` itself where they do
    not."""
    second = seconds_of(after)
    for change in zone(timezone).transitions(second, second + 2 * 366 * _DAY):
        if change.is_gap == forward:
            return instant(change.at)
    return after
