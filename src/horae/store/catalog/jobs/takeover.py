"""A new version takes over from the one before: which scheduled times each decides, and what waiting runs become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from horae.core.change.run_move import CHANGED, retried_tasks
from horae.core.change.takeover import VersionSwitch, is_reached, passed_slot, switch_version
from horae.core.change.update_policy import IMMEDIATE, Update
from horae.core.job import ids
from horae.core.run.job_view import JobView, NewRunRow, Slot, decided_slot
from horae.core.run.lifecycle import JobState, RunState
from horae.errors import HoraeError
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.row_codec import JobRow, job_view, milliseconds, moment
from horae.store.catalog.runs.handover import after_endings
from horae.store.catalog.runs.move import move_run
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import Definition

_PARKED = ("retry", "previous_run")
"""What a run that was attempted waits for: its next retry, or the thread of the attempt before."""


async def taken_over(
    work: UnitOfWork, job: JobRow, before: CompiledDefinition, after: Definition, update: Update
) -> VersionSwitch:
    view = None
    if before.schedule is not None:
        active = (await work.active([job.uuid])).get(job.uuid, {}) if update.policy == "graceful" else {}
        view = job_view(job, before.definition, tuple(run for _, run, _ in active.values() if not run.is_over))
    schedule, window = after.spec.schedule, after.settings.window
    version, at = before.definition.version, moment(work.as_of)
    try:
        return switch_version(view, version, schedule, window, update, at)
    except HoraeError:
        # A schedule that cannot be evaluated here (this process lacks its custom class) has announced nothing.
        return switch_version(view, version, schedule, window, IMMEDIATE, at)


async def move_waiting(
    work: UnitOfWork, job: JobRow, compiled: CompiledDefinition, update: Update, *, decide: bool
) -> None:
    """Moves a job's waiting runs to its new version.

    Runs that wait for their chosen time get the new version's tasks and windows, or are deleted. Scheduled times of the
    new version that the cursor has passed already get runs. Runs of earlier versions' scheduled times, and runs beyond
    the horizon, stay as they are. Unless `decide`, each run keeps its chosen time, because an operator may have moved
    it. Runs that wait for a retry move where the change is immediate and core allows it.
    """
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
        _future_birth(view, at, known.get(milliseconds(at)))
        for at in await _future_times_without_run(work, job, compiled, gone, end)
    ]
    for at in sorted(slot for slot in gone if slot <= work.now):
        passed = passed_slot(view, moment(at), known.get(at), work.moment)
        if passed is not None:
            births.append(_birth(passed))
    await work.reserve(len(births))
    for birth in births:
        work.bear(compiled, birth, waiting_for="window" if birth.state is RunState.PENDING else None)
    await work.flush()


async def delete_unstarted(work: UnitOfWork, job: JobRow) -> None:
    """Deletes the unstarted runs of a Once that gets another time. Another node may start them meanwhile, so they are
    checked under their own locks."""
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


async def is_decided(work: UnitOfWork, compiled: CompiledDefinition, at: datetime) -> bool:
    """Whether that scheduled time has a run."""
    return bool(await work.transaction.rows("run_by_key", job=compiled.job_uuid, key=ids.schedule_key(at)))


async def insert_missed_run(work: UnitOfWork, compiled: CompiledDefinition, at: datetime) -> None:
    """Records MISSED the last time of a schedule that was older than its grace when the job got the schedule."""
    await work.reserve(1)
    work.bear(compiled, NewRunRow(at, RunState.MISSED, at, "missed"))
    await work.flush()


async def _future_times_without_run(
    work: UnitOfWork, job: JobRow, compiled: CompiledDefinition, gone: Mapping[int, int], end: int
) -> list[datetime]:
    """Returns the future scheduled times up to the cursor that have no run."""
    begin = compiled.since or work.now
    if compiled.schedule is None or begin >= end:
        return []
    rows = await work.transaction.rows("slots_ahead", job=job.uuid, key=ids.schedule_key(work.moment))
    taken = {row[0] for row in rows}
    slots = [at for at in compiled.schedule.between(moment(begin), moment(end)) if milliseconds(at) not in taken]
    if JobState(job.state) is JobState.ENABLED:
        return slots
    # A job that is not ENABLED gets no start that it did not have before.
    return [at for at in slots if milliseconds(at) in gone]


async def _move_parked(work: UnitOfWork, present: CompiledDefinition, numbers: Sequence[int]) -> None:
    """Moves runs that wait for a retry. Another node may have started them since they were read, so they are checked
    again under their own locks."""
    for run in (await work.lock_runs(numbers)).values():
        if run.state == "PENDING" and run.waiting_for in _PARKED:
            await move_run(work, run, present, retried_tasks, CHANGED)
    await work.flush()


def _future_birth(view: JobView, at: datetime, chosen: datetime | None) -> NewRunRow:
    """The run to create for a future scheduled time. `chosen` is its chosen time, where that is known."""
    decided = decided_slot(view, at)
    return _birth(Slot(at, chosen) if chosen is not None and chosen != decided.chosen else decided)


def _birth(slot: Slot) -> NewRunRow:
    if not slot.unschedulable:
        return NewRunRow(slot.nominal, RunState.PENDING, slot.chosen, decision=slot.decision)
    reason = None if slot.decision is None else slot.decision.reason
    return NewRunRow(slot.nominal, RunState.UNSCHEDULABLE, slot.chosen, reason, decision=slot.decision)
