"""A pause of a job, its form in a job file, and the rows of the slots that it skips.

The first slot of a pause has a row of its own. The second begins a span, one row that grows with every later slot until
the pause is over. So the rows are the same however often the job was examined meanwhile.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from horae.core.run.backlog import Backlog
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import rfc3339

PAUSED = "paused"
"""The reason of these rows."""


class Pause(NamedTuple):
    """A pause with its end and its note. `until` None: it lasts until an operator resumes the job."""

    until: datetime | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The keys of the pause in a job's table."""
        said = {"paused_until": None if self.until is None else rfc3339(self.until), "pause_note": self.note}
        return {name: value for name, value in said.items() if value is not None}


def pause_of(state: JobState, until: datetime | None, note: str | None) -> Pause | None:
    """The pause of a job in that state; None where the job is not paused, or its pause has neither an end nor a
    note."""
    return Pause(until, note) if state is JobState.PAUSED and (until is not None or note) else None


class PauseRow(NamedTuple):
    """One row of a pause. A span has `after`: it stands for the slots with `after < t <= until`."""

    slot: datetime
    """The first slot that the row stands for. It identifies the row, so it never changes."""
    until: datetime
    after: datetime | None = None
    length: int = 1
    """How many slots the row stands for."""


def rows_of_pause(slots: Backlog, newest: PauseRow | None) -> tuple[PauseRow | None, tuple[PauseRow, ...]]:
    """What to write for the slots of a pause: `newest` as it has grown, or None, and the rows to create.

    `newest` is the newest row of the pause so far. A row that does not end where the slots begin belongs to another
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
