"""What clock changes do to a cron schedule: the wall times that are skipped, moved or shown twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.bounds import first_second, last_second
from horae.core.instant import EPOCH, instant, rfc3339, seconds_of
from horae.core.schedule import Cron
from horae.core.zone import Transition


@dataclass(frozen=True, slots=True)
class DaylightEffect:
    """One clock change that touches the schedule.

    `kind` is "skipped" or "shifted" for a gap, "repeated" (fires twice) or "once" (fires at the first) for a fold;
    `wall` is the first wall time concerned, `count` how many there are, `at` the instant the clocks change.
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


def effects(cron: Cron, start: datetime, end: datetime) -> Iterator[DaylightEffect]:
    """The clock changes in (start, end] that skip, move or repeat one of the schedule's wall times."""
    first = max(seconds_of(start, "start"), first_second(cron.start))
    last = min(seconds_of(end, "end"), last_second(cron.end))
    for change in cron.zone.transitions(first, last):
        walls = list(_concerned(cron, change))
        if not walls:
            continue
        if change.is_gap:
            kind = "skipped" if cron.gap == "skip" else "shifted"
        else:
            kind = "once" if cron.fires_once else "repeated"
        text = (EPOCH + timedelta(0, walls[0])).isoformat(sep=" ")[:16]
        yield DaylightEffect(kind, text, len(walls), instant(change.at), cron.tz)


def _concerned(cron: Cron, change: Transition) -> Iterator[int]:
    """The matching wall seconds inside the gap or the fold, in order."""
    first, stop = sorted((change.at + change.before, change.at + change.after))
    minute = cron.table.next_minute((first - 1) // 60)
    while minute is not None and minute * 60 < stop:
        yield minute * 60
        minute = cron.table.next_minute(minute)
