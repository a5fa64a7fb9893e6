"""What the model store's verbs share about runs: how they end, are asked to stop, wait for others and hand over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from horae.core.change.run_move import TaskMove
from horae.core.declarative import WAITING_FOR_REGISTRATION
from horae.core.job.dependencies import dependency_window, judge
from horae.core.run.job_view import deadline_passed
from horae.core.run.lifecycle import ATTEMPTS, TASK_RUNS, AttemptState, JobState, RunState, TaskState
from horae.core.run.overlap import Ending, ended_by_state, hand_over, superseded
from horae.core.run.progress import TaskProgress
from horae.core.schedule.schedules import Once
from horae.store.records import Definition, Origin
from horae_store_tests.model.rows import Job, Run, Task, Tombstone, Work


def finish(work: Work, run: Run, state: RunState, reason: str | None) -> None:
    """Ends the run's row. Owner and fence stay, so that a repeated settlement is recognised."""
    leave_stretch(work, run)
    run.move(state)
    run.reason = reason
    run.completed_at = work.now
    run.not_before = None
    run.waiting_for = None
    work.ended.append(run.job_name)
    job = work.catalog.jobs.get(run.job_name)
    if job is not None and state is RunState.COMPLETED and run.origin is not Origin.TRIGGER and run.only is None:
        _cover(work, job, run)


def _cover(work: Work, job: Job, run: Run) -> None:
    """Coverage goes on over this run and over those of later slots that completed before it, as long as none is left
    out between them."""
    if work.catalog.definition(run).settings.recovery != "compressed":
        return
    done = [each for each in work.catalog.runs if each.job_name == job.name and each.state is RunState.COMPLETED]
    for each in sorted(done, key=lambda each: (each is not run, each.scheduled_time)):
        if each is not run and each.origin is not Origin.SCHEDULE:
            continue
        schedule = work.catalog.definition(each).schedule
        begin, until = each.covers_from, each.covers_to or each.scheduled_time
        if begin is None and schedule is not None:
            begin = schedule.previous(each.scheduled_time)
        if job.covered_until is None or begin is None or begin <= job.covered_until:
            job.covered_until = until if job.covered_until is None else max(job.covered_until, until)


def leave_stretch(work: Work, run: Run) -> None:
    """Adds the time since the run became RUNNING to what it has spent, if it is RUNNING."""
    if run.stretch_at is not None:
        run.spent += work.now - run.stretch_at
        run.stretch_at = None


def end(work: Work, run: Run, state: RunState, reason: str, *, attempts: AttemptState = AttemptState.CANCELLED) -> None:
    """Ends a run without asking how its tasks go on: whatever has not ended, ends with it."""
    for task in run.tasks:
        before = task.progress
        for attempt in task.attempts:
            if attempt.state is AttemptState.RUNNING:
                ATTEMPTS.check(attempt.state, attempts)
                attempt.state = attempts
                attempt.ended_at = work.now
        if before.state not in TASK_RUNS.terminal:
            after = TaskState.CANCELLED if before.attempts else TaskState.SKIPPED
            TASK_RUNS.check(before.state, after)
            task.progress = before._replace(state=after, retry_at=None, cancelled_by=reason)
    finish(work, run, state, reason)


def request_cancel(work: Work, run: Run, *, by: str, reason: str) -> None:
    """Asks the owner of a RUNNING run to stop it; who asked first is kept."""
    if run.cancel_requested_at is None:
        run.cancel_requested_at = work.now
        run.cancelled_by = by
        run.cancel_reason = reason


def carry_out(work: Work, endings: Sequence[Ending], cancels: Sequence[str]) -> None:
    """Does to other runs of a job what an overlap verdict or a plan says."""
    for ending in endings:
        run = work.catalog.run(ending.run_id)
        if run is not None and not run.ended:
            end(work, run, ending.state, ending.reason)
    for run_id in cancels:
        run = work.catalog.run(run_id)
        if run is None or run.ended:
            continue
        if run.state is RunState.RUNNING:
            request_cancel(work, run, by="replaced", reason="replaced")
        else:
            run.cancelled_by = "replaced"
            end(work, run, RunState.CANCELLED, "replaced")


def is_late(work: Work, run: Run) -> bool:
    """Whether the run has never started and its deadline, of the version it was born under, has passed."""
    deadline = work.catalog.definition(run).settings.deadline
    return run.started_at is None and deadline_passed(run.chosen_time, deadline, work.now)


def judge_dependencies(work: Work, run: Run) -> RunState | None:
    """PENDING: the run has to wait; SKIPPED: it waited too long; None: it may start. Its own version speaks."""
    spec = work.catalog.definition(run).spec
    if spec.schedule is None or not spec.depends_on or run.origin is not Origin.SCHEDULE:
        return None
    window = dependency_window(spec.schedule, run.scheduled_time)
    latest: dict[str, RunState | None] = {}
    for name in spec.depends_on:
        counted = [
            other
            for other in work.catalog.runs
            if other.job_name == name
            and other.scheduled_time <= window.until
            and (window.after is None or other.scheduled_time > window.after)
        ]
        newest = max(counted, key=lambda other: (other.scheduled_time, other.number), default=None)
        latest[name] = None if newest is None else newest.state
    return judge(latest, window, work.now)


