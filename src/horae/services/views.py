"""Lists and pages for one principal: every list has only the jobs that the principal may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.core.job import ids
from horae.core.job.definition import JobSpec
from horae.errors import InvalidDefinition, JobNotFound
from horae.security.access import AccessChecker
from horae.services.commands import StoreCaller
from horae.services.explain.wait_facts import ReadableCatalog, with_waits
from horae.services.queries import VIEW, Queries
from horae.store.protocols.reads import (
    UNREADABLE,
    AuditEntry,
    JobsPage,
    JobsQuery,
    OutputPart,
    OverdueCounts,
    RecentRun,
    RunPace,
    RunsQuery,
    ScheduleFields,
    Tally,
    VersionRecord,
    VisibleJobs,
)
from horae.store.protocols.store import JobRecord, RunRecord

__all__ = [
    "JobsPage",
    "JobsQuery",
    "OverdueCounts",
    "RecentRun",
    "RunPace",
    "RunsQuery",
    "Tally",
    "VersionRecord",
    "Views",
    "VisibleJobs",
]


class Views(StoreCaller):
    """A store's `Board`, behind a gate."""

    def __init__(self, store: ReadableCatalog, gate: AccessChecker, queries: Queries) -> None:
        super().__init__(store, gate, alone=True)
        self._board = store
        self._door = gate
        self._queries = queries

    @property
    def seen(self) -> VisibleJobs | None:
        """The jobs that lists show; None: all of them."""
        return self._door.seen()

    async def list_jobs(self, asked: JobsQuery) -> JobsPage:
        return await self._asked(lambda: self._board.list_jobs(replace(asked, seen_by=self.seen)))

    async def last_runs(self, names: Sequence[str], most: int) -> Mapping[str, tuple[RecentRun, ...]]:
        """Returns the latest runs of jobs that `list_jobs` returned. It does not check access again."""
        return await self._asked(lambda: self._board.last_runs(names, most)) if names and most else {}

    async def schedules(self, names: Sequence[str]) -> Mapping[str, ScheduleFields]:
        """Returns what `cb_schedules` has of jobs that `list_jobs` returned. It does not check access again."""
        return await self._asked(lambda: self._board.schedules(names)) if names else {}

    async def dependents(self, job: str, most: int) -> tuple[JobRecord, ...]:
        """Returns the jobs that depend on `job` and that the caller may see. The caller has checked access to `job`."""
        found = await self._asked(lambda: self._board.dependents(job, most))
        return tuple(each for each in found if self._door.holds(VIEW, each.name, owner=each.owner))

    async def list_runs(self, asked: RunsQuery) -> tuple[RunRecord, ...]:
        """Returns a page of runs. Raises AccessDenied for a job that the caller may not see, and JobNotFound where
        neither the job nor runs of it exist. The runs left of a dropped job are for callers who may see everything."""
        name = asked.job
        if name is not None:
            ids.checked_name(name)
            if self.seen is not None:
                await self._queries.get_job(name)
        found = await self._asked(lambda: self._board.list_runs(replace(asked, seen_by=self.seen)))
        if name is not None and not found and asked.before is None:
            await self._queries.get_job(name)
        return tuple(await with_waits(self._board, found, names_others=self.seen is None))

    async def tally(
        self, since: datetime, until: datetime, step: timedelta, *, job: str | None = None
    ) -> tuple[Tally, ...]:
        if job is not None:
            await self._queries.get_job(job)
        return await self._asked(lambda: self._board.tally(since, until, step, job=job, seen_by=self.seen))

    async def pace(self, most: int = 500) -> tuple[RunPace, ...]:
        return await self._asked(lambda: self._board.pace(most=most, seen_by=self.seen))

    async def overdue(self, grace: timedelta) -> OverdueCounts:
        """Returns what is overdue, of all jobs. Requires the privilege to see all jobs."""
        await self._door.require(VIEW, action="look at what is overdue")
        return await self._asked(lambda: self._board.overdue(grace))

    async def versions(self, job: str, *, before: int | None = None, limit: int = 50) -> tuple[VersionRecord, ...]:
        """Returns the versions of a job, the newest first; of a dropped job only for callers who may see everything."""
        try:
            await self._queries.get_job(job)
        except JobNotFound:
            found = () if self.seen is not None else await self._board.versions(job, before=before, limit=limit)
            if not found:
                raise
            return found
        return await self._asked(lambda: self._board.versions(job, before=before, limit=limit))

    async def trail(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        event: str | None = None,
        actor: str | None = None,
        job: str | None = None,
    ) -> tuple[AuditEntry, ...]:
        """Returns rows of the audit trail, the newest first. Requires an administrator."""
        await self._door.require_sight("audit", "read the audit trail")
        return await self._asked(
            lambda: self._board.trail(before=before, limit=limit, event=event, actor=actor, job=job)
        )

    async def output_after(self, attempt_id: str, after: int = 0) -> OutputPart:
        ids.checked_id(attempt_id, ids.ATTEMPT)
        if self.seen is not None and await self._board.job_of_attempt(attempt_id) is None:
            # The attempt has printed nothing so far, or does not exist: its job is unknown, and there is nothing to
            # show.
            return OutputPart("", after)
        await self._door.require_output(attempt_id)
        return await self._asked(lambda: self._board.output_after(attempt_id, after))


def version_spec(version: VersionRecord) -> JobSpec:
    """Returns the definition of a version. Raises InvalidDefinition where it cannot be read: a custom schedule may be
    gone."""
    if UNREADABLE in version.definition:
        raise InvalidDefinition(
            f"Version {version.version} cannot be read: its definition is no JSON object",
            hint="Choose another version, or define the job anew.",
        )
    try:
        return JobSpec.from_dict(version.definition)
    except InvalidDefinition as error:
        raise InvalidDefinition(
            f"Version {version.version} cannot be read: {error.message}", hint=error.hint, details=error.details
        ) from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InvalidDefinition(f"Version {version.version} cannot be read: {type(error).__name__}: {error}") from error
