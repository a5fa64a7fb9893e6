"""Operations on jobs and runs, except for defining jobs. Each locks the job first, then its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from horae.core.audit import ranges
from horae.core.change.update_policy import IMMEDIATE
from horae.core.declarative import NAMESPACE
from horae.core.job import ids
from horae.core.job.definition import Settings, job_not_found
from horae.core.run.job_view import check_moved
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import OVERLAP, ActiveRun, OverlapVerdict, is_behind, judge_overlap, superseded
from horae.core.schedule.schedules import Once
from horae.core.time.instant import aware, floored
from horae.errors import Conflict, InvalidDefinition, InvalidInput, RunNotFound, shown
from horae.store.catalog.jobs.missing_handlers import with_missing_handlers
from horae.store.catalog.jobs.next_runs import look_ahead
from horae.store.catalog.jobs.pause import leave_pause
from horae.store.catalog.row_codec import (
    JobRow,
    deadline_at,
    milliseconds,
    moment,
    optional_milliseconds,
    payload_text,
    to_json,
    uuid_of,
)
from horae.store.catalog.runs.creation import RunCreator, create_outstanding_runs
from horae.store.catalog.runs.handover import after_endings, judge_left, remove_jobs
from horae.store.catalog.unit_of_work import Active, CatalogRunRow, UnitOfWork
from horae.store.catalog.unreported_ends import collect_unreported
from horae.store.records import Admission, AdmissionResult, Origin

_ONE_IN_LINE = {
    "states": ["QUEUED"], "origin": None, "since": None, "until": None, "before": 2**62, "first": 0, "limit": 1
}  # fmt: skip


def run_not_found(run_id: str) -> RunNotFound:
    return RunNotFound(
        f"No run {shown(run_id)}", hint="It may have been removed by retention.", details={"run_id": run_id}
    )


def not_registered(name: str) -> Conflict:
    return Conflict(
        f"{shown(name)} is a task that no scheduler registers: nobody could run it",
        hint="Give it to initialize() again.",
    )


async def locked_job(work: UnitOfWork, name: str) -> JobRow:
    """Locks a job and returns its row. Raises JobNotFound."""
    jobs = await work.lock_jobs(names=[name])
    if not jobs:
        raise job_not_found(name)
    return next(iter(jobs.values()))


async def set_state(
    work: UnitOfWork,
    name: str,
    state: JobState,
    until: datetime | None,
    note: str | None,
    by: str,
    unplannable: set[str],
    *,
    among: Collection[JobState] = tuple(JobState),
) -> JobState:
    """Returns the state before. Writes nothing where that state is not in `among`."""
    job = await locked_job(work, name)
    before = JobState(job.state)
    if before not in among:
        return before
    if job.asleep and state is not JobState.DISABLED:
        raise not_registered(name)
    await change_state(work, job, state, until, note, unplannable)
    work.audit("JOB_MODIFIED", job.uuid, None, by, "OK", name=name, state=str(state), note=note)
    work.transaction.wake()
    await work.flush()
    return before


async def change_state(
    work: UnitOfWork, job: JobRow, state: JobState, until: datetime | None, note: str | None, unplannable: set[str]
) -> None:
    """Creates the runs that are due under the old state, then switches. A disabled job that is enabled or paused starts
    from now."""
    await create_outstanding_runs(work, job, unplannable)
    if JobState(job.state) is JobState.DISABLED and state is not JobState.DISABLED:
        job.planned_until = max(job.planned_until, work.now // 1000 * 1000)
        if job.covered_until is not None:
            job.covered_until = max(job.covered_until, job.planned_until)
    paused = state is JobState.PAUSED
    if not paused:
        await leave_pause(work, job)
    job.state = str(state)
    job.paused_until = optional_milliseconds(aware(until, "until")) if paused and until is not None else None
    job.pause_note = note if paused else None
    job.updated_at = work.now
    look_ahead(work, job)
    work.write("save_jobs", job.saved())
    if state is not JobState.ENABLED and work.definition(job).settings.retry.max_retries is None:
        await after_endings(work, [job.uuid], once=False)


async def reschedule(work: UnitOfWork, name: str, at: datetime, by: str, unplannable: set[str]) -> datetime:
    """Moves the first scheduled time after the cursor to `at`, and returns that scheduled time. A Once whose time is
    decided gets `at` as its new time."""
    from horae.store.catalog.jobs.redefinition import redefine

    target = aware(at, "at")
    job = await locked_job(work, name)
    definition = work.definition(job).definition
    definition.check_readable()
    check_moved(name, target, definition.settings.misfire_grace, moment(work.as_of))
    own = definition.spec.schedule
    if isinstance(own, Once) and not definition.former:
        if milliseconds(own.at) <= job.planned_until:
            spec = replace(definition.spec, schedule=Once(floored(target), own.drop))
            await redefine(work, job, spec, by=by, unplannable=unplannable, source="reschedule", update=IMMEDIATE)
            return floored(target)
    else:
        # Where the moved time is due by now too, it is the newest one, and only the newest runs under `last`.
        older = target <= work.moment and definition.settings.recovery == "last" and work.as_of < work.now
        await create_outstanding_runs(work, job, unplannable, recovers=not older)
    schedule = work.definition(job).schedule
    slot = None if schedule is None else schedule.next(moment(job.planned_until))
    if slot is None or JobState(job.state) is JobState.DISABLED:
        reason = "is disabled" if JobState(job.state) is JobState.DISABLED else "has no next occurrence to move"
        raise InvalidInput(f"Job {shown(name)} {reason}", hint="Trigger it instead, or change its schedule.")
    job.moved_slot, job.moved_to = milliseconds(slot), milliseconds(target)
    job.updated_at = work.now
    look_ahead(work, job)
    work.write("save_jobs", job.saved())
    work.audit("JOB_MODIFIED", job.uuid, None, by, "OK", name=name, moved_slot=job.moved_slot, moved_to=job.moved_to)
    work.transaction.wake()
    await work.flush()
    return slot


async def drop(work: UnitOfWork, names: Sequence[str], *, keep_history: bool, by: str) -> int:
    """Removes jobs and keeps their cursors in tombstones. Returns how many.

    Raises JobNotFound, and InvalidDefinition where another job of the same owner depends on one of them. Jobs of other
    owners do not prevent the drop: they no longer have anything to wait for.
    """
    wanted = list(dict.fromkeys(names))
    jobs = await work.lock_jobs(names=wanted)
    missing = set(wanted) - {job.name for job in jobs.values()}
    if missing:
        raise job_not_found(min(missing))
    for name, other, is_same_owner in await work.transaction.rows("dependents_of", jobs=sorted(jobs)):
        if name not in wanted and is_same_owner:
            raise InvalidDefinition(
                f"Job {shown(other)} cannot be dropped: job {shown(name)} depends on it",
                hint=f"Drop {name} too, or remove its dependency first.",
            )
    for runs in (await work.active(sorted(jobs))).values():
        for number, run, _ in runs.values():
            if run.state is RunState.RUNNING:
                work.request_cancel(number, "dropped", by)
            elif not run.is_over:
                work.end_unstarted(number, RunState.CANCELLED, "dropped", by=by)
    await work.flush()
    await collect_unreported(work)
    if not keep_history:
        await forget_history(work, sorted(jobs), by)
    waiting = await work.transaction.rows("lock_dependent_runs", jobs=sorted(jobs))
    await remove_jobs(work, list(jobs.values()), by)
    await judge_left(work, waiting, sorted(jobs))
    work.transaction.wake()
    return len(jobs)


async def forget_history(work: UnitOfWork, job_uuids: Sequence[str], by: str) -> None:
    """Deletes every ended run of these jobs, in batches that keep memory flat."""
    while numbers := [
        row[0] for row in await work.transaction.rows("history_of_jobs", jobs=list(job_uuids), limit=5000)
    ]:
        await forget_runs(work, numbers, by)


async def forget_runs(work: UnitOfWork, numbers: Sequence[int], by: str) -> None:
    """Deletes runs with their rows in other tables. An audit row keeps their numbers, so that a verification of the
    trail knows that they were deleted rightly."""
    await work.transaction.rows("remember_runs", runs=list(numbers), namespace=NAMESPACE)
    for statement in (
        "forget_output",
        "forget_windows",
        "forget_attempts",
        "forget_tasks",
        "forget_threads",
        "forget_runs",
    ):
        await work.transaction.rows(statement, runs=list(numbers))
    work.audit("RUNS_FORGOTTEN", None, None, by, "OK", runs=ranges(numbers))


async def cancel(work: UnitOfWork, run_ids: Sequence[str], *, by: str, reason: str) -> tuple[RunState, ...]:
    """Ends runs that have not started, and asks the owners of running ones to stop them. Returns each run's state after
    that. Raises RunNotFound before anything is written."""
    uuids = [uuid_of(run_id) for run_id in run_ids]
    rows = await work.transaction.rows("find_runs", runs=uuids)
    numbers = {row[1]: row[0] for row in rows}
    for run_id, uuid in zip(run_ids, uuids, strict=True):
        if uuid not in numbers:
            raise run_not_found(run_id)
    await work.transaction.rows("lock_jobs_of_runs", runs=sorted(numbers.values()))
    runs = await work.lock_runs(sorted(numbers.values()))
    states, ended = {}, []
    for run in runs.values():
        state = RunState(run.state)
        if state is RunState.RUNNING:
            work.request_cancel(run.run_no, reason, by)
            # The node that ends the run writes the audit row of its end, with the node as the actor.
            work.audit("CANCEL_REQUESTED", run.job_uuid, run.uuid, by, "OK", reason=reason, run_no=run.run_no)
        elif state in (RunState.PENDING, RunState.QUEUED):
            work.end_unstarted(run.run_no, RunState.CANCELLED, reason, by=by)
            work.audit("JOB_CANCELLED", run.job_uuid, run.uuid, by, "CANCELLED", reason=reason, run_no=run.run_no)
            state = RunState.CANCELLED
            ended.append(run.job_uuid)
        states[run.uuid] = state
    await work.flush()
    if ended:
        await after_endings(work, ended)
    work.transaction.wake()
    return tuple(states[uuid] for uuid in uuids)


class Admitter:
    """Creates runs on request: triggers, replays and backfills."""

    def __init__(self, work: UnitOfWork, unplannable: set[str]) -> None:
        self.work = work
        self.planner = RunCreator(work, None, unplannable)
        self._active: dict[str, Active] = {}
        """The active runs of each job as they were read, with the runs admitted since."""
        self._lined: set[str] = set()
        """Jobs that have a QUEUED run. Both are cleared when something other than an admission changes the runs."""
        self._is_disturbed = False

    async def admit(self, requests: Sequence[Admission]) -> tuple[AdmissionResult, ...]:
        jobs = await self.work.lock_jobs(names=sorted({request.job_name for request in requests}))
        by_name = {job.name: job for job in jobs.values()}
        for request in requests:
            if request.job_name not in by_name:
                raise job_not_found(request.job_name)
            self.work.definition(by_name[request.job_name]).definition.check_readable()
        answers = [await self._admit(by_name[request.job_name], request) for request in requests]
        self.work.transaction.wake()
        return tuple(answers)

    async def _admit(self, job: JobRow, request: Admission) -> AdmissionResult:
        work = self.work
        now = work.now // 1000 * 1000
        payload = payload_text(job.name, request.payload)
        replayed, only, scheduled = None, None, now
        if request.origin is Origin.TRIGGER:
            key: str | None = ids.trigger_key(request.key or _fresh_key(work.now))
        elif request.origin is Origin.BACKFILL:
            scheduled = self._past_slot(job, request)
            key = ids.backfill_key(moment(scheduled))
        else:
            key = None
            replayed = await self._replayed(job, request)
            born_under = self.work.cache[job.uuid, replayed.version]
            scheduled, payload = replayed.scheduled_time, replayed.payload or born_under.payload or "null"
            only = self._only(job, request, replayed)
        uuid = str(uuid4()) if key is None else ids.keyed_run_id(ids.job_uuid(job.name), key)[len(ids.RUN) :]
        if key is not None:
            known = await work.transaction.rows("run_by_key", job=job.uuid, key=key)
            if known:
                return AdmissionResult(ids.RUN + known[0][0], RunState(known[0][1]), fresh=False)
        state, reason = await self._judge(job, request)
        number = await self._insert(job, request, uuid, key, state, reason, scheduled, payload, replayed, only)
        if not job.asleep and not self._is_disturbed:
            # No run ended for it, so there is nothing to hand over.
            self._keep(job, number, ids.RUN + uuid, state, scheduled)
            return AdmissionResult(ids.RUN + uuid, state, fresh=True)
        self._active.clear()
        self._lined.clear()
        self._is_disturbed = False
        if job.asleep:
            await after_endings(work, [job.uuid])
        # The run that it replaces may have ended just now. Then this one may start already.
        await self.planner.finish()
        state = RunState((await work.lock_runs([number]))[number].state)
        return AdmissionResult(ids.RUN + uuid, state, fresh=True)

    def _keep(self, job: JobRow, number: int, run_id: str, state: RunState, scheduled: int) -> None:
        """Adds a run that was just written to the active ones."""
        if state is RunState.QUEUED:
            self._lined.add(job.uuid)
        if state is not RunState.SKIPPED and job.uuid in self._active:
            at, chosen = moment(scheduled), self.work.moment
            run = ActiveRun(run_id, state, at, chosen, judged=state is RunState.PENDING)
            self._active[job.uuid][run_id] = (number, run, False)

    async def _judge(self, job: JobRow, request: Admission) -> tuple[RunState, str | None]:
        work, settings = self.work, self.work.definition(job).settings
        if settings.retry.max_retries is None:
            active = await self._active_of(job)
            retries = superseded([run for _, run, _ in active.values()], settings.retry)
            self._carry_out(job, active, OverlapVerdict(RunState.PENDING, endings=retries))
            for ending in retries:
                del active[ending.run_id]
        if request.origin is not Origin.TRIGGER:
            counts = settings.overlap != "allow" and await self._is_behind(job, settings)
            return (RunState.QUEUED if counts else RunState.PENDING), None
        active = await self._active_of(job)

        def judged(runs: Active) -> OverlapVerdict:
            others = [run for _, run, _ in runs.values()]
            return judge_overlap(settings.overlap, others, work.moment, settings.retry, once=settings.owes_once)

        verdict = judged(active)
        if verdict.reason == OVERLAP:
            verdict = judged(await with_missing_handlers(work, active))
        self._carry_out(job, active, verdict)
        await work.flush()
        return verdict.state, verdict.reason

    async def _active_of(self, job: JobRow) -> Active:
        found = self._active.get(job.uuid)
        if found is None:
            found = self._active[job.uuid] = (await self.work.active([job.uuid])).get(job.uuid, {})
        return found

    async def _is_behind(self, job: JobRow, settings: Settings) -> bool:
        """Whether another run comes before a new one. One QUEUED run is enough to know that, so the long line of a
        backfill is not read."""
        if job.uuid not in self._lined and job.uuid not in self._active:
            line = await self.work.transaction.rows("page_of_active_runs", jobs=[job.uuid], **_ONE_IN_LINE)
            self._lined.update(job.uuid for _ in line)
        if job.uuid in self._lined:
            return True
        active = await self._active_of(job)
        return is_behind(settings.overlap, [run for _, run, _ in active.values()], self.work.moment, settings.retry)

    def _carry_out(self, job: JobRow, active: Active, verdict: OverlapVerdict) -> None:
        if verdict.endings or verdict.cancels:
            self.planner.carry_out(job, active, verdict)
            self._is_disturbed = True

    async def _insert(
        self,
        job: JobRow,
        request: Admission,
        uuid: str,
        key: str | None,
        state: RunState,
        reason: str | None,
        scheduled: int,
        payload: str | None,
        replayed: CatalogRunRow | None,
        only: str | None,
    ) -> int:
        work, compiled = self.work, self.work.definition(job)
        chosen = work.now
        skipped = state is RunState.SKIPPED
        covers = (None, None) if replayed is None or only is not None else (replayed.covers_from, replayed.covers_to)
        await work.reserve(1)
        number = work.take_number()
        row: tuple[Any, ...] = (
            number, uuid, job.uuid, None, scheduled, None, work.now if skipped else None, str(state), key, job.version,
            str(request.origin), chosen, work.now if state is RunState.PENDING else None, None,
            None if skipped else deadline_at(moment(chosen), compiled.settings.deadline), 0, None, None, reason,
            False, *covers, 1, None if replayed is None else replayed.uuid, only, compiled.settings.pool,
            compiled.pooled, compiled.requires, payload, request.by, work.now,
        )  # fmt: skip
        work.write("insert_runs", row)
        if replayed is not None and request.reason is not None:
            work.write("note_replays", (number, request.reason))
        work.audit(str(request.origin), job.uuid, uuid, request.by, str(state), reason=request.reason)
        await work.flush()
        return number

    def _past_slot(self, job: JobRow, request: Admission) -> int:
        schedule, at = self.work.definition(job).schedule, request.scheduled_time
        if at is None or schedule is None or not schedule.matches(at) or aware(at) > self.work.moment:
            raise InvalidInput(
                f"Job {shown(job.name)} had no occurrence at {shown(at)}",
                hint="Backfill takes past slots of the schedule.",
            )
        return milliseconds(aware(at))

    async def _replayed(self, job: JobRow, request: Admission) -> CatalogRunRow:
        run_id = request.replay_of or ""
        rows = await self.work.transaction.rows("find_runs", runs=[uuid_of(run_id)])
        found = (await self.work.lock_runs([rows[0][0]]))[rows[0][0]] if rows else None
        if found is None or found.job_uuid != job.uuid:
            raise run_not_found(run_id)
        return found

    def _only(self, job: JobRow, request: Admission, replayed: CatalogRunRow) -> str | None:
        """Returns the tasks to replay as JSON text; None: all. Raises InvalidInput for a task that was not part of that
        run or is no longer part of the job."""
        if request.tasks is None:
            return None
        had = self.work.cache[job.uuid, replayed.version].task_names
        had = had if replayed.only_tasks is None else tuple(json.loads(replayed.only_tasks))
        known = [name for name in self.work.definition(job).task_names if name in had]
        for name in request.tasks or ("",):
            if name not in known:
                raise InvalidInput(
                    f"Run {shown(replayed.run_id)} has no task {shown(name)} to replay",
                    hint=f"It has: {', '.join(known)}.",
                )
        return to_json(list(request.tasks))


def _fresh_key(now: int) -> str:
    return str(ids.uuid7(now, os.urandom(10)))
