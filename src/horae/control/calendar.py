"""A year of a schedule, day by day on its own clocks: what a heat map is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from horae.core.decision import decide
from horae.core.instant import instant, seconds_of
from horae.core.krontab import KrontabJob
from horae.core.schedule import Schedule
from horae.core.zone import zone
from horae.errors import InvalidInput

_DAY = 86_400


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
    if not 2 <= year <= 9998:
        raise InvalidInput(f"Invalid year {year}: must lie between 2 and 9998")
    clocks = zone(schedule.timezone)
    first, last = date(year, 1, 1), date(year, 12, 31)
    # Two days on either side cover every offset; days outside the year are dropped below.
    begin = datetime(year, 1, 1, tzinfo=UTC) - timedelta(days=2)
    end = datetime(year, 12, 31, tzinfo=UTC) + timedelta(days=2)
    epoch = date(1970, 1, 1)
    found: Counter[int] = Counter()
    # An interval without a start counts from the beginning of the year shown.
    slots = schedule.anchored(datetime(year, 1, 1, tzinfo=UTC)).between(begin, end)
    for at in slots if job is None else _starts(job, slots):
        second = seconds_of(at)
        found[(second + clocks.offset_at(second)) // _DAY] += 1
    days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
    changes = [
        epoch + timedelta(days=(change.at + change.before) // _DAY)
        for change in clocks.transitions(seconds_of(begin), seconds_of(end))
    ]
    return Year(
        year,
        clocks.key,
        tuple((day, found[(day - epoch).days]) for day in days),
        tuple(day for day in changes if day.year == year),
    )


def _starts(job: KrontabJob, slots: Iterator[datetime]) -> Iterator[datetime]:
    """When the job's slots start: only decided one by one where constraints may leave some out."""
    if not job.window.constraints.rules():
        yield from slots
        return
    for slot in slots:
        chosen = decide(job.window.request(job.name, slot, job.schedule.tz)).chosen_time
        if chosen is not None:
            yield chosen


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
