"""Threads that work although their attempt has ended: markers of their runs, set by who settles, removed when they end.

A run with such a marker counts for the overlap policy of its job, and waits where it is to be tried again. Its node
says when the thread has ended; where the node is gone, the thread is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from horae.store.handover import after_endings
from horae.store.records import ThreadKey
from horae.store.work import Work


class ThreadRow(NamedTuple):
    """A marker, as every statement that looks for some selects it."""

    run_no: int
    position: int
    attempt_no: int
    job_uuid: str

    @property
    def key(self) -> ThreadKey:
        return ThreadKey(self.run_no, self.position, self.attempt_no)


async def threads_of(work: Work, node: str) -> list[ThreadRow]:
    return [ThreadRow._make(row) for row in await work.transaction.rows("threads_of_node", node=node)]


async def end_threads(work: Work, node: str, ended: Collection[ThreadKey]) -> int:
    """These threads of a node have ended; returns how many of them had a marker."""
    return await remove(work, [thread for thread in await threads_of(work, node) if thread.key in ended])


async def keep_only(work: Work, node: str, working: Collection[ThreadKey]) -> int:
    """Of a node's threads only these still work."""
    return await remove(work, [thread for thread in await threads_of(work, node) if thread.key not in working])


async def adopt(work: Work, node: str, working: Collection[ThreadKey]) -> None:
    """These attempts, which others ended when they took their node for dead, work on: they are threads of `node`."""
    numbers = sorted({thread.run_no for thread in working})
    await work.transaction.rows("lock_jobs_of_runs", runs=numbers)
    runs = await work.lock_runs(numbers)
    found = [(*thread, runs[thread.run_no].job_uuid, node, work.now) for thread in working if thread.run_no in runs]
    await work.transaction.many("adopt_threads", found)
    await work.transaction.rows("hold_back_runs", runs=sorted(runs))


async def end_orphans(work: Work, limit: int) -> int:
    """Removes the markers of nodes that are gone."""
    rows = await work.transaction.rows("threads_without_node", limit=limit)
    return await remove(work, [ThreadRow._make(row) for row in rows])


async def remove(work: Work, threads: Sequence[ThreadRow]) -> int:
    """Removes markers. Runs that waited for these threads may start, and what lines up behind them is handed over."""
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
