"""Planning in the model store: deadlines, windows whose chosen time has come, and the births of due jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from horae.core.change.succession import stage_at
from horae.core.job import ids
from horae.core.run.arrival import judge_arrival
from horae.core.run.due import UNLIMITED, DueDecision, NewRunRow, due
from horae.core.run.lifecycle import RUNS, JobState, RunState
from horae.core.run.pause import PAUSED
from horae.core.time.instant import shifted
from horae.store.records import Capacity, Claim, CreationResult, Origin
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model.progress import claim_run, is_alive
from horae_store_tests.model.rows import Job, Run, Work
from horae_store_tests.model.transitions import (
    carry_out,
    end,
    finish_once,
    hand_over_all,
    is_late,
    judge_again,
    judge_dependencies,
    let_start,
)

_ENQUEUED = (RunState.PENDING, RunState.QUEUED, RunState.RUNNING)


@dataclass
class Fusion:
    """The node that takes runs as they are born, and what it took so far."""

    capacity: Capacity | None = None
    claims: list[Claim] = field(default_factory=list)


def plan(work: Work, limit: int, start: Capacity | None) -> CreationResult:
    end_late_runs(work)
    judge_windows(work)
    found = [job for job in work.catalog.jobs.values() if job.wake_at is not None and job.wake_at <= work.now]
    found.sort(key=lambda job: (job.wake_at, str(ids.job_uuid(job.name))))
    found = found[:limit]
    fusion = Fusion(start if start is not None and is_alive(work, start.node) else None)
    born, more = 0, len(found) == limit
    for job in found:
        if job.name in work.catalog.jobs:
            written, cut_short = plan_job(work, job, fusion=fusion)
            born += written
            more = more or cut_short
    for job in found:
        finish_once(work, job.name)
    alarms = [job.wake_at for job in work.catalog.jobs.values() if job.wake_at is not None]
    alarms += [
        run.not_before for run in work.catalog.runs if run.waiting_for == "window" and run.not_before is not None
    ]
    for run in work.catalog.runs:
        deadline = work.catalog.definition(run).settings.deadline
        if run.state in (RunState.PENDING, RunState.QUEUED) and run.started_at is None and deadline is not None:
            # Deadlines are compared in whole seconds.
            alarms.append(shifted(shifted(run.chosen_time, deadline).replace(microsecond=0), timedelta(seconds=1)))
    wake_at = work.now if more else min(alarms, default=None)
    return CreationResult(work.now, len(found), born, tuple(fusion.claims), wake_at, more)


def end_late_runs(work: Work) -> None:
    for run in work.catalog.runs:
        if run.state in (RunState.PENDING, RunState.QUEUED) and is_late(work, run):
            end(work, run, RunState.MISSED, "deadline")
    hand_over_all(work)


def judge_windows(work: Work) -> None:
    """Judges the runs that waited for their chosen time; only then is it known what they overlap with."""
    waiting = [run for run in work.catalog.runs if run.waiting_for == "window" and run.chosen_time <= work.now]
    for run in sorted(waiting, key=lambda run: run.chosen_time):  # those of one moment in the order of birth
        if run.ended:
            continue  # an earlier one of these replaced it
        ruling, job = work.catalog.ruling(run), work.catalog.jobs.get(run.job_name)
        view = None if job is None or ruling.schedule is None else work.view(job)
        active = {each.run_id: each for each in work.active(run.job_name)}
        own = active.pop(run.run_id)
        arrival = judge_arrival(ruling.settings, own, tuple(active.values()), work.now, view)
        verdict = arrival.verdict
        run.is_recovery = run.is_recovery or arrival.is_recovery
        if verdict.state is RunState.PENDING:
            let_start(work, run, run.chosen_time)
        elif verdict.state is RunState.QUEUED:
            run.move(RunState.QUEUED)
            run.waiting_for = None
            run.not_before = None
        else:
            assert verdict.reason is not None
            end(work, run, verdict.state, verdict.reason)
        carry_out(work, verdict.endings, verdict.cancels)
    hand_over_all(work)


def plan_job(
    work: Work, job: Job, *, limit: int = 500, fusion: Fusion | None = None, spare: str | None = None
) -> tuple[int, bool]:
    """Bears what the job owes and moves its cursor; answers how many rows were written, and whether more is owed."""
    # The job's next slot is where the wait of its runs for others ends.
    judge_again(work, [run for run in work.catalog.active(job.name) if run.waiting_for == "dependencies"])
    hand_over_all(work, spare=spare)
    planned = due(work.view(job), work.now, limit=limit)
    births = [bear(work, job, birth, fusion or Fusion()) for birth in planned.births]
    written = [run for run in births if run is not None]
    _record_pause(work, job, planned, written)
    carry_out(work, planned.endings, planned.cancels)
    job.planned_until = planned.planned_until
    job.covered_until = planned.covered_until
    job.next_run_time = kept(planned.next_run_time)
    job.wake_at = kept(planned.wake_at)
    if job.moved_slot is not None and job.moved_slot <= job.planned_until:
        job.moved_slot = None
        job.moved_to = None
    if planned.resumed:
        job.state = JobState.ENABLED
        job.paused_until = None
        job.pause_note = None
    if any(run.state in _ENQUEUED for run in written):
        job.last_enqueued_at = work.now
    job.first_seen = False
    hand_over_all(work, spare=spare)
    return len(written), planned.more


def _record_pause(work: Work, job: Job, planned: DueDecision, written: list[Run]) -> None:
    for run in work.catalog.runs:
        if planned.grown is not None and run.number == job.paused_run:
            run.covers_to, run.count, run.completed_at = planned.grown.until, planned.grown.length, work.now
    for run in written:
        if run.reason == PAUSED:
            job.paused_run = run.number
    if planned.resumed:
        job.paused_run = None


def plan_owed(work: Work, job: Job) -> None:
    """Plans the one job before a verb changes it: all it owes, as `create_due_runs` would if it came by just now."""
    if job.wake_at is not None and job.wake_at <= work.now:
        plan_job(work, job, limit=UNLIMITED, spare=job.name)


def set_alarm(work: Work, job: Job) -> None:
    """Computes `next_run_time` and `wake_at` anew without bearing anything: what is owed already wakes at once."""
    if work.catalog.definition(job).schedule is None:
        job.next_run_time = None
        job.wake_at = None
        return
    planned = due(work.view(job), work.now)
    job.next_run_time = kept(planned.next_run_time)
    job.wake_at = work.now if planned.births or planned.grown or planned.endings else kept(planned.wake_at)


def bear(work: Work, job: Job, birth: NewRunRow, fusion: Fusion) -> Run | None:
    """Writes one run of the schedule; None where its key is taken."""
    if work.catalog.keyed(job.name, ids.schedule_key(birth.scheduled_time)) is not None:
        return None
    run = scheduled_run(work, job, birth)
    if run.state in RUNS.terminal:
        run.completed_at = work.now
    elif run.state is RunState.PENDING and run.chosen_time > work.now:
        run.waiting_for = "window"
        run.not_before = run.chosen_time
    elif run.state is RunState.PENDING:
        _bear_due(work, run, fusion)
    RUNS.check(None, run.state)
    work.catalog.runs.append(run)
    return run


def _bear_due(work: Work, run: Run, fusion: Fusion) -> None:
    verdict = judge_dependencies(work, run)
    if verdict is RunState.SKIPPED:
        run.state = RunState.SKIPPED
        run.reason = "dependencies"
        run.completed_at = work.now
        # Core let the runs behind it line up for it, so they are owed a hand-over.
        work.ended.append(run.job_name)
    elif verdict is RunState.PENDING:
        run.waiting_for = "dependencies"
    elif _fuses(work, run, fusion):
        assert fusion.capacity is not None
        run.state = RunState.RUNNING
        claim = claim_run(work, run, fusion.capacity.node)
        assert claim is not None
        fusion.claims.append(claim)
    else:
        run.not_before = run.chosen_time


def _fuses(work: Work, run: Run, fusion: Fusion) -> bool:
    """Whether the run may be born RUNNING on the node that plans."""
    capacity = fusion.capacity
    if capacity is None or len(fusion.claims) >= capacity.slots:
        return False
    definition = work.catalog.definition(run)
    if definition.settings.pool is not None or definition.settings.max_concurrent is not None:
        return False
    return capacity.handlers is None or definition.handlers <= capacity.handlers


def scheduled_run(work: Work, job: Job, birth: NewRunRow) -> Run:
    """The row of a birth, not yet in the catalog, with nothing said about what it waits for."""
    stage = stage_at(work.catalog.definition(job).former, birth.scheduled_time)
    version = job.version if stage is None else stage.version
    return Run(
        number=work.catalog.next_number(),
        run_id=ids.run_id(ids.job_uuid(job.name), birth.scheduled_time),
        job_name=job.name,
        state=birth.state,
        scheduled_time=birth.scheduled_time,
        chosen_time=whole_milliseconds(birth.chosen_time),
        origin=Origin.SCHEDULE,
        version=version,
        created_at=work.now,
        key=ids.schedule_key(birth.scheduled_time),
        reason=birth.reason,
        is_recovery=birth.is_recovery,
        covers_from=birth.covers_from,
        covers_to=birth.covers_to,
        count=birth.count,
        payload=work.catalog.definitions[job.name, version].spec.payload,
    )


def kept(at: datetime | None) -> datetime | None:
    """A time as the catalog keeps it."""
    return None if at is None else whole_milliseconds(at)
