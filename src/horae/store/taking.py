"""A version takes over from the one before: whose slots are whose, and what becomes of runs that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core import ids
from horae.core.lifecycle import JobState, RunState
from horae.core.move import CHANGED, retried_tasks
from horae.core.slot import Birth, JobView, Slot, decided_slot
from horae.core.takeover import Takeover, is_reached, passed_slot, take_over
from horae.core.update import IMMEDIATE, Update
from horae.errors import HoraeError
from horae.store.definitions import Compiled
from horae.store.handover import after_endings
from horae.store.move import move_run
from horae.store.records import Definition
from horae.store.rows import JobRow, job_view, milliseconds, moment
from horae.store.work import Work

_PARKED = ("retry", "previous_run")
"""What a run that was tried waits for: its next try, or the thread of the one before."""


async def taken_over(work: Work, job: JobRow, before: Compiled, after: Definition, update: Update) -> Takeover:
    view = None
    if before.schedule is not None:
        active = (await work.active([job.uuid])).get(job.uuid, {}) if update.policy == "graceful" else {}
        view = job_view(job, before.definition, tuple(run for _, run, _ in active.values() if not run.is_over))
    schedule, window = after.spec.schedule, after.settings.window
    version, at = before.definition.version, moment(work.as_of)
    try:
        return take_over(view, version, schedule, window, update, at)
    except HoraeError:
        # A schedule that cannot be asked here (a custom class this process lacks) has announced nothing.
        return take_over(view, version, schedule, window, IMMEDIATE, at)


async def move_waiting(work: Work, job: JobRow, compiled: Compiled, update: Update, *, decide: bool) -> None:
    """Runs that wait for their chosen time become the new version's, with its tasks and windows, or are deleted; slots
    it has where the cursor has passed are born. What earlier versions speak for, and what lies beyond the horizon,
    stays as it is. Unless starts are to `decide` on anew, each keeps its own: somebody may have moved it. Runs that
    wait for a retry go on under the new version where the change is immediate and core lets them."""
    begin, reach = compiled.since or work.now, update.reaches(work.moment)
    end = job.planned_until if reach is None else min(job.planned_until, milliseconds(reach))
    gone: dict[int, int] = {}
    parked: list[int] = []
    for number, scheduled, chosen, waiting_for in await work.transaction.rows("runs_to_move", job=job.uuid):
        if waiting_for in _PARKED:
            parked.append(number)
        elif is_reached(moment(scheduled), moment(chosen), moment(begin), update, work.moment):
            work.write("delete_runs", (number,))
            gone[scheduled] = chosen
    await work.flush()
    if parked and update.policy == "immediate":
        await _move_parked(work, compiled, parked)
    if compiled.schedule is None:
        return
    view = job_view(job, compiled.definition, ())
    known = {} if decide else {at: moment(chosen) for at, chosen in gone.items()}
    births = [
        _ahead_of_time(view, at, known.get(milliseconds(at))) for at in await _ahead(work, job, compiled, gone, end)
    ]
    for at in sorted(slot for slot in gone if slot <= work.now):
        passed = passed_slot(view, moment(at), known.get(at), work.moment)
        if passed is not None:
            births.append(_birth(passed))
    await work.reserve(len(births))
    for birth in births:
        work.bear(compiled, birth, waiting_for="window" if birth.state is RunState.PENDING else None)
    await work.flush()


async def withdraw_unstarted(work: Work, job: JobRow) -> None:
    """Deletes the runs of a Once that have not started: it gets another time. Another node may start them meanwhile, so
    they are looked at under their own locks."""
    numbers = [number for number, _, _ in (await work.active([job.uuid])).get(job.uuid, {}).values()]
    if not numbers:
        return
    runs = (await work.lock_runs(numbers)).values()
    gone = [run for run in runs if run.state != "RUNNING" and run.started_at is None and run.origin == "SCHEDULE"]
    for run in gone:
        work.write("delete_runs", (run.run_no,))
    await work.flush()
    if gone:
        await after_endings(work, [job.uuid], once=False)


async def is_decided(work: Work, compiled: Compiled, at: datetime) -> bool:
    """Whether that slot has a run."""
    return bool(await work.transaction.rows("run_by_key", job=compiled.job_uuid, key=ids.schedule_key(at)))


async def bear_missed(work: Work, compiled: Compiled, at: datetime) -> None:
    """Records a Once that was older than its grace when it got its time."""
    await work.reserve(1)
    work.bear(compiled, Birth(at, RunState.MISSED, at, "missed"))
    await work.flush()


async def _ahead(work: Work, job: JobRow, compiled: Compiled, gone: Mapping[int, int], end: int) -> list[datetime]:
    """The slots to come, up to the cursor, that have no run."""
    begin = compiled.since or work.now
    if compiled.schedule is None or begin >= end:
        return []
    rows = await work.transaction.rows("slots_ahead", job=job.uuid, key=ids.schedule_key(work.moment))
    taken = {row[0] for row in rows}
    slots = [at for at in compiled.schedule.between(moment(begin), moment(end)) if milliseconds(at) not in taken]
    if JobState(job.state) is JobState.ENABLED:
        return slots
    # Nothing of it is to start that was not to start before.
    return [at for at in slots if milliseconds(at) in gone]


async def _move_parked(work: Work, present: Compiled, numbers: Sequence[int]) -> None:
    """Another node may have started them since they were read, so they are looked at again under their own locks."""
    for run in (await work.lock_runs(numbers)).values():
        if run.state == "PENDING" and run.waiting_for in _PARKED:
            await move_run(work, run, present, retried_tasks, CHANGED)
    await work.flush()


def _ahead_of_time(view: JobView, at: datetime, chosen: datetime | None) -> Birth:
    """A slot that is born before its time; `chosen` where its start is known."""
    decided = decided_slot(view, at)
    return _birth(Slot(at, chosen) if chosen is not None and chosen != decided.chosen else decided)


def _birth(slot: Slot) -> Birth:
    if not slot.unschedulable:
        return Birth(slot.nominal, RunState.PENDING, slot.chosen, decision=slot.decision)
    reason = None if slot.decision is None else slot.decision.reason
    return Birth(slot.nominal, RunState.UNSCHEDULABLE, slot.chosen, reason, decision=slot.decision)
