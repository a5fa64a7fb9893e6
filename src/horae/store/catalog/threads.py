"""Markers of threads that still work although their attempt has ended: one row for each such thread.

The settlement of the run writes the marker, and the end of the thread removes it. A run with a marker counts for the
overlap policy of its job, and waits where it is to be tried again. Its node reports when the thread has ended. Where
the node is gone, so is the thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from horae.store.catalog.runs.handover import after_endings
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import ThreadKey


class ThreadRow(NamedTuple):
    """A marker, as every statement that looks for markers selects it."""

    run_no: int
    position: int
    attempt_no: int
    job_uuid: str

    @property
    def key(self) -> ThreadKey:
        return ThreadKey(self.run_no, self.position, self.attempt_no)


async def threads_of(work: UnitOfWork, node: str) -> list[ThreadRow]:
    return [ThreadRow._make(row) for row in await work.transaction.rows("threads_of_node", node=node)]


async def end_threads(work: UnitOfWork, node: str, ended: Collection[ThreadKey]) -> int:
    """Removes the markers of threads of a node that have ended. Returns how many of them had a marker."""
    return await remove(work, [thread for thread in await threads_of(work, node) if thread.key in ended])


async def keep_only(work: UnitOfWork, node: str, working: Collection[ThreadKey]) -> int:
    """Removes the markers of a node's threads except those that still work. Returns how many."""
    return await remove(work, [thread for thread in await threads_of(work, node) if thread.key not in working])


async def take_threads(work: UnitOfWork, node: str, working: Collection[ThreadKey]) -> None:
    """Marks attempts as threads of `node`: they still work there, although another node took theirs for dead and ended
    them."""
    numbers = sorted({thread.run_no for thread in working})
    await work.transaction.rows("lock_jobs_of_runs", runs=numbers)
    runs = await work.lock_runs(numbers)
    found = [(*thread, runs[thread.run_no].job_uuid, node, work.now) for thread in working if thread.run_no in runs]
    await work.transaction.many("adopt_threads", found)
    await work.transaction.rows("hold_back_runs", runs=sorted(runs))


async def end_orphans(work: UnitOfWork, limit: int) -> int:
    """Removes the markers of nodes that are gone. Returns how many."""
    rows = await work.transaction.rows("threads_without_node", limit=limit)
    return await remove(work, [ThreadRow._make(row) for row in rows])


async def remove(work: UnitOfWork, threads: Sequence[ThreadRow]) -> int:
    """Removes markers and returns how many. Runs that waited for these threads may start, and their jobs are handed
    over."""
    if not threads:
        return 0
    runs = sorted({thread.run_no for thread in threads})
    await work.flush()
    await work.transaction.rows("lock_jobs_of_runs", runs=runs)
    await work.lock_runs(runs)
    await work.transaction.many("delete_threads", [tuple(thread.key) for thread in threads])
    await work.transaction.rows("free_runs", runs=runs)
    await after_endings(work, list(dict.fromkeys(thread.job_uuid for thread in threads)))
    work.transaction.wake()
    return len(threads)
