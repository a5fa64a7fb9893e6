"""Declaring: a declarative scheduler's registrations against what the catalog has of its tasks, in one transaction.

What each task is, and which minutes it is owed, `core.declarative` says. Jobs are created, changed, woken and put to
sleep here. Unlike `define`, a change bears nothing of the old schedule: the minutes that were missed are those of the
expression that counts now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from horae.core.declarative import (
    DORMANT,
    NAMESPACE,
    PREFIX,
    Declared,
    DeclaredTask,
    Known,
    Standing,
    classify,
    known_of,
    owed_after,
    state_before_sleep,
)
from horae.core.ids import RUN, job_key
from horae.core.job import JobSpec
from horae.core.lifecycle import RunState
from horae.errors import NamespaceConflict, shown
from horae.store.defining import Definer
from horae.store.definitions import build, check_batch
from horae.store.handover import after_endings
from horae.store.keeping import coalesce_unstarted, take_over
from horae.store.pause import leave_pause
from horae.store.records import Definition
from horae.store.rows import JobRow, definition_text, job_columns, milliseconds, moment, optional_moment
from horae.store.sealing import digest_of
from horae.store.work import Work


async def declared(work: Work) -> tuple[DeclaredTask, ...]:
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
            state_before_sleep(state, note) is not None,
        )
        for _, name, version, definition, state, note, _, attempted, succeeded, owner, lost, retry in rows
    )


class Declarer(Definer):
    """One declare transaction."""

    def __init__(self, work: Work, *, by: str, unplannable: set[str]) -> None:
        super().__init__(
            work, by=by, source="code", defaults={}, expected={}, reason="declared", unplannable=unplannable
        )

    async def declare(
        self, specs: Sequence[JobSpec], gone: Sequence[str], dead: Sequence[tuple[str, int]]
    ) -> tuple[Declared, ...]:
        """`gone` are nodes whose liveness lock is free; those of them that are known to be `dead`, with their counters,
        are taken over here, and the others soon after by whoever keeps house."""
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
        held = {row[0] for row in await work.transaction.rows("jobs_held", waiting_for=DORMANT)}
        woken = sorted(job.uuid for job in locked if job.name in registered and job.uuid in held)
        if woken:
            await work.transaction.rows("let_runs_go", jobs=woken, waiting_for=DORMANT)
        if asleep:
            await work.transaction.rows("hold_runs", jobs=asleep, waiting_for=DORMANT)
        cut_off = {answer.job_name for answer in answers if answer.standing is Standing.ORPHANED}
        await coalesce_unstarted(work, [job.uuid for job in locked if job.name in cut_off])
        new = [task.job_name for task in found if task.attempted_ms is None and task.job_name not in cut_off]
        missed = await self._miss([jobs[name].uuid for name in new if name in registered])
        if woken or missed:
            await after_endings(work, [*woken, *missed])
        work.transaction.wake()
        return (*answers, *(Declared(job.name, Standing.ABSENT) for job in locked if job.name not in registered))

    async def _miss(self, never_run: Sequence[str]) -> list[str]:
        """Ends what was born for a task that has never run, for minutes in which nobody could have run it: those it is
        not owed. Answers the jobs that had such runs."""
        if not never_run:
            return []
        cursor = milliseconds(owed_after(Standing.NEW, None, None, self.work.moment))
        rows = await self.work.transaction.rows("unowed_runs", jobs=list(never_run), until=cursor)
        for number, _ in rows:
            self.work.end_unstarted(number, RunState.MISSED, "missed")
        await self.work.flush()
        return list(dict.fromkeys(row[1] for row in rows))

    def _recognise(self, specs: Sequence[JobSpec], tasks: Sequence[DeclaredTask]) -> None:
        """What is as it is registered now need not be read to be known, which for very many takes its time."""
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

    def _answer(self, spec: JobSpec, task: DeclaredTask | None, gone: Sequence[str]) -> Declared:
        known = None if task is None else self._known(task, gone)
        standing = classify(spec, known)
        retrying = task is not None and standing is not Standing.ORPHANED
        return Declared(
            spec.name,
            standing,
            task.retry_run if task is not None and retrying else None,
            optional_moment(task.retry_ms) if task is not None and retrying else None,
        )

    def _known(self, task: DeclaredTask, gone: Sequence[str]) -> Known:
        spec = self.work.cache[job_key(task.job_name), task.version].definition.spec
        return Known(*known_of(spec), task.owner in gone or task.lost)

    def _first_cursor(self, spec: JobSpec, buried: int | None) -> int:
        at = None if buried is None else moment(buried)
        return milliseconds(owed_after(Standing.NEW, at, None, self.work.moment))

    async def _check_free(self, specs: Sequence[JobSpec]) -> None:
        """Raises NamespaceConflict where a job that is nobody's registration has the name of one."""
        taken = await self.work.transaction.rows("known_names", names=[spec.name for spec in specs]) if specs else []
        for (name,) in taken:
            raise NamespaceConflict(
                f"Job {shown(name)} is not a declarative task", hint="Drop it, or give the task another name."
            )

    async def _go_on(self, job: JobRow, spec: JobSpec, task: DeclaredTask, answer: Declared) -> None:
        """Brings a known job to what is registered now, with its cursor where what it is owed begins."""
        work = self.work
        present = work.definition(job).definition
        before = (job.version, job.state, job.planned_until, job.pause_note)
        # Two expressions that mean the same are equal, and yet not the same text.
        if present.spec != spec or known_of(present.spec) != known_of(spec):
            await self._override(job, build(spec, job.version + 1, {}))
        if job.asleep:
            job.wake_up()
        attempted = optional_moment(task.attempted_ms)
        cursor = owed_after(answer.standing, moment(job.planned_until), attempted, work.moment)
        job.planned_until = milliseconds(cursor)
        if (job.version, job.state, job.planned_until, job.pause_note) != before:
            self._ahead.look(job)
            job.updated_at = work.now
            work.write("save_jobs", job.saved())

    async def _override(self, job: JobRow, definition: Definition) -> None:
        """Another version. What has not ended goes on under it: it has the same one task."""
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
