"""The rhythm of a schedule: how close two of its slots lie."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise

from horae.core.schedule import Schedule

_LOOKED_AT = 200
_SECOND = timedelta(seconds=1)


def shortest_gap(schedule: Schedule | None, start: datetime) -> timedelta | None:
    """The shortest time between two of its next slots, from `start` on; None where there are no two."""
    if schedule is None:
        return None
    slots = islice(_slots(schedule.anchored(start), start - _SECOND), _LOOKED_AT)
    return min((after - before for before, after in pairwise(slots)), default=None)


def _slots(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    found = schedule.next(after)
    while found is not None:
        yield found
        found = schedule.next(found)
