"""Requests written through `cb_schedules`: the view's trigger only records them; here they are checked and applied.

A request that is invalid changes nothing; its row keeps the error, and an audit row says so.
"""

from __future__ import annotations

from dataclasses import replace

from horae.core.instant import parse_instant
from horae.core.interval import Every, Iso8601
from horae.core.lifecycle import JobState
from horae.core.schedule import Cron, Schedule
from horae.errors import HoraeError, InvalidInput, shown
from horae.store.operating import reschedule, set_state
from horae.store.redefining import redefine
from horae.store.work import Work


async def apply_requests(work: Work, unplannable: set[str]) -> int:
    """Applies what is open, in the order it was written; returns how many requests there were."""
    rows = await work.transaction.rows("open_requests")
    for number, name, job_uuid, field, value, by in rows:
        error = None
        try:
            await _apply(work, name, field, value, by, unplannable)
        except HoraeError as refusal:
            error = str(refusal)
            work.audit("SCHEDULE_REQUEST_REFUSED", job_uuid, None, by, "REFUSED", field=field, value=value, error=error)
        await work.flush()
        await work.transaction.rows("close_request", request=number, error=error)
    return len(rows)


async def _apply(work: Work, name: str | None, field: str, value: str | None, by: str, unplannable: set[str]) -> None:
    if name is None:
        raise InvalidInput("The job does not exist any more")
    if field == "enabled":
        on = str(value).lower() in ("1", "true", "t")
        await set_state(work, name, JobState.ENABLED if on else JobState.PAUSED, None, None, by, unplannable)
    elif field == "next_run_at":
        if value is None:
            raise InvalidInput(
                f"next_run_at of {shown(name)} cannot be NULL", hint="Set enabled = false to pause the job."
            )
        await reschedule(work, name, parse_instant(value, "next_run_at"), by, unplannable)
    else:
        job = next(iter((await work.lock_jobs(names=[name])).values()))
        present = work.definition(job).definition.spec
        changed = replace(present, schedule=_schedule(value or "", present.schedule))
        await redefine(work, job, changed, by=by, reason="cb_schedules", unplannable=unplannable)


def _schedule(text: str, present: Schedule | None) -> Schedule:
    """A cron expression, `every 90s`, or an ISO 8601 interval; a cron keeps the zone and dialect it had."""
    if text.startswith("every "):
        return Every(text[6:])
    if text[:1] in ("R", "P"):
        return Iso8601(text, tz="UTC" if present is None else present.timezone)
    if isinstance(present, Cron):
        return replace(present, expr=text)
    return Cron(text, tz="UTC" if present is None else present.timezone)
