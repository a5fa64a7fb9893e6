"""Declarative tasks in the model store: what each registration is, what it changes, and what sleeps without one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from horae.core.declarative import (
    ABSENT_NOTES,
    NAMESPACE,
    PREFIX,
    WAITING_FOR_REGISTRATION,
    DeclarationResult,
    DeclaredTask,
    KnownTask,
    RegistrationStatus,
    catch_up_cursor,
    classify,
    compared_values,
    state_before_absence,
)
from horae.core.job import ids
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.core.time.instant import EPOCH
from horae.errors import NamespaceConflict, shown
from horae.store.records import Origin
from horae_store_tests.model.creation import set_alarm
from horae_store_tests.model.definitions import checked_batch, make_definition
from horae_store_tests.model.maintenance import take_over
from horae_store_tests.model.rows import Catalog, Job, Run, Work, latest
from horae_store_tests.model.transitions import coalesce_unstarted, end, hand_over_all, hold

_MILLISECOND = timedelta(milliseconds=1)


def declared(catalog: Catalog) -> tuple[DeclaredTask, ...]:
    """Every declarative task, by name, from all its runs that are still there and what is remembered of the others."""
    return tuple(_told(catalog, job) for _, job in sorted(catalog.jobs.items()) if _is_declarative(catalog, job))


def _is_declarative(catalog: Catalog, job: Job) -> bool:
    return catalog.definition(job).spec.namespace == NAMESPACE and job.name.startswith(PREFIX)


def _told(catalog: Catalog, job: Job) -> DeclaredTask:
    runs = [run for run in catalog.runs if run.job_name == job.name]
    pending = [run for run in runs if run.state is RunState.PENDING]
    owners = [run.owner for run in runs if run.state is RunState.RUNNING]
    retries = [(run, at) for run in pending if (at := _retry_at(run)) is not None]
    retry_run, retry_at = retries[-1] if retries else (None, None)
    return DeclaredTask(
        job.name,
        job.version,
        json.dumps(catalog.definition(job).spec.to_dict(), separators=(",", ":"), sort_keys=True, ensure_ascii=False),
        job.state,
        _milliseconds(latest(job.last_attempt_at, *(run.attempted_at for run in runs))),
        _milliseconds(latest(job.last_success_at, *(run.succeeded_at for run in runs))),
        owners[-1] if owners else None,
        any(task.progress.reason == "lost" for run in pending for task in run.tasks),
        _milliseconds(retry_at),
        None if retry_run is None else retry_run.run_id,
        job.asleep,
    )


def _retry_at(run: Run) -> datetime | None:
    """When a run that failed is to be tried again; None where it did not fail, also where its node was lost."""
    return latest(*(task.progress.retry_at for task in run.tasks if task.progress.reason != "lost"))


def _milliseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH) // _MILLISECOND


def declare(work: Work, specs: Sequence[JobSpec], *, by: str) -> tuple[DeclarationResult, ...]:
    wanted = checked_batch(specs)
    for spec in wanted.values():
        known = work.catalog.jobs.get(spec.name)
        if known is not None and not _is_declarative(work.catalog, known):
            raise NamespaceConflict(f"Job {shown(spec.name)} is not a declarative task")
    gone = [node for node in work.catalog.nodes.values() if node.state != "ALIVE" or node.node not in work.catalog.held]
    for node in gone:
        take_over(work, UUID(node.node), node.counter)
    before = {task.job_name: task for task in declared(work.catalog)}
    nodes = {node.node for node in gone}
    answers = [_declare_one(work, spec, before.get(spec.name), nodes, by) for spec in wanted.values()]
    absent = sorted((name for name in before if name not in wanted), key=lambda name: str(ids.job_uuid(name)))
    for name in absent:
        _put_to_sleep(work, work.catalog.jobs[name])
    hand_over_all(work)
    return (*answers, *(DeclarationResult(name, RegistrationStatus.ABSENT) for name in absent))


def _declare_one(work: Work, spec: JobSpec, task: DeclaredTask | None, gone: set[str], by: str) -> DeclarationResult:
    if task is None:
        _create(work, spec, by)
        return DeclarationResult(spec.name, RegistrationStatus.NEW)
    job = work.catalog.jobs[spec.name]
    present = work.catalog.definition(job).spec
    standing = classify(spec, KnownTask(*compared_values(present), task.lost or task.owner in gone))
    before = (job.version, job.state, job.planned_until, job.pause_note)
    if present != spec or compared_values(present) != compared_values(spec):
        _override(work, job, spec)
    before_sleep = state_before_absence(job.state, job.pause_note)
    if before_sleep is not None:
        job.state = before_sleep
        job.pause_note = None
    job.planned_until = catch_up_cursor(standing, job.planned_until, _moment(task.attempted_ms), work.now)
    if (job.version, job.state, job.planned_until, job.pause_note) != before:
        job.updated_at = work.now
        set_alarm(work, job)
    _let_go(work, job)
    if standing is RegistrationStatus.ORPHANED:
        coalesce_unstarted(work, job)
        return DeclarationResult(job.name, standing)
    if task.attempted_ms is None:
        _miss(work, job)
    return DeclarationResult(job.name, standing, task.retry_run, _moment(task.retry_ms))


def _miss(work: Work, job: Job) -> None:
    """A task that has never run is owed this minute and none before it, also where another node planned meanwhile."""
    cursor = catch_up_cursor(RegistrationStatus.NEW, None, None, work.now)
    for run in work.catalog.active(job.name):
        if run.started_at is None and run.origin is Origin.SCHEDULE and run.scheduled_time <= cursor:
            end(work, run, RunState.MISSED, "missed")


def _moment(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + value * _MILLISECOND


def _create(work: Work, spec: JobSpec, by: str) -> None:
    tombstone = work.catalog.tombstones.pop(spec.name, None)
    cursor = catch_up_cursor(
        RegistrationStatus.NEW, None if tombstone is None else tombstone.planned_until, None, work.now
    )
    version = 1 if tombstone is None else tombstone.version + 1
    make_definition(work, spec, version, {})
    job = Job(spec.name, version, JobState.ENABLED, {}, work.now, work.now, by, cursor)
    work.catalog.jobs[job.name] = job
    set_alarm(work, job)


def _override(work: Work, job: Job, spec: JobSpec) -> None:
    """Another version, under which all that has not ended goes on."""
    job.version += 1
    job.paused_run = None
    job.moved_slot = None
    job.moved_to = None
    make_definition(work, spec, job.version, {})
    for run in work.catalog.active(job.name):
        run.version = job.version


def _put_to_sleep(work: Work, job: Job) -> None:
    if job.asleep:
        return
    job.pause_note = ABSENT_NOTES[job.state]
    job.state = JobState.DISABLED
    job.paused_run = None
    job.updated_at = work.now
    set_alarm(work, job)
    hold(work, job)


def _let_go(work: Work, job: Job) -> None:
    """A retry waits for its time again; whatever else was held lines up, and is called where nothing is before it."""
    for run in work.catalog.active(job.name):
        if run.waiting_for != WAITING_FOR_REGISTRATION:
            continue
        retry_at = _retry_at(run)
        run.waiting_for = None if retry_at is None else "retry"
        run.not_before = retry_at
        if retry_at is None:
            run.move(RunState.QUEUED)
        work.ended.append(job.name)
