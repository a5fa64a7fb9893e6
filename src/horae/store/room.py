"""Room: which of the due runs still fit into their pools and within their jobs' limits, while a claim takes some.

Rows of pools and jobs are locked in key order, and what runs in them is counted. None is waited for: a node that
stopped in the middle of a claim would stop all others. Runs behind such a row are passed over, and looked at again
soon.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from horae.store.driver import Row
from horae.store.work import RunRow, Work

AGAIN = 50
"""Milliseconds after which owners, pools and jobs are looked at again whose row another node held."""
PAGE = 100
"""Candidates that are read at least, once some were passed over. Up to there no more than are wanted: they are locked,
and another node passes them over."""


class Room:
    """What there is; a run that is taken takes its place. Unless it is opened, no run that is limited has room."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._limited = False
        self._pools: Mapping[str | None, tuple[int, bool]] = {}
        self._held: set[str] = set()
        self._running: Counter[str | None] = Counter()
        self._of_job: Counter[str] = Counter()
        self._counted: set[str] = set()
        self._full_pools: set[str] = set()
        self._full: set[tuple[str, int]] = set()
        self.wakes_at: int | None = None
        """When runs may be looked at again that were passed over for what another node held; None where none were."""

    async def open(self) -> None:
        rows = self._work.transaction.rows
        self._limited = True
        self._pools = {row[0]: (row[1], bool(row[2])) for row in await rows("lock_pools")}
        self._held = {row[0] for row in await rows("lock_limited_jobs")}
        self._running.update({row[0]: row[1] for row in await rows("running_in_pools")})
        self._full_pools = {
            name for name, (limit, is_held) in self._pools.items() if name and is_held and self._running[name] >= limit
        }

    async def look(self, candidates: Sequence[RunRow]) -> None:
        """Reads what is to be known of these before one is taken."""
        await self._work.cache.load(self._work.transaction, [(run.job_uuid, run.version) for run in candidates])
        unknown = sorted({run.job_uuid for run in candidates} - self._counted) if self._limited else []
        if unknown:
            rows = await self._work.transaction.rows("running_in_jobs", jobs=unknown)
            self._of_job.update({row[0]: row[1] for row in rows})
            self._counted.update(unknown)

    def takes(self, run: RunRow) -> bool:
        """Whether it fits, and then it counts. Where it does not, others like it need not be read any more."""
        version = (run.job_uuid, run.version)
        if version in self._work.cache.faulty:
            return False
        settings = self._work.cache[version].settings
        pool, most = settings.pool, settings.max_concurrent
        limit, is_held = self._pools.get(pool, (None, self._limited or pool is None))
        if pool is not None and (not is_held or (limit is not None and self._running[pool] >= limit)):
            self._full_pools.add(pool)
        elif most is not None and (run.job_uuid not in self._held or self._of_job[run.job_uuid] >= most):
            self._full.add(version)
        else:
            self._of_job[run.job_uuid] += 1
            self._running[pool] += 1
            return True
        if not is_held or (most is not None and run.job_uuid not in self._held):
            # Another claim counts there just now, or stopped in the middle of it.
            self.wake(self._work.now + AGAIN)
        return False

    def wake(self, at: int) -> None:
        self.wakes_at = at if self.wakes_at is None else min(self.wakes_at, at)

    def passed_over(self) -> dict[str, str | None]:
        """What the next candidates must not be of, as statements take it."""
        versions = self._full | self._work.cache.faulty.keys()
        return {
            "full_pools": json.dumps(sorted(self._full_pools)) if self._full_pools else None,
            "passed_over": json.dumps(sorted(versions)) if versions else None,
        }


class Candidates:
    """Due runs that one statement gives, the oldest first, page by page; those that have room are taken."""

    def __init__(self, work: Work, room: Room, handlers: str | None, name: str, **given: str) -> None:
        self._work = work
        self._room = room
        self._name = name
        self._given = {**given, "handlers": handlers}
        self._after, self._last = -(2**62), 0
        self._rows: deque[RunRow] = deque()
        self._least = 1

    async def take(self, most: int) -> list[RunRow]:
        """Fewer than `most` only where there are no more."""
        taken: list[RunRow] = []
        while len(taken) < most and (self._rows or await self._read(most - len(taken))):
            run = self._rows.popleft()
            if self._room.takes(run):
                taken.append(run)
            else:
                self._least = PAGE
        return taken

    async def _read(self, wanted: int) -> bool:
        rows: list[Row] = await self._work.transaction.rows(
            self._name,
            limit=max(wanted, self._least),
            after=self._after,
            last=self._last,
            **self._room.passed_over(),
            **self._given,
        )
        if rows:
            self._after, self._last = rows[-1][-1], rows[-1][0]
            self._rows.extend(RunRow._make(row[:-1]) for row in rows)
            await self._room.look(self._rows)
        return bool(rows)
