"""The shortest time between two slots of a schedule, and the run duration that is assumed from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise

from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Schedule

ASSUMED_DURATION_TEXT = "or half the time between two slots where that is less"
"""Text that describes an assumed duration."""
_LOOKED_AT = 200
_SECOND = timedelta(seconds=1)


def shortest_gap(schedule: Schedule | None, start: datetime) -> timedelta | None:
    """The shortest time between two of the next 200 slots from `start` on. None where there are fewer than two."""
    if schedule is None:
        return None
    if isinstance(schedule, Every) and schedule.end is None:
        return timedelta(seconds=schedule.seconds)
    slots = islice(_slots(schedule.anchored(start), start - _SECOND), _LOOKED_AT)
    return min((after - before for before, after in pairwise(slots)), default=None)


def assumed_seconds(schedule: Schedule | None, start: datetime, otherwise: float) -> float:
    """The seconds to assume for runs of unknown duration: `otherwise`, or half the shortest time between two slots
    where that is less."""
    gap = shortest_gap(schedule, start)
    return otherwise if gap is None else min(otherwise, gap.total_seconds() / 2)


def _slots(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    found = schedule.next(after)
    while found is not None:
        yield found
        found = schedule.next(found)
