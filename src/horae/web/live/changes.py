"""Changes and the viewers to notify: each viewer has one pending change, into which further ones are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from horae.core.access import Principal, Privilege, holds
from horae.web.site import Visit

MOST_NAMES = 200
"""How many jobs, and how many runs, one change names. Beyond that `more` is set."""


def event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


@dataclass(slots=True)
class PendingChange:
    """What changed: jobs, runs with their jobs, and with `more` also something that is not named."""

    jobs: set[str] = field(default_factory=set)
    runs: dict[str, str] = field(default_factory=dict)
    more: bool = False

    def __bool__(self) -> bool:
        return self.more or bool(self.jobs) or bool(self.runs)

    def add(self, job: str | None, run_id: str | None) -> None:
        if job is not None:
            if len(self.jobs) < MOST_NAMES:
                self.jobs.add(job)
            elif job not in self.jobs:
                self.more = True
        if run_id is not None:
            if len(self.runs) < MOST_NAMES:
                self.runs[run_id] = job or ""
            elif run_id not in self.runs:
                self.more = True
        if job is None and run_id is None:
            self.more = True

    def merge(self, other: PendingChange, visible: Callable[[str], bool] | None = None) -> None:
        for job in other.jobs:
            if visible is None or visible(job):
                self.add(job, None)
        for run_id, job in other.runs.items():
            if visible is None or visible(job):
                self.add(job or None, run_id)
        self.more = self.more or other.more

    def told(self) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # With `more`, a viewer reloads everything, so an incomplete list of runs is of no use.
        runs = [] if self.more else sorted(self.runs)
        return event("change", {"at": at, "jobs": sorted(self.jobs), "runs": runs, "more": self.more})


class Viewer:
    """A live viewer, with what is still to be sent to them."""

    def __init__(self, visit: Visit, *, overview: bool) -> None:
        self.visit = visit
        self.wants_overview = overview
        self.change = PendingChange()
        self.told: bytes | None = None
        self.change_told = self.change
        """`told` is the pending change if it is already encoded, and this is that change."""
        self.overview: bytes | None = None
        self.overview_at = float("-inf")
        self.is_over = False
        self._woken = asyncio.Event()

    @property
    def who(self) -> Principal:
        return self.visit.who

    @property
    def sees_all(self) -> bool:
        return holds(self.who, Privilege.VIEW_JOB_HISTORY)

    def add(self, change: PendingChange, visible: Callable[[str], bool] | None) -> None:
        """Merges a further change into the pending one. `visible` says which jobs the viewer may see; None: all."""
        if self.told is not None:
            self.change.merge(self.change_told)
            self.told = None
        self.change.merge(change, visible)

    def wake(self) -> None:
        self._woken.set()

    async def next(self, timeout: float) -> bytes:
        """Waits for something to send and returns it as events; empty after `timeout` seconds without any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()
        parts = []
        if self.told is not None:
            parts.append(self.told)
            self.told = None
        elif self.change:
            told, self.change = self.change, PendingChange()
            parts.append(told.told())
        if self.overview is not None:
            parts.append(self.overview)
            self.overview = None
        return b"".join(parts)
