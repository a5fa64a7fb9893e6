"""What people may ask to be told: one read service behind every surface."""

from __future__ import annotations

from datetime import datetime

from horae.control.commands import job_not_found
from horae.core import ids
from horae.core.lifecycle import JobState, RunState
from horae.core.policy import chosen
from horae.core.report import Report, build_report
from horae.errors import InvalidInput, shown
from horae.store.port import JobRecord, RunRecord, Store
from horae.store.repeat import repeated

PAGE = 1000


class Queries:
    """Reads the catalog."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get_job(self, name: str) -> JobRecord:
        found = await repeated(lambda: self._store.jobs([name]))
        if not found:
            raise job_not_found(name)
        return found[0]

    async def jobs(self, tag: str | None = None, state: str | None = None) -> list[JobRecord]:
        """Every job, in name order, perhaps only those with a tag or in a state."""
        ids.checked_text(tag, "tag")
        wanted = None if state is None else JobState(chosen(state, tuple(JobState), "state"))
        found: list[JobRecord] = []
        while True:
            after = found[-1].name if found else None
            page = await self._store.jobs(tag=tag, state=wanted, after=after, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found

    async def runs(self, job: str | None = None, state: str | None = None, limit: int = 100) -> list[RunRecord]:
        """The newest first."""
        wanted = None if state is None else RunState(chosen(state, tuple(RunState), "state"))
        if job is not None:
            ids.checked_name(job)
        if type(limit) is not int or limit < 1:
            raise InvalidInput(f"Invalid limit {shown(limit)}: must be a whole number from 1")
        return list(await repeated(lambda: self._store.runs(job=job, state=wanted, limit=limit)))

    async def report(self, run_id: str) -> Report:
        history = await repeated(lambda: self._store.history(str(run_id)))
        return build_report(history.run, history.tasks)

    async def output(self, attempt_id: str) -> str:
        ids.checked_id(attempt_id, ids.ATTEMPT)
        return await repeated(lambda: self._store.read_output(attempt_id))

    async def is_running(self, name: str) -> bool:
        """Whether a run of the job is under way, on whatever node: the catalog is asked, not this process."""
        await self.get_job(name)
        return bool(await repeated(lambda: self._store.runs(job=name, state=RunState.RUNNING, limit=1)))

    async def next_run(self, name: str) -> datetime | None:
        return (await self.get_job(name)).next_run_time

    async def last_run(self, name: str) -> datetime | None:
        """When the latest run of the job that started did so."""
        for run in await repeated(lambda: self._store.runs(job=name, limit=PAGE)):
            if run.started_at is not None:
                return run.started_at
        return None
