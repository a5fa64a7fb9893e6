"""What changed, and who is still to be told: one change that grows while it waits, however slow somebody reads."""

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
"""Jobs, and runs, that one change names; what goes beyond is `more`."""


def event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


@dataclass(slots=True)
class Change:
    """What has changed: runs with the jobs they are of, jobs, and whether there was more."""

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

    def merge(self, other: Change, visible: Callable[[str], bool] | None = None) -> None:
        for job in other.jobs:
            if visible is None or visible(job):
                self.add(job, None)
        for run_id, job in other.runs.items():
            if visible is None or visible(job):
                self.add(job or None, run_id)
        self.more = self.more or other.more

    def told(self) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # Where there is more than is named, whoever listens looks at everything again: some of the runs say nothing.
        runs = [] if self.more else sorted(self.runs)
        return event("change", {"at": at, "jobs": sorted(self.jobs), "runs": runs, "more": self.more})


class Viewer:
    """One who watches, with what is still to be sent to them."""

    def __init__(self, visit: Visit, *, overview: bool) -> None:
        self.visit = visit
        self.wants_overview = overview
        self.change = Change()
        self.told: bytes | None = None
        self.change_told = self.change
        """What is to be sent in words already, and the change that they tell of."""
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

    def add(self, change: Change, visible: Callable[[str], bool] | None) -> None:
        """Puts a further change together with what is still to be sent."""
        if self.told is not None:
            self.change.merge(self.change_told)
            self.told = None
        self.change.merge(change, visible)

    def wake(self) -> None:
        self._woken.set()

    async def next(self, timeout: float) -> bytes:
        """What is to be sent; empty after `timeout` seconds without anything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()
        parts = []
        if self.told is not None:
            parts.append(self.told)
            self.told = None
        elif self.change:
            told, self.change = self.change, Change()
            parts.append(told.told())
        if self.overview is not None:
            parts.append(self.overview)
            self.overview = None
        return b"".join(parts)
