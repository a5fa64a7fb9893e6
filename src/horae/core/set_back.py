"""A clock that was ahead and came back: jobs whose cursor lies in the future, because their slots were run early.

A slot is never run a second time: its identity is its nominal time. So nothing of such a job starts until the clock
reaches the cursor; then it goes on by itself, and owes nothing for the time in between.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from horae.core.instant import rfc3339

TOLERATED_MS = 2000
"""Milliseconds that a clock may be put right by without a word."""
HINT = (
    "The slots until then ran early and are not run again; the job goes on by itself at that time. Trigger it if it is"
    " to run before. Let the machine with the store follow time servers (NTP) that do not step."
)


class EarlyJob(NamedTuple):
    """`cursor`: the last slot that was decided. `planned_at`: when that was, by the clock as it was then."""

    name: str
    cursor: datetime
    planned_at: datetime

    def __str__(self) -> str:
        return (
            f"its slots up to {rfc3339(self.cursor)} were decided when the store's clock said"
            f" {rfc3339(self.planned_at)}; the clock was set back since, and nothing of it starts until it is past"
            f" {rfc3339(self.cursor)}"
        )


class SetBack(NamedTuple):
    """The clock as it stands, and the jobs that are ahead of it: how many, and some of them, the furthest first."""

    now: datetime
    ahead: int = 0
    jobs: tuple[EarlyJob, ...] = ()

    @property
    def until(self) -> datetime | None:
        """When the last of them goes on."""
        return self.jobs[0].cursor if self.jobs else None
