"""Brings the registrations of a declarative scheduler into the catalog, in one transaction.

`core.declarative` decides what each registration is to the catalog, and which missed minutes it catches up on. This
module creates and changes the jobs, puts those that are no longer registered to sleep, and wakes them. Unlike `define`,
a change creates no runs of the old schedule: the missed minutes are those of the new expression.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from horae.core.declarative import (
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
from horae.core.job.definition import JobSpec
from horae.core.job.ids import RUN, job_key
from horae.core.run.lifecycle import RunState
from horae.errors import NamespaceConflict, shown
from horae.store.catalog.definition_cache import build, check_batch
from horae.store.catalog.jobs.definition import JobDefiner
from horae.store.catalog.jobs.pause import leave_pause
from horae.store.catalog.maintenance import coalesce_unstarted, take_over
from horae.store.catalog.people.audit_trail import digest_of
from horae.store.catalog.row_codec import JobRow, definition_text, job_columns, milliseconds, moment, optional_moment
from horae.store.catalog.runs.handover import after_endings
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.records import Definition


async def declared(work: UnitOfWork) -> tuple[DeclaredTask, ...]:
    """Every declarative task of the catalog, by name."""
    rows = await work.transaction.rows("declared_tasks", namespace=NAMESPACE, prefix=PREFIX)
    return tuple(
        DeclaredTask(
            name,
            version,
            definition,
            state,
            attempted,
            succeeded,
            owner,
            bool(lost),
            None if retry is None else json.loads(retry)[1],
            None if retry is None else RUN + json.loads(retry)[0],
            state_before_absence(state, note) is not None,
        )
        for _, name, version, definition, state, note, _, attempted, succeeded, owner, lost, retry in rows
    )


class Declarer(JobDefiner):
    """One declare transaction."""

    def __init__(self, work: UnitOfWork, *, by: str, unplannable: set[str]) -> None:
        super().__init__(
            work, by=by, source="code", defaults={}, expected={}, reason="declared", unplannable=unplannable
        )

    async def declare(
        self, specs: Sequence[JobSpec], gone: Sequence[str], dead: Sequence[tuple[str, int]]
    ) -> tuple[DeclarationResult, ...]:
        """Applies the registrations `specs`, and returns what each was, then the tasks that are no longer registered.

        `gone` are nodes that are not ALIVE or whose liveness lock is free. Those of them that are known to be `dead`,
        with their counters, are taken over here. Maintenance takes over the others soon after.
        """
        check_batch(specs)
        work = self.work
        await work.transaction.rows("lock_namespace", namespace=NAMESPACE)
        if dead:
            self._recognise(specs, await declared(work))
        for node, counter in dead:
            await take_over(work, node, counter)
        found = await declared(work)
        self._recognise(specs, found)
        tasks = {task.job_name: task for task in found}
        locked = await self._lock()
        jobs = {job.name: job for job in locked}
        fresh = [spec for spec in specs if spec.name not in jobs]
        await self._check_free(fresh)
        await self._create(fresh)
        answers = [self._answer(spec, tasks.get(spec.name), gone) for spec in specs]
        for spec, answer in zip(specs, answers, strict=True):
            if spec.name in jobs:
                await self._go_on(jobs[spec.name], spec, tasks[spec.name], answer)
        registered = {spec.name for spec in specs}
        asleep = [await self._put_to_sleep(job) for job in locked if job.name not in registered and not job.asleep]
        await work.flush()
        held = {row[0] for row in await work.transaction.rows("jobs_held", waiting_for=WAITING_FOR_REGISTRATION)}
        woken = sorted(job.uuid for job in locked if job.name in registered and job.uuid in held)
        if woken:
            await work.transaction.rows("let_runs_go", jobs=woken, waiting_for=WAITING_FOR_REGISTRATION)
        if asleep:
            await work.transaction.rows("hold_runs", jobs=asleep, waiting_for=WAITING_FOR_REGISTRATION)
        cut_off = {answer.job_name for answer in answers if answer.standing is RegistrationStatus.ORPHANED}
        await coalesce_unstarted(work, [job.uuid for job in locked if job.name in cut_off])
        new = [task.job_name for task in found if task.attempted_ms is None and task.job_name not in cut_off]
        missed = await self._miss([jobs[name].uuid for name in new if name in registered])
        if woken or missed:
            await after_endings(work, [*woken, *missed])
        work.transaction.wake()
        return (
            *answers,
            *(DeclarationResult(job.name, RegistrationStatus.ABSENT) for job in locked if job.name not in registered),
        )

    async def _miss(self, never_run: Sequence[str]) -> list[str]:
        """Ends MISSED the runs of tasks that have never run, for minutes before the present one: a new task does not
        catch up on those. Returns the jobs that had such runs."""
        if not never_run:
            return []
        cursor = milliseconds(catch_up_cursor(RegistrationStatus.NEW, None, None, self.work.moment))
        rows = await self.work.transaction.rows("unowed_runs", jobs=list(never_run), until=cursor)
        for number, _ in rows:
            self.work.end_unstarted(number, RunState.MISSED, "missed")
        await self.work.flush()
        return list(dict.fromkeys(row[1] for row in rows))

    def _recognise(self, specs: Sequence[JobSpec], tasks: Sequence[DeclaredTask]) -> None:
        """Caches the definitions that equal their registrations, because parsing very many takes long."""
        cache = self.work.cache
        registered = {spec.name: spec for spec in specs}
        for task in tasks:
            spec, uuid = registered.get(task.job_name), job_key(task.job_name)
            if spec is None or task.definition is None or cache.get(uuid, task.version) is not None:
                continue
            if task.definition == definition_text(spec):
                cache.put(uuid, build(spec, task.version, self.defaults))

    async def _lock(self) -> list[JobRow]:
        rows = [
            JobRow(row)
            for row in await self.work.transaction.rows("lock_declared_jobs", namespace=NAMESPACE, prefix=PREFIX)
        ]
        await self.work.load(rows)
        return rows

    def _answer(self, spec: JobSpec, task: DeclaredTask | None, gone: Sequence[str]) -> DeclarationResult:
        known = None if task is None else self._known(task, gone)
        standing = classify(spec, known)
        retrying = task is not None and standing is not RegistrationStatus.ORPHANED
        return DeclarationResult(
            spec.name,
            standing,
            task.retry_run if task is not None and retrying else None,
            optional_moment(task.retry_ms) if task is not None and retrying else None,
        )

    def _known(self, task: DeclaredTask, gone: Sequence[str]) -> KnownTask:
        spec = self.work.cache[job_key(task.job_name), task.version].definition.spec
        return KnownTask(*compared_values(spec), task.owner in gone or task.lost)

    def _first_cursor(self, spec: JobSpec, buried: int | None) -> int:
        at = None if buried is None else moment(buried)
        return milliseconds(catch_up_cursor(RegistrationStatus.NEW, at, None, self.work.moment))

    async def _check_free(self, specs: Sequence[JobSpec]) -> None:
        """Raises NamespaceConflict where a job that is not a declarative task has one of these names."""
        taken = await self.work.transaction.rows("known_names", names=[spec.name for spec in specs]) if specs else []
        for (name,) in taken:
            raise NamespaceConflict(
                f"Job {shown(name)} is not a declarative task", hint="Drop it, or give the task another name."
            )

    async def _go_on(self, job: JobRow, spec: JobSpec, task: DeclaredTask, answer: DeclarationResult) -> None:
        """Updates a known job to its registration, and sets its cursor to where catch-up begins."""
        work = self.work
        present = work.definition(job).definition
        before = (job.version, job.state, job.planned_until, job.pause_note)
        # Two expressions that mean the same are equal, but their texts may differ.
        if present.spec != spec or compared_values(present.spec) != compared_values(spec):
            await self._override(job, build(spec, job.version + 1, {}))
        if job.asleep:
            job.wake_up()
        attempted = optional_moment(task.attempted_ms)
        cursor = catch_up_cursor(answer.standing, moment(job.planned_until), attempted, work.moment)
        job.planned_until = milliseconds(cursor)
        if (job.version, job.state, job.planned_until, job.pause_note) != before:
            self._ahead.look(job)
            job.updated_at = work.now
            work.write("save_jobs", job.saved())

    async def _override(self, job: JobRow, definition: Definition) -> None:
        """Writes a new version. Runs that have not ended go on under it, because it has the same single task."""
        work = self.work
        await leave_pause(work, job)
        job.version = definition.version
        job.updated_at = work.now
        job.moved_slot = job.moved_to = None
        work.learn(job.uuid, definition)
        text = definition_text(definition.spec)
        written = self._version(job.uuid, definition, text)
        await work.transaction.many("insert_versions", [written])
        await work.transaction.many("change_jobs", [(job.uuid, *job_columns(definition), job.version)])
        await work.transaction.rows("move_active_runs", job=job.uuid, version=job.version)
        told = {"name": job.name, "version": job.version, "reason": self.reason}
        work.audit_version("JOB_MODIFIED", job.uuid, self.by, told, digest_of(written))

    async def _put_to_sleep(self, job: JobRow) -> str:
        work = self.work
        await leave_pause(work, job)
        job.fall_asleep()
        job.updated_at = work.now
        work.write("save_jobs", job.saved())
        work.audit(
            "JOB_MODIFIED", job.uuid, None, self.by, "OK", name=job.name, state="DISABLED", reason=job.pause_note
        )
        return str(job.uuid)
