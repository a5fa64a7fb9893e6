"""Hand-over: frees what waited for the end of a run: the next QUEUED run of its job, and runs of dependent jobs.

It also finishes Once jobs that are done. It is called in the transaction that ended the run, with its job locked, after
the endings are written. The jobs of runs that end as a consequence are locked as they come up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from horae.core.declarative import WAITING_FOR_REGISTRATION
from horae.core.job import ids
from horae.core.job.dependencies import dependency_window, judge
from horae.core.run.job_view import deadline_passed
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ended_by_state, hand_over, superseded
from horae.core.schedule.schedules import Once
from horae.store.catalog.definition_cache import CompiledDefinition
from horae.store.catalog.jobs.pause import leave_pause
from horae.store.catalog.row_codec import JobRow, milliseconds, moment
from horae.store.catalog.unit_of_work import Active, UnitOfWork
from horae.store.driver import Row


async def after_endings(work: UnitOfWork, job_uuids: Sequence[str], *, once: bool = True) -> int:
    """Hands over for each job of which a run ended. Returns how many runs and jobs moved.

    A declarative job that sleeps frees no run of its own: those that wait are held until its registration. `once=False`
    leaves Once jobs that are done to the caller.
    """
    moved = 0
    pending = list(dict.fromkeys(job_uuids))
    while pending:
        batch, pending = pending, []
        jobs = await work.lock_jobs(uuids=batch)
        active = await work.active(batch)
        asleep = sorted(job.uuid for job in jobs.values() if job.asleep)
        if asleep:
            await work.transaction.rows("hold_runs", jobs=asleep, waiting_for=WAITING_FOR_REGISTRATION)
        for job_uuid in batch:
            if job_uuid in active and job_uuid in jobs and job_uuid not in asleep:
                give_up_retries(work, jobs[job_uuid], active[job_uuid])
            if job_uuid in active and job_uuid not in asleep:
                moved += await _next_in_line(work, job_uuid, jobs.get(job_uuid), active[job_uuid])
        freed, pending = await judge_dependents(work, batch)
        moved += freed + len(pending)
        pending = list(dict.fromkeys(pending))
        if once:
            moved += await finish_once_jobs(work, jobs.values())
    if moved:
        work.transaction.wake()
    return moved


def give_up_retries(work: UnitOfWork, job: JobRow, active: Active) -> None:
    compiled = work.definition(job)
    if compiled.definition.fault is not None:
        return
    retry = compiled.settings.retry
    for ending in ended_by_state([run for _, run, _ in active.values()], retry, JobState(job.state)):
        work.end_unstarted(active.pop(ending.run_id)[0], ending.state, ending.reason)


async def _next_in_line(work: UnitOfWork, job_uuid: str, job: JobRow | None, active: Active) -> int:
    """Frees the next QUEUED run, and ends those before it whose deadline has passed. Returns how many rows moved.

    Where the definition of the job or of that run cannot be read here, its queue is left to a node that can read it.
    """
    queued = [number for number, run, _ in active.values() if run.state is RunState.QUEUED]
    if not queued:
        return 0
    rows = await work.lock_runs(queued)
    moved = 0
    while True:
        version = job.version if job is not None else next(iter(rows.values())).version
        compiled = await work.cache.one(work.transaction, job_uuid, version)
        settings = compiled.settings
        if compiled.definition.fault is not None:
            break
        chosen = hand_over([run for _, run, _ in active.values()], work.moment, settings.retry, settings.overlap)
        if chosen is None:
            break
        row = rows[active[chosen][0]]
        own = await work.cache.one(work.transaction, job_uuid, row.version)
        if own.definition.fault is not None:
            break
        number, run, _ = active.pop(chosen)
        moved += 1
        for ending in superseded([other for _, other, _ in active.values()], compiled.settings.retry):
            work.end_unstarted(active.pop(ending.run_id)[0], ending.state, ending.reason)
        if row.started_at is None and deadline_passed(run.chosen_time, own.settings.deadline, work.moment):
            work.end_unstarted(number, RunState.MISSED, "deadline")
            continue
        waiting = None
        if row.origin == "SCHEDULE" and own.definition.spec.depends_on:
            waiting = await dependencies_unmet(work, own, run.scheduled_time)
        if waiting is RunState.SKIPPED:
            work.end_unstarted(number, RunState.SKIPPED, "dependencies")
            continue
        if waiting is RunState.PENDING:
            work.write("wait_runs", (number, "dependencies"))
        else:
            work.write("ready_runs", (number, work.now))
        break
    await work.flush()
    return moved


async def dependencies_unmet(work: UnitOfWork, compiled: CompiledDefinition, slot: datetime) -> RunState | None:
    """Returns PENDING while the run of `slot` must wait for other jobs, SKIPPED where it waited too long or a job that
    it waits for is gone, None where it may go."""
    spec = compiled.definition.spec
    if spec.schedule is None or not spec.depends_on:
        return None
    window = dependency_window(spec.schedule, slot)
    names = {str(ids.job_uuid(name)): name for name in spec.depends_on}
    latest: dict[str, RunState | None] = dict.fromkeys(spec.depends_on)
    await work.flush()
    rows = await work.transaction.rows(
        "latest_in_window",
        jobs=sorted(names),
        after=-(2**62) if window.after is None else milliseconds(window.after),
        until=milliseconds(window.until),
        after_key="schedule:" if window.after is None else ids.schedule_key(window.after),
        until_key=ids.schedule_key(window.until),
    )
    for job_uuid, state in rows:
        latest[names[job_uuid]] = RunState(state)
    verdict = judge(latest, window, work.moment)
    without = sorted(name for name, state in latest.items() if state is None)
    if verdict is RunState.PENDING and without:
        known = {row[0] for row in await work.transaction.rows("known_names", names=without)}
        if not known.issuperset(without):
            # Its owner has dropped that job, so there will be no run to wait for.
            return RunState.SKIPPED
    return verdict


async def judge_dependents(work: UnitOfWork, job_uuids: Sequence[str] | None) -> tuple[int, list[str]]:
    """Judges the runs again that wait for these jobs (None: any). Returns how many were freed, and the jobs of those
    that ended."""
    await work.flush()
    if job_uuids is None:
        rows = await work.transaction.rows("lock_waiting_runs")
    else:
        rows = await work.transaction.rows("lock_dependent_runs", jobs=list(job_uuids))
    return await _judge_again(work, rows)


async def judge_left(work: UnitOfWork, waiting: Sequence[Row], gone: Sequence[str]) -> None:
    """Judges the runs again, as `lock_dependent_runs` selects them, that waited for jobs that are gone now."""
    _, ended = await _judge_again(work, [row for row in waiting if row[1] not in gone])
    await after_endings(work, ended)


async def judge_waiting_of(work: UnitOfWork, job_uuid: str) -> bool:
    """Judges one locked job's runs again that wait for other jobs: their wait ends at the job's next scheduled time.

    Returns whether a run ended.
    """
    await work.flush()
    _, ended = await _judge_again(work, await work.transaction.rows("lock_waiting_runs_of", job=job_uuid))
    return bool(ended)


async def _judge_again(work: UnitOfWork, rows: Sequence[Row]) -> tuple[int, list[str]]:
    freed, ended = 0, []
    for number, job_uuid, version, scheduled in rows:
        compiled = await work.cache.one(work.transaction, job_uuid, version)
        if compiled.definition.fault is not None:
            # What it depends on cannot be read here.
            continue
        waiting = await dependencies_unmet(work, compiled, moment(scheduled))
        if waiting is None:
            work.write("ready_runs", (number, work.now))
            freed += 1
        elif waiting is RunState.SKIPPED:
            work.end_unstarted(number, RunState.SKIPPED, "dependencies")
            ended.append(job_uuid)
    await work.flush()
    return freed, ended


async def finish_once_jobs(work: UnitOfWork, jobs: Iterable[JobRow]) -> int:
    """Disables or drops Once jobs that are done: the cursor has reached their time, and no run of theirs is active.

    One that other jobs of its owner depend on is only disabled, because they would wait in vain for a dropped job.
    Returns how many changed.
    """
    done = [job for job in jobs if _is_done(work, job)]
    if not done:
        return 0
    active = await work.active([job.uuid for job in done])
    dependents = await work.transaction.rows("dependents_of", jobs=[job.uuid for job in done])
    needed = {name for _, name, is_same_owner in dependents if is_same_owner}
    finished = 0
    for job in done:
        if any(not run.is_over for _, run, _ in active.get(job.uuid, {}).values()):
            continue
        if _drops(work, job) and job.name not in needed:
            finished += 1
            # No caller asked for this drop, so the audit row names the author of the version that drops itself.
            [(author,)] = await work.transaction.rows("read_author", job=job.uuid, version=job.version)
            await remove_jobs(work, [job], "horae", version=job.version, written_by=author)
        elif job.state != "DISABLED":
            finished += 1
            job.state, job.wake_at, job.next_run_time = "DISABLED", None, None
            work.write("save_jobs", job.saved())
    await work.flush()
    return finished


def _is_done(work: UnitOfWork, job: JobRow) -> bool:
    schedule = work.definition(job).definition.spec.schedule
    if not isinstance(schedule, Once) or milliseconds(schedule.at) > job.planned_until:
        return False
    return job.state != "DISABLED" or _drops(work, job)


def _drops(work: UnitOfWork, job: JobRow) -> bool:
    compiled = work.definition(job)
    schedule = compiled.definition.spec.schedule
    return compiled.settings.on_completion == "drop" or (isinstance(schedule, Once) and schedule.drop)


async def remove_jobs(work: UnitOfWork, jobs: Sequence[JobRow], by: str, **told: Any) -> None:
    """Removes jobs with the grants on them, and leaves tombstones with their cursors. Their history stays. `told` is
    added to the details of the audit rows."""
    await work.flush()
    for job in jobs:
        await leave_pause(work, job)
    await work.transaction.many(
        "insert_tombstones", [(job.uuid, job.name, job.planned_until, job.version, work.now, by) for job in jobs]
    )
    await work.transaction.many("delete_jobs", [(job.uuid,) for job in jobs])
    # A later job of that name may have another owner.
    await work.transaction.rows("delete_grants_on_jobs", names=[job.name for job in jobs])
    for job in jobs:
        work.audit("JOB_DELETED", job.uuid, None, by, "OK", name=job.name, **told)
    await work.flush()
