"""Clocks that were ahead and were set back: jobs whose cursor lies in the future, because their slots ran early.

A slot never runs twice, because its run id is derived from its scheduled time. So no slot of such a job starts until
the clock reaches the cursor. Then the job continues by itself, and no slot in between counts as missed.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from horae.core.time.instant import rfc3339

TOLERATED_MS = 2000
"""Milliseconds. A correction of the clock by no more is not reported."""
HINT = (
    "The slots until then ran early and are not run again; the job goes on by itself at that time. Trigger it if it is"
    " to run before. Let the machine with the store follow time servers (NTP) that do not step."
)


class EarlyJob(NamedTuple):
    """A job that is ahead of the clock.

    `cursor` is its last decided slot. `planned_at` is the time of that decision, by the clock as it was then.
    """

    name: str
    cursor: datetime
    planned_at: datetime

    def __str__(self) -> str:
        return (
            f"its slots up to {rfc3339(self.cursor)} were decided when the store's clock said"
            f" {rfc3339(self.planned_at)}; the clock was set back since, and nothing of it starts until it is past"
            f" {rfc3339(self.cursor)}"
        )


class ClockLag(NamedTuple):
    """The present time, how many jobs are ahead of it, and some of these jobs, the furthest ahead first."""

    now: datetime
    ahead: int = 0
    jobs: tuple[EarlyJob, ...] = ()

    @property
    def until(self) -> datetime | None:
        """When the last of the jobs continues; None where no job is ahead."""
        return self.jobs[0].cursor if self.jobs else None
