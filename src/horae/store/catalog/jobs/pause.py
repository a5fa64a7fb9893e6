"""The rows of a pause in the catalog: reads the newest, extends its span, closes and audits it."""

from __future__ import annotations

from horae.core.job.ids import schedule_key
from horae.core.run.job_view import DueDecision
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import PAUSED, PauseRow
from horae.store.catalog.row_codec import JobRow, milliseconds, moment, optional_moment
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.protocols.people import ClosedSpan

CLOSED = "SPAN_CLOSED"


async def newest_paused(work: UnitOfWork, job: JobRow) -> PauseRow | None:
    """Returns the newest row of the job's pause. None where it has none, or retention has removed it."""
    if JobState(job.state) is not JobState.PAUSED:
        return None
    for slot, until, after, length in await work.transaction.rows("newest_paused", job=job.uuid):
        return PauseRow(moment(slot), moment(until), optional_moment(after), length)
    return None


async def write_pause(work: UnitOfWork, job: JobRow, plan: DueDecision) -> None:
    """Writes what a plan says of the job's pause. The job is locked, and the plan's new runs are gathered already."""
    born = [birth for birth in plan.births if birth.reason == PAUSED]
    if born and born[0].covers_from is None:
        # This is a new pause. A release that does not know spans may have left the last one open.
        await close_span(work, job)
    if born:
        work.write("name_paused", (job.uuid, schedule_key(born[-1].scheduled_time)))
    if plan.grown is not None:
        work.write("grow_spans", (job.uuid, milliseconds(plan.grown.until), plan.grown.length, work.now))
    if plan.resumed:
        await close_span(work, job)


async def close_span(work: UnitOfWork, job: JobRow) -> None:
    """Ends the rows of the job's pause. A span does not change after this, and an audit row says how it ended."""
    await work.flush()
    numbers = [row[0] for row in await work.transaction.rows("end_pause", job=job.uuid)]
    if not numbers:
        return
    for span in await closed_spans(work, numbers):
        if span.covers_to is not None:
            work.audit(CLOSED, job.uuid, span.run_uuid, "horae", span.state, **span.told)


async def closed_spans(work: UnitOfWork, numbers: list[int]) -> tuple[ClosedSpan, ...]:
    return tuple(ClosedSpan(*row) for row in await work.transaction.rows("closed_spans", runs=numbers))


async def leave_pause(work: UnitOfWork, job: JobRow) -> None:
    """As `close_span`, but does nothing unless the job is PAUSED."""
    if JobState(job.state) is JobState.PAUSED:
        await close_span(work, job)
