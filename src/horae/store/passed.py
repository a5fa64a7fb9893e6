"""What became of runs in one transaction that no node will report: born ended, ended while they waited, taken over."""

from __future__ import annotations

from horae.core import ids
from horae.core.lifecycle import RunState
from horae.store.records import Passed
from horae.store.rows import moment, optional_moment
from horae.store.work import Work


async def collect_passed(work: Work) -> None:
    """Adds the runs that were ended so far to `work.passed`. Rows that are deleted later are read before that."""
    ended, work.ended_unstarted = work.ended_unstarted, []
    unreported = sorted(set(ended) - work.reported)
    if not unreported:
        return
    await work.flush()
    rows = await work.transaction.rows("ended_runs", runs=unreported)
    await work.cache.load(work.transaction, [(row[0], row[1]) for row in rows])
    for job_uuid, version, state, count, reason, is_recovery, uuid, scheduled, started, covers_to in rows:
        work.passed.append(
            Passed(
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
