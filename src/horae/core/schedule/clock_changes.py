"""Effects of clock changes on schedules: wall times that are skipped, shifted or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.schedule.bounds import last_second, second_before_start
from horae.core.schedule.interval import Iso8601
from horae.core.schedule.schedules import Cron, Schedule, Union
from horae.core.time.instant import EPOCH, instant, rfc3339, seconds_of
from horae.core.time.zone import Transition


@dataclass(frozen=True, slots=True)
class DaylightEffect:
    """One clock change that affects a schedule.

    `kind` is "skipped" or "shifted" for a gap, "repeated" (fires twice) or "once" (fires the first time) for a fold.
    `wall` is the first wall time affected, `count` how many are affected, `at` the instant of the clock change.
    """

    kind: str
    wall: str
    count: int
    at: datetime
    timezone: str

    def __str__(self) -> str:
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        said = {
            "skipped": "clocks go forward, skipped",
            "shifted": f"clocks go forward, fires at {rfc3339(self.at)}",
            "repeated": "clocks go back, fires both times",
            "once": "clocks go back, fires the first time only",
        }
        return f"{self.wall}{more} in {self.timezone}: {said[self.kind]}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "wall": self.wall, "count": self.count, "at": rfc3339(self.at)}


def daylight_effects(schedule: Schedule, start: datetime, end: datetime) -> Iterator[DaylightEffect]:
    """The clock changes in (start, end] that skip, shift or repeat a wall time of `schedule`, in order.

    Only crons, ISO 8601 intervals and unions of them can have any.
    """
    if isinstance(schedule, Union):
        found = (effect for part in schedule.parts for effect in daylight_effects(part, start, end))
        yield from sorted(found, key=lambda effect: (effect.at, effect.wall))
    elif isinstance(schedule, Cron):
        yield from cron_effects(schedule, start, end)
    elif isinstance(schedule, Iso8601):
        for change in schedule.zone.transitions(seconds_of(start, "start"), seconds_of(end, "end")):
            wall = schedule.swallowed_by(change)
            if wall is not None:
                yield DaylightEffect("skipped", _wall_text(wall), 1, instant(change.at), schedule.tz)


def cron_effects(cron: Cron, start: datetime, end: datetime) -> Iterator[DaylightEffect]:
    """The clock changes in (start, end] that skip, shift or repeat a wall time of `cron`, in order."""
    first = max(seconds_of(start, "start"), second_before_start(cron.start))
    last = min(seconds_of(end, "end"), last_second(cron.end))
    for change in cron.zone.transitions(first, last):
        walls = list(_concerned(cron, change))
        if not walls:
            continue
        if change.is_gap:
            kind = "skipped" if cron.gap == "skip" else "shifted"
        else:
            kind = "once" if cron.fires_once else "repeated"
        yield DaylightEffect(kind, _wall_text(walls[0]), len(walls), instant(change.at), cron.tz)


def _wall_text(wall: int) -> str:
    return (EPOCH + timedelta(0, wall)).isoformat(sep=" ")[:16]


def _concerned(cron: Cron, change: Transition) -> Iterator[int]:
    """The matching wall seconds inside the gap or the fold, in order."""
    first, stop = sorted((change.at + change.before, change.at + change.after))
    minute = cron.table.next_minute((first - 1) // 60)
    while minute is not None and minute * 60 < stop:
        yield minute * 60
        minute = cron.table.next_minute(minute)
