"""A pause: until when it lasts, and why; what a job file says of a job whose state is PAUSED; the rows of its slots.

The first slot of a pause is a row of its own. The second begins a span, one row that grows with every later slot until
the pause is over. So the rows are the same however often the job was looked at meanwhile.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from horae.core.backlog import Backlog
from horae.core.instant import rfc3339
from horae.core.lifecycle import JobState

PAUSED = "paused"
"""The reason of the rows."""


class Pause(NamedTuple):
    """`until` None: until somebody resumes the job."""

    until: datetime | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the keys of a job's table."""
        said = {"paused_until": None if self.until is None else rfc3339(self.until), "pause_note": self.note}
        return {name: value for name, value in said.items() if value is not None}


def pause_of(state: JobState, until: datetime | None, note: str | None) -> Pause | None:
    """The pause of a job in that state, where there is more to say of it than that; None otherwise."""
    return Pause(until, note) if state is JobState.PAUSED and (until is not None or note) else None


class PauseRow(NamedTuple):
    """One row of a pause. A span has `after`: it stands for the slots with `after < t <= until`."""

    slot: datetime
    """The first slot that it stands for. The row is known by it, so it never changes."""
    until: datetime
    after: datetime | None = None
    length: int = 1
    """How many slots it stands for."""


def rows_of_pause(slots: Backlog, newest: PauseRow | None) -> tuple[PauseRow | None, tuple[PauseRow, ...]]:
    """What the slots of a pause come to: `newest` as it has grown, if it has, and the rows that are born.

    `newest` is the newest row that the pause has so far. One that does not end where the slots begin is of another
    pause.
    """
    count = len(slots)
    if not count:
        return None, ()
    (last,) = slots.last(1)
    if newest is not None and newest.until == slots.after and newest.after is not None:
        return newest._replace(until=last, length=newest.length + count), ()
    (first,) = slots.first(1)
    if newest is not None and newest.until == slots.after:
        return None, (PauseRow(first, last, newest.slot, count),)
    alone = PauseRow(first, first)
    if count == 1:
        return None, (alone,)
    return None, (alone, PauseRow(slots.first(2)[1], last, first, count - 1))
