"""A version takes over from the one before: whose slots are whose, and what becomes of runs that were born ahead."""

from __future__ import annotations

from datetime import datetime

from horae.core import ids
from horae.core.lifecycle import JobState, RunState
from horae.core.slot import Birth, JobView, decided_slot
from horae.core.takeover import Takeover, take_over
from horae.core.update import IMMEDIATE, Update
from horae.errors import HoraeError
from horae.store.definitions import Compiled
from horae.store.records import Definition
from horae.store.rows import JobRow, job_view, milliseconds, moment
from horae.store.work import Work


async def taken_over(work: Work, job: JobRow, before: Compiled, after: Definition, update: Update) -> Takeover:
    view = None
    if before.schedule is not None:
        active = (await work.active([job.uuid])).get(job.uuid, {}) if update.policy == "graceful" else {}
        view = job_view(job, before.definition, tuple(run for _, run, _ in active.values()))
    schedule, window = after.spec.schedule, after.settings.window
    version = before.definition.version
    try:
        return take_over(view, version, schedule, window, update, work.moment)
    except HoraeError:
        # A schedule that cannot be asked here (a custom class this process lacks) has announced nothing.
        return take_over(view, version, schedule, window, IMMEDIATE, work.moment)


async def move_unstarted(work: Work, job: JobRow, compiled: Compiled, update: Update, *, decide: bool) -> None:
    """Runs born ahead of their time become the new version's, with its tasks and windows, or are deleted; slots it has
    where the cursor has passed are born. What earlier versions speak for, and what lies beyond the horizon, stays as it
    is. Unless starts are to `decide` on anew, each keeps its own: somebody may have moved it."""
    begin, reach = compiled.since or work.now, update.reaches(work.moment)
    end = job.planned_until if reach is None else min(job.planned_until, milliseconds(reach))
    gone: dict[int, int] = {}
    for number, scheduled, chosen in await work.transaction.rows("window_runs_ahead", job=job.uuid):
        if begin < scheduled <= end:
            work.write("delete_runs", (number,))
            gone[scheduled] = chosen
    await work.flush()
    if compiled.schedule is None or begin >= end:
        return
    rows = await work.transaction.rows("slots_ahead", job=job.uuid, key=ids.schedule_key(work.moment))
    taken = {row[0] for row in rows}
    slots = [at for at in compiled.schedule.between(moment(begin), moment(end)) if milliseconds(at) not in taken]
    if JobState(job.state) is not JobState.ENABLED:
        # Nothing of it is to start that was not to start before.
        slots = [at for at in slots if milliseconds(at) in gone]
    await work.reserve(len(slots))
    view = job_view(job, compiled.definition, ())
    for at in slots:
        known = None if decide else gone.get(milliseconds(at))
        birth = _ahead_of_time(view, at, None if known is None else moment(known))
        work.bear(compiled, birth, waiting_for="window" if birth.state is RunState.PENDING else None)
    await work.flush()


def _ahead_of_time(view: JobView, at: datetime, chosen: datetime | None) -> Birth:
    """A slot that is born before its time; `chosen` where its start is known."""
    decided = decided_slot(view, at)
    if chosen is not None and chosen != decided.chosen:
        return Birth(at, RunState.PENDING, chosen)
    if decided.unschedulable:
        reason = None if decided.decision is None else decided.decision.reason
        return Birth(at, RunState.UNSCHEDULABLE, decided.chosen, reason, decision=decided.decision)
    return Birth(at, RunState.PENDING, decided.chosen, decision=decided.decision)
