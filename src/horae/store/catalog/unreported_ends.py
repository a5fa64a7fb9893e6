"""Collects the runs that one transaction ended and that no node will report."""

from __future__ import annotations

from horae.core.job import ids
from horae.core.run.lifecycle import RunState
from horae.store.catalog.row_codec import moment, optional_moment
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import UnreportedRun


async def collect_unreported(work: UnitOfWork) -> None:
    """Adds the runs that were ended so far to `work.passed`. Call it before their rows are deleted."""
    ended, work.ended_unstarted = work.ended_unstarted, []
    unreported = sorted(set(ended) - work.reported)
    if not unreported:
        return
    await work.flush()
    rows = await work.transaction.rows("ended_runs", runs=unreported)
    await work.cache.load(work.transaction, [(row[0], row[1]) for row in rows])
    for job_uuid, version, state, count, reason, is_recovery, uuid, scheduled, started, covers_to in rows:
        work.passed.append(
            UnreportedRun(
                work.cache[job_uuid, version].definition.name,
                RunState(state),
                count,
                reason,
                bool(is_recovery),
                ids.RUN + uuid,
                moment(scheduled),
                None,
                None if started is None else work.moment - moment(started),
                optional_moment(covers_to),
            )
        )
