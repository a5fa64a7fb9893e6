"""What is asked of the model store beside definitions: drop, pause, move, trigger, cancel, sweep, retain."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from horae.core.change.run_move import GONE, UNMOVABLE_WAITS, is_gone, moved_tasks
from horae.core.change.update_policy import Update
from horae.core.job import ids
from horae.core.job.requirements import reported_needs
from horae.core.run.lifecycle import RUNS, JobState, RunState
from horae.core.run.overlap import is_behind, judge_overlap, superseded
from horae.core.schedule.schedules import Once
from horae.core.time.instant import EPOCH, floored
from horae.errors import Conflict, InvalidDefinition, InvalidInput, InvalidTime, JobNotFound, RunNotFound, shown
from horae.store.records import Admission, AdmissionResult, Origin
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model.creation import plan_owed, set_alarm
from horae_store_tests.model.definitions import change_state, define, plain_json
from horae_store_tests.model.rows import Job, Run, Work
from horae_store_tests.model.threads import orphans, remove_threads
from horae_store_tests.model.transitions import (
    bury,
    carry_out,
    end,
    finish_once,
    hand_over_all,
    hold,
    judge_again,
    move_run,
    request_cancel,
)

_MILLISECOND = timedelta(milliseconds=1)


def found_job(work: Work, name: str) -> Job:
    job = work.catalog.jobs.get(name)
    if job is None:
        raise JobNotFound(f"There is no job {shown(name)}")
    return job


def found_run(work: Work, run_id: str) -> Run:
    run = work.catalog.run(run_id)
    if run is None:
        raise RunNotFound(f"There is no run {shown(run_id)}")
    return run


def drop(work: Work, names: Sequence[str], *, keep_history: bool, by: str) -> int:
    going = {name: found_job(work, name) for name in names}
    for job in work.catalog.jobs.values():
        needed = [name for name in work.catalog.definition(job).spec.depends_on if name in going]
        if needed and job.name not in going:
            raise InvalidDefinition(f"Job {shown(job.name)} depends on {shown(needed[0])}, so that cannot be dropped")
    for job in going.values():
        for run in work.catalog.active(job.name):
            if run.state is RunState.RUNNING:
                request_cancel(work, run, by=by, reason="dropped")
            else:
                run.cancelled_by = by
                end(work, run, RunState.CANCELLED, "dropped")
        bury(work, job)
    if not keep_history:
        work.catalog.delete([run for run in work.catalog.runs if run.job_name in going and run.ended])
    return len(going)


def set_state(
    work: Work, name: str, state: JobState, until: datetime | None, note: str | None, among: Collection[JobState]
) -> JobState:
    job = found_job(work, name)
    before = job.state
    if before not in among:
        return before
    if job.asleep and state is not JobState.DISABLED:
        raise Conflict(f"{shown(name)} is a task that no scheduler registers")
    plan_owed(work, job)
    change_state(work, job, JobState(state), until, note)
    set_alarm(work, job)
    work.ended.append(job.name)
    hand_over_all(work, spare=job.name)
    return before


def reschedule(work: Work, name: str, at: datetime) -> datetime:
    job = found_job(work, name)
    definition = work.catalog.definition(job)
    if work.now - at > definition.settings.misfire_grace:
        raise InvalidTime(f"Job {shown(name)}: it cannot be moved to a time that is older than its grace")
    own = definition.spec.schedule
    if not isinstance(own, Once) or definition.former:
        plan_owed(work, job)
    elif own.at <= job.planned_until:
        spec = replace(definition.spec, schedule=Once(floored(at), own.drop), state=job.state)
        define(work, [spec], by="", source="reschedule", defaults=job.defaults, expected=None, update=Update())
        return floored(at)
    schedule = definition.schedule
    slot = None if schedule is None or job.state is JobState.DISABLED else schedule.next(job.planned_until)
    if slot is None:
        raise InvalidInput(f"Job {shown(name)} has no next slot that could be moved")
    job.moved_slot = slot
    job.moved_to = whole_milliseconds(at, "at")
    job.updated_at = work.now
    set_alarm(work, job)
    return slot


def admit(work: Work, requests: Sequence[Admission]) -> tuple[AdmissionResult, ...]:
    """One request after the other, each as if it had come in a call of its own."""
    return tuple(_admit_one(work, request) for request in requests)


def _admit_one(work: Work, request: Admission) -> AdmissionResult:
    job = found_job(work, request.job_name)
    run = _asked_for(work, job, request)
    known = None if run.key is None else work.catalog.keyed(job.name, run.key)
    if known is not None:
        return AdmissionResult(known.run_id, known.state, fresh=False)
    settings = work.catalog.definition(job).settings
    carry_out(work, superseded(work.active(job.name), settings.retry), ())
    active = work.active(job.name)
    if run.origin is Origin.TRIGGER:
        verdict = judge_overlap(settings.overlap, active, work.now, settings.retry, None, once=settings.owes_once)
        run.state = verdict.state
        run.reason = verdict.reason
        carry_out(work, verdict.endings, verdict.cancels)
    elif settings.overlap != "allow" and is_behind(settings.overlap, active, work.now, settings.retry):
        run.state = RunState.QUEUED
    RUNS.check(None, run.state)
    if run.ended:
        run.completed_at = work.now
    if run.state is RunState.PENDING:
        run.not_before = work.now
    run.number = work.catalog.next_number()
    work.catalog.runs.append(run)
    if job.asleep:
        hold(work, job)
    hand_over_all(work)
    return AdmissionResult(run.run_id, run.state, fresh=True)


def _asked_for(work: Work, job: Job, request: Admission) -> Run:
    """The run a request stands for, PENDING and not yet in the catalog."""
    uuid, second = ids.job_uuid(job.name), floored(work.now)
    payload = plain_json(request.payload, InvalidInput)
    if payload is None:
        payload = work.catalog.definition(job).spec.payload
    run = Run(0, "", job.name, RunState.PENDING, second, work.now, Origin(request.origin), job.version, work.now)
    run.payload = payload
    if run.origin is Origin.TRIGGER:
        entropy = secrets.token_bytes(10)
        fresh = str(ids.uuid7((work.now - EPOCH) // _MILLISECOND, entropy))
        run.key = ids.trigger_key(fresh if request.key is None else request.key)
        run.run_id = ids.keyed_run_id(uuid, run.key)
    elif run.origin is Origin.BACKFILL:
        run.scheduled_time = _past_slot(work, job, request.scheduled_time)
        run.key = ids.backfill_key(run.scheduled_time)
        run.run_id = ids.keyed_run_id(uuid, run.key)
    elif run.origin is Origin.REPLAY:
        replayed = _replayed(work, job, request)
        run.run_id = f"{ids.RUN}{uuid4()}"
        run.replay_of = replayed.run_id
        run.scheduled_time = replayed.scheduled_time
        run.payload = replayed.payload
        run.only = request.tasks
        if run.only is None:
            run.covers_from, run.covers_to = replayed.covers_from, replayed.covers_to
        run.replay_reason = request.reason
    else:
        raise InvalidInput(f"Job {shown(job.name)}: a run of origin {run.origin} is born by the schedule alone")
    return run


def _past_slot(work: Work, job: Job, at: datetime | None) -> datetime:
    schedule = work.catalog.definition(job).schedule
    if at is None or schedule is None or at > work.now or not schedule.matches(at):
        raise InvalidInput(f"{shown(at)} is no past slot of job {shown(job.name)}")
    return floored(at)


def _replayed(work: Work, job: Job, request: Admission) -> Run:
    if request.replay_of is None:
        raise InvalidInput(f"Job {shown(job.name)}: a replay has to name the run")
    replayed = found_run(work, request.replay_of)
    if replayed.job_name != job.name:
        raise RunNotFound(f"Job {shown(job.name)} has no run {shown(request.replay_of)}")
    if request.tasks is not None:
        had = {task.name for task in work.catalog.definition(replayed).tasks}
        if replayed.only is not None:
            had &= set(replayed.only)
        has = {task.name for task in work.catalog.definition(job).tasks}
        unknown = sorted(set(request.tasks) - (had & has))
        if unknown or not request.tasks:
            told = shown(unknown[0]) if unknown else "no task at all"
            raise InvalidInput(f"Run {shown(replayed.run_id)} cannot be replayed with {told}")
    return replayed


def cancel(work: Work, run_ids: Sequence[str], *, by: str, reason: str) -> tuple[RunState, ...]:
    runs = [found_run(work, run_id) for run_id in run_ids]
    for run in runs:
        if run.state is RunState.RUNNING:
            request_cancel(work, run, by=by, reason=reason)
        elif not run.ended:
            run.cancelled_by = by
            end(work, run, RunState.CANCELLED, reason)
    hand_over_all(work)
    return tuple(run.state for run in runs)


def set_pool(work: Work, name: str, limit: int | None) -> None:
    ids.checked_name(name, "pool name")
    if limit is None:
        work.catalog.pools.pop(name, None)
        return
    if type(limit) is not int or limit < 1:
        raise InvalidDefinition(f"Invalid limit {shown(limit)} of pool {shown(name)}: must be 1 or more, or None")
    work.catalog.pools[name] = limit


def settle_gone(work: Work, grace: timedelta) -> None:
    """Moves runs of earlier versions whose handlers are gone to the present version, or ends them."""
    nodes, live = list(work.catalog.nodes.values()), work.live_handlers()
    if live is None:
        return
    alive_since = min(node.started_at for node in nodes if node.state == "ALIVE")
    for run in list(work.catalog.runs):
        job = work.catalog.jobs.get(run.job_name)
        waits = run.state in (RunState.PENDING, RunState.QUEUED) and run.waiting_for not in UNMOVABLE_WAITS
        if job is None or not waits or run.version == job.version:
            continue
        own, present = work.catalog.definition(run), work.catalog.definition(job)
        missing = own.handlers - live
        since = [run.created_at, alive_since]
        for node in nodes:
            had = reported_needs(node.details)
            if node.ended_at is not None and (had is None or not missing.isdisjoint(had)):
                since.append(node.ended_at)
        if not is_gone(missing, present.handlers, max(since), work.now, grace):
            continue
        names = [task.name for task in present.spec.tasks]
        once = own.settings.delivery == "at_most_once"
        moves = moved_tasks([task.progress for task in run.tasks], names, at_most_once=once)
        work.moved += 1
        if moves is None or not set(run.only or ()) <= set(names):
            end(work, run, RunState.FAILED, GONE)
        else:
            move_run(run, present, moves)
    hand_over_all(work)


def sweep(work: Work, limit: int, handler_grace: timedelta) -> int:
    """Moves whatever could move; the limit is looked at between jobs, so one of them may reach beyond it."""
    settle_gone(work, handler_grace)
    moved = work.moved
    work.moved = moved + remove_threads(work, orphans(work, limit))
    for name in sorted({run.job_name for run in work.catalog.runs if run.state is RunState.QUEUED}):
        if work.moved < limit:
            work.ended.append(name)
            hand_over_all(work)
    for run in list(work.catalog.runs):
        if work.moved < limit and run.waiting_for == "dependencies":
            judge_again(work, [run])
            hand_over_all(work)
    for name in sorted(work.catalog.jobs):
        if work.moved < limit:
            finish_once(work, name)
    return work.moved


def retain(work: Work, older_than: timedelta, limit: int) -> int:
    old = [
        (run.completed_at, run.number, run)
        for run in work.catalog.runs
        if run.completed_at is not None and run.completed_at < work.now - older_than
    ]
    going = [run for _, _, run in sorted(old, key=lambda each: each[:2])[:limit]]
    work.catalog.delete(going)
    return len(going)