def let_start(work: Work, run: Run, not_before: datetime) -> None:
    """Makes a waiting run PENDING, waiting for its dependencies at most, or ends it where they came too late."""
    verdict = judge_dependencies(work, run)
    if verdict is RunState.SKIPPED:
        end(work, run, RunState.SKIPPED, "dependencies")
        return
    if run.state is not RunState.PENDING:
        run.move(RunState.PENDING)
    run.waiting_for = "dependencies" if verdict is RunState.PENDING else None
    run.not_before = None if verdict is RunState.PENDING else not_before


def hand_over_all(work: Work, *, spare: str | None = None) -> None:
    """Hands over for every job a run of which ended, until nothing follows from it any more.

    `spare` names a job that is not finished even if it is a Once that is done: the verb is about to change it.
    """
    while work.ended:
        name = work.ended.pop(0)
        job = work.catalog.jobs.get(name)
        if job is not None and job.asleep:
            hold(work, job)
        else:
            if job is not None:
                give_up_retries(work, job)
            _call_next(work, name)
        _judge_dependents(work, name)
        if name != spare:
            finish_once(work, name)


def give_up_retries(work: Work, job: Job) -> None:
    active = work.active(job.name)
    carry_out(work, ended_by_state(active, work.catalog.definition(job).settings.retry, job.state), ())


def hold(work: Work, job: Job) -> None:
    """Lets all that waits of a job wait for its registration."""
    for run in work.catalog.active(job.name):
        if run.state is RunState.QUEUED:
            run.move(RunState.PENDING)
        if run.state is RunState.PENDING:
            run.not_before = None
            run.waiting_for = WAITING_FOR_REGISTRATION


def coalesce_unstarted(work: Work, job: Job) -> None:
    """Ends what waits of a job and never began: a run of it that was cut off stands for all."""
    for run in work.catalog.active(job.name):
        if run.state is not RunState.RUNNING and not run.cut_off:
            end(work, run, RunState.SKIPPED, "coalesced")


def _call_next(work: Work, job_name: str) -> None:
    """Lets the next QUEUED run of the job go; one that is too late ends, and the one after it is asked for."""
    while active := work.catalog.active(job_name):
        settings = work.catalog.ruling(active[0]).settings
        retry = settings.retry
        chosen = hand_over(work.active(job_name), work.now, retry, settings.overlap)
        if chosen is None:
            return
        run = next(each for each in active if each.run_id == chosen)
        work.moved += 1
        carry_out(work, superseded(work.active(job_name), retry), ())
        if is_late(work, run):
            end(work, run, RunState.MISSED, "deadline")
        else:
            let_start(work, run, work.now)
        if not run.ended:
            return


def _judge_dependents(work: Work, job_name: str) -> None:
    for job in list(work.catalog.jobs.values()):
        if job_name in work.catalog.definition(job).spec.depends_on:
            judge_again(work, [run for run in work.catalog.active(job.name) if run.waiting_for == "dependencies"])


def judge_again(work: Work, waiting: Sequence[Run]) -> None:
    """Judges runs that wait for dependencies once more; those that need not wait any longer are moved."""
    for run in waiting:
        let_start(work, run, work.now)
        if run.waiting_for != "dependencies":
            work.moved += 1


def finish_once(work: Work, job_name: str) -> None:
    """Removes or disables a Once job whose time is planned and which has no run under way."""
    job = work.catalog.jobs.get(job_name)
    if job is None or work.catalog.active(job_name):
        return
    definition = work.catalog.definition(job)
    schedule = definition.spec.schedule
    if not isinstance(schedule, Once) or schedule.at > job.planned_until:
        return
    needed = any(job_name in work.catalog.definition(other).spec.depends_on for other in work.catalog.jobs.values())
    if (schedule.drop or definition.settings.on_completion == "drop") and not needed:
        bury(work, job)
    elif job.state is not JobState.DISABLED:
        job.state = JobState.DISABLED
        job.next_run_time = None
        job.wake_at = None
    else:
        return
    work.moved += 1


def bury(work: Work, job: Job) -> None:
    """Removes the definition and leaves a tombstone with its cursor and version."""
    del work.catalog.jobs[job.name]
    work.catalog.tombstones[job.name] = Tombstone(job.version, job.planned_until)


def move_run(run: Run, present: Definition, moves: Sequence[TaskMove]) -> None:
    """Takes a run that waits to the present version of its job, its tasks to where `moves` say."""
    names = [task.name for task in present.spec.tasks]
    run.version = present.version
    if not run.tasks:
        return
    places = {move.before: move for move in moves}
    for task in run.tasks:
        move = places[task.progress.position]
        task.progress = task.progress._replace(position=move.after, name=move.name)
    taken = {move.after for move in moves}
    fresh = [place for place in range(len(names)) if place not in taken and run.only is None]
    run.tasks += [Task(TaskProgress(place, names[place], TaskState.PENDING)) for place in fresh]
    run.tasks.sort(key=lambda task: task.progress.position)
