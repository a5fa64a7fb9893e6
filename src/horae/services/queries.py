"""Operations that read a catalog, for every front end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf

from horae.core.access import Privilege
from horae.core.job import ids
from horae.core.job.definition import job_not_found
from horae.core.job.policies import checked_choice
from horae.core.report.report import RunReport, build_report
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.verdict import StartFacts
from horae.core.time.duration import DurationLike, parse_duration
from horae.errors import InvalidInput, WaitExpired, shown
from horae.security.access import AccessChecker
from horae.services.commands import StoreCaller
from horae.services.explain.explanation import Line, explain_job, slot_to_explain
from horae.services.explain.verdict_facts import start_facts
from horae.services.explain.wait_facts import ReadableCatalog, with_waits
from horae.store.protocols.store import JobRecord, RunHistory, RunRecord

PAGE = 1000
VIEW = Privilege.VIEW_JOB_HISTORY


_FIRST_LOOK, _LAST_LOOK = 0.01, 0.5
"""Shortest and longest pause, in seconds, between two reads of a run that is waited for. Most runs are short."""


def wait_seconds(timeout: DurationLike | None) -> float | None:
    return None if timeout is None else parse_duration(timeout).total_seconds()


def wait_expired(run_id: str, job: str, state: str, timeout: object) -> WaitExpired:
    return WaitExpired(
        f"Run {run_id} of job {shown(job)} is still {state} after {timeout}",
        hint=f"It goes on: wait again, or look at what it waits for with horae run show {run_id}.",
        details={"run_id": run_id, "state": str(state)},
    )


class Queries(StoreCaller):
    """Reads of the catalog, as far as the gate allows; without a gate, of everything."""

    def __init__(self, store: ReadableCatalog, *, gate: AccessChecker | None = None, alone: bool = True) -> None:
        super().__init__(store, gate, alone=alone)
        self._catalog = store

    async def get_job(self, name: str) -> JobRecord:
        found = await self._asked(lambda: self._store.jobs([name]))
        if not found:
            raise job_not_found(name)
        if self._gate is not None:
            await self._gate.require(VIEW, name, owner=found[0].owner, action="look at it")
        return found[0]

    async def jobs(self, tag: str | None = None, state: str | None = None) -> list[JobRecord]:
        """Returns every job that the caller may see, in name order; with `tag` or `state` only those that have it."""
        ids.checked_text(tag, "tag")
        wanted = None if state is None else JobState(checked_choice(state, tuple(JobState), "state"))
        found: list[JobRecord] = []
        while True:
            after = found[-1].name if found else None
            page = await self._store.jobs(tag=tag, state=wanted, after=after, limit=PAGE)
            found += page
            if len(page) < PAGE:
                break
        gate = self._gate
        return found if gate is None else [job for job in found if gate.holds(VIEW, job.name, owner=job.owner)]

    async def runs(self, job: str | None = None, state: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Returns runs of one job, or of all jobs, the newest first. Raises AccessDenied, JobNotFound."""
        wanted = None if state is None else RunState(checked_choice(state, tuple(RunState), "state"))
        if job is not None:
            ids.checked_name(job)
        if type(limit) is not int or limit < 1:
            raise InvalidInput(f"Invalid limit {shown(limit)}: must be a whole number from 1")
        if job is not None:
            await self._look_at(job)
        elif self._gate is not None:
            await self._gate.require(VIEW, action="look at the runs of all jobs")
        return await self._waits(await self._asked(lambda: self._store.runs(job=job, state=wanted, limit=limit)))

    async def active(self, name: str) -> list[RunRecord]:
        """The job's runs that have not ended, the newest first."""
        await self._look_at(name)
        return await self._waits(await self._asked(lambda: self._store.runs(job=name, active=True, limit=PAGE)))

    async def explain(self, job: JobRecord, now: datetime, at: datetime | None = None) -> list[Line]:
        """Explains why the job's run of the scheduled time `at`, or of the next one, starts or does not. Returns pairs
        of step and text."""
        await self._look_at(job.name)
        stored = await self._asked(lambda: self._store.runs(job=job.name, active=True, limit=PAGE))
        active, slot = await self._waits(stored), slot_to_explain(job, now, at)
        facts = StartFacts()
        if slot is not None:
            around = (job, stored, active, slot, now)
            facts = await self._asked(lambda: start_facts(self._catalog, *around, names_others=self._sees_all))
        return explain_job(job, active, facts, slot, now)

    @property
    def _sees_all(self) -> bool:
        return self._gate is None or self._gate.seen() is None

    async def _waits(self, runs: Sequence[RunRecord]) -> list[RunRecord]:
        return await self._asked(lambda: with_waits(self._catalog, runs, names_others=self._sees_all))

    async def _look_at(self, name: str) -> None:
        if self._gate is not None:
            await self.get_job(name)

    async def history(self, run_id: str) -> RunHistory:
        """One run with its tasks and their attempts."""
        history = await self._asked(lambda: self._store.history(str(run_id)))
        await self._look_at(history.record.job_name)
        (record,) = await self._waits([history.record])
        return replace(history, record=record)

    async def report(self, run_id: str) -> RunReport:
        history = await self.history(run_id)
        return build_report(history.run, history.tasks)

    async def wait(self, run_id: str, timeout: DurationLike | None = None) -> RunReport:
        """Waits until a run has ended, and returns its report. Raises WaitExpired where it has not ended after
        `timeout`, RunNotFound."""
        limit = wait_seconds(timeout)
        loop = asyncio.get_running_loop()
        began, pause = loop.time(), _FIRST_LOOK
        while True:
            history = await self.history(run_id)
            if history.record.completed_at is not None:
                return build_report(history.run, history.tasks)
            left = inf if limit is None else began + limit - loop.time()
            if left <= 0:
                raise wait_expired(history.record.run_id, history.record.job_name, history.record.state, timeout)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LAST_LOOK)

    async def output(self, attempt_id: str) -> str:
        ids.checked_id(attempt_id, ids.ATTEMPT)
        if self._gate is not None:
            await self._gate.require_output(attempt_id)
        return await self._asked(lambda: self._store.read_output(attempt_id))

    async def is_running(self, name: str) -> bool:
        """Whether any node runs the job now, as the catalog has it."""
        await self.get_job(name)
        return bool(await self._asked(lambda: self._store.runs(job=name, state=RunState.RUNNING, limit=1)))

    async def next_run(self, name: str) -> datetime | None:
        return (await self.get_job(name)).next_run_time

    async def last_run(self, name: str) -> datetime | None:
        """Returns the start of the latest run that started, among the job's newest PAGE runs; None: none of them
        did."""
        await self._look_at(name)
        for run in await self._asked(lambda: self._store.runs(job=name, limit=PAGE)):
            if run.started_at is not None:
                return run.started_at
        return None
