"""Free capacity: which due runs still fit into their pools and their jobs' limits, while a claim takes some.

The rows of pools and jobs are locked in key order, and the runs in them are counted. A claim waits for none of these
locks: otherwise a node that stopped in the middle of a claim would stop all others. Runs behind a row that another node
holds are skipped, and looked at again soon.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from horae.store.catalog.unit_of_work import CatalogRunRow, UnitOfWork
from horae.store.driver import Row

AGAIN = 50
"""Milliseconds after which a claim looks again at owners, pools and jobs whose row another node held."""
PAGE = 100
"""How many candidates are read at least, once one was skipped. Until then no more are read than are wanted, because
they are locked and other nodes skip locked ones."""


class FreeCapacity:
    """The free capacity during one claim. Each run that is taken uses some. Until `open`, no run with a limit fits."""

    def __init__(self, work: UnitOfWork) -> None:
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
        """When skipped runs may be looked at again, in milliseconds; None where there is no such moment."""

    async def open(self) -> None:
        rows = self._work.transaction.rows
        self._limited = True
        self._pools = {row[0]: (row[1], bool(row[2])) for row in await rows("lock_pools")}
        self._held = {row[0] for row in await rows("lock_limited_jobs")}
        self._running.update({row[0]: row[1] for row in await rows("running_in_pools")})
        self._full_pools = {
            name for name, (limit, is_held) in self._pools.items() if name and is_held and self._running[name] >= limit
        }

    async def look(self, candidates: Sequence[CatalogRunRow]) -> None:
        """Reads the definitions and counts of these candidates. Call it before one of them is taken."""
        await self._work.cache.load(self._work.transaction, [(run.job_uuid, run.version) for run in candidates])
        unknown = sorted({run.job_uuid for run in candidates} - self._counted) if self._limited else []
        if unknown:
            rows = await self._work.transaction.rows("running_in_jobs", jobs=unknown)
            self._of_job.update({row[0]: row[1] for row in rows})
            self._counted.update(unknown)

    def takes(self, run: CatalogRunRow) -> bool:
        """Whether the run fits. If so it is counted; if not, `passed_over` then excludes others like it."""
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
            # Another claim counts there just now, or its node stopped in the middle of it.
            self.wake(self._work.now + AGAIN)
        return False

    def wake(self, at: int) -> None:
        self.wakes_at = at if self.wakes_at is None else min(self.wakes_at, at)

    def passed_over(self) -> dict[str, str | None]:
        """The pools and versions that the next candidates must not have, as statement parameters."""
        versions = self._full | self._work.cache.faulty.keys()
        return {
            "full_pools": json.dumps(sorted(self._full_pools)) if self._full_pools else None,
            "passed_over": json.dumps(sorted(versions)) if versions else None,
        }


class Candidates:
    """The due runs that one statement selects, read page by page, the oldest first. Those that fit are taken."""

    def __init__(self, work: UnitOfWork, room: FreeCapacity, handlers: str | None, name: str, **given: str) -> None:
        self._work = work
        self._room = room
        self._name = name
        self._given = {**given, "handlers": handlers}
        self._after, self._last = -(2**62), 0
        self._rows: deque[CatalogRunRow] = deque()
        self._least = 1

    async def take(self, most: int) -> list[CatalogRunRow]:
        """Returns up to `most` runs that fit: fewer only where there are no more."""
        taken: list[CatalogRunRow] = []
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
            self._rows.extend(CatalogRunRow._make(row[:-1]) for row in rows)
            await self._room.look(self._rows)
        return bool(rows)
