"""Jobs of others whose text keeps running into its limits are paused, in the transaction that says so the last time."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.access import LOCAL_NAME
from horae.core.expiry import MOST_EXPIRED, expired, parking_note
from horae.core.lifecycle import JobState
from horae.store.operating import change_state
from horae.store.records import Settled, Settlement, Verdict
from horae.store.work import Work


async def park_expired(
    work: Work, settlements: Sequence[Settlement], answers: Sequence[Settled], unplannable: set[str]
) -> None:
    for each, answer in zip(settlements, answers, strict=True):
        late = {end.position for end in each.ends if expired(str(end.state), end.error_code, each.stop)}
        if late and answer.verdict is Verdict.SETTLED:
            await _park(work, each.run_no, late, unplannable)


async def _park(work: Work, run_no: int, positions: set[int], unplannable: set[str]) -> None:
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
