"""The rows of a pause in the catalog: which is its newest, how a span grows, what the audit says of it."""

from __future__ import annotations

from horae.core.ids import schedule_key
from horae.core.lifecycle import JobState
from horae.core.pause import PAUSED, PauseRow
from horae.core.slot import Plan
from horae.store.rows import JobRow, milliseconds, moment, optional_moment
from horae.store.vault import ClosedSpan
from horae.store.work import Work

CLOSED = "SPAN_CLOSED"


async def newest_paused(work: Work, job: JobRow) -> PauseRow | None:
    """The newest row of the job's pause; None where it has none, or retention has removed it."""
    if JobState(job.state) is not JobState.PAUSED:
        return None
    for slot, until, after, length in await work.transaction.rows("newest_paused", job=job.uuid):
        return PauseRow(moment(slot), moment(until), optional_moment(after), length)
    return None


async def write_pause(work: Work, job: JobRow, plan: Plan) -> None:
    """Writes what a plan says of the job's pause, after its births. Its job is locked."""
    born = [birth for birth in plan.births if birth.reason == PAUSED]
    if born and born[0].covers_from is None:
        # Another pause: a release that knows no spans may have left one open.
        await close_span(work, job)
    if born:
        work.write("name_paused", (job.uuid, schedule_key(born[-1].scheduled_time)))
    if plan.grown is not None:
        work.write("grow_spans", (job.uuid, milliseconds(plan.grown.until), plan.grown.length, work.now))
    if plan.resumed:
        await close_span(work, job)


async def close_span(work: Work, job: JobRow) -> None:
    """Ends the rows of the job's pause. A span does not change from here on, and the audit says how it ended."""
    await work.flush()
    numbers = [row[0] for row in await work.transaction.rows("end_pause", job=job.uuid)]
    if not numbers:
        return
    for span in await closed_spans(work, numbers):
        if span.covers_to is not None:
            work.audit(CLOSED, job.uuid, span.run_uuid, "horae", span.state, **span.told)


async def closed_spans(work: Work, numbers: list[int]) -> tuple[ClosedSpan, ...]:
    return tuple(ClosedSpan(*row) for row in await work.transaction.rows("closed_spans", runs=numbers))


async def leave_pause(work: Work, job: JobRow) -> None:
    """As `close_span`, for a change of a job that may be paused."""
    if JobState(job.state) is JobState.PAUSED:
        await close_span(work, job)
