"""Pauses SQL jobs whose text keeps exceeding its time limits, in the transaction that settles the last such attempt.

Jobs of the user `local` are not paused.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.access import LOCAL_NAME
from horae.core.job.text_expiry import MOST_EXPIRED, expired, parking_note
from horae.core.run.lifecycle import JobState
from horae.store.catalog.jobs.operations import change_state
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import Settlement, SettlementResult, SettlementVerdict


async def pause_expired_jobs(
    work: UnitOfWork, settlements: Sequence[Settlement], answers: Sequence[SettlementResult], unplannable: set[str]
) -> None:
    for each, answer in zip(settlements, answers, strict=True):
        late = {end.position for end in each.ends if expired(str(end.state), end.error_code, each.stop)}
        if late and answer.verdict is SettlementVerdict.SETTLED:
            await _pause_expired_job(work, each.run_no, late, unplannable)


async def _pause_expired_job(work: UnitOfWork, run_no: int, positions: set[int], unplannable: set[str]) -> None:
    rows = await work.transaction.rows("latest_ends", run=run_no, limit=MOST_EXPIRED)
    note = parking_note([expired(state, code, stopped) for _, state, code, stopped in rows])
    if note is None:
        return
    jobs = await work.lock_jobs(uuids=[rows[0][0]])
    for job in jobs.values():
        spec = work.definition(job).definition.spec
        is_text = any(spec.tasks[at].kind == "SQL" for at in positions if at < len(spec.tasks))
        if spec.owner in (None, LOCAL_NAME) or not is_text or JobState(job.state) is not JobState.ENABLED:
            continue
        await change_state(work, job, JobState.PAUSED, None, note, unplannable)
        work.audit("JOB_MODIFIED", job.uuid, None, "keeper", "OK", name=job.name, state="PAUSED", note=note)
        await work.flush()
