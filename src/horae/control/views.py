"""Lists and pages as one principal sees them: every list is cut down to the jobs that they may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from horae.control.commands import Asking
from horae.control.queries import VIEW, Queries
from horae.control.wait_facts import Readable, with_waits
from horae.core import ids
from horae.core.job import JobSpec
from horae.errors import InvalidDefinition, JobNotFound
from horae.security.access import Gate
from horae.store.board import (
    UNREADABLE,
    AuditEntry,
    JobsAsked,
    JobsPage,
    Outcome,
    OutputPart,
    Overdue,
    Pace,
    RunsAsked,
    ScheduleSeen,
    Seen,
    Tally,
    VersionRecord,
)
from horae.store.port import JobRecord, RunRecord

__all__ = [
    "JobsAsked",
    "JobsPage",
    "Outcome",
    "Overdue",
    "Pace",
    "RunsAsked",
    "Seen",
    "Tally",
    "VersionRecord",
    "Views",
]


class Views(Asking):
    """The board through the gate."""

    def __init__(self, store: Readable, gate: Gate, queries: Queries) -> None:
        super().__init__(store, gate, alone=True)
        self._board = store
        self._door = gate
        self._queries = queries

    @property
    def seen(self) -> Seen | None:
        """What lists show; None: everything."""
        return self._door.seen()

    async def list_jobs(self, asked: JobsAsked) -> JobsPage:
        return await self._asked(lambda: self._board.list_jobs(replace(asked, seen_by=self.seen)))

    async def last_runs(self, names: Sequence[str], most: int) -> Mapping[str, tuple[Outcome, ...]]:
        """Of jobs that `list_jobs` answered: it has judged who may see them."""
        return await self._asked(lambda: self._board.last_runs(names, most)) if names and most else {}

    async def schedules(self, names: Sequence[str]) -> Mapping[str, ScheduleSeen]:
        """Of jobs that `list_jobs` answered."""
        return await self._asked(lambda: self._board.schedules(names)) if names else {}

    async def dependents(self, job: str, most: int) -> tuple[JobRecord, ...]:
        """Those of them that may be seen, of a job that may be."""
        found = await self._asked(lambda: self._board.dependents(job, most))
        return tuple(each for each in found if self._door.holds(VIEW, each.name, owner=each.owner))

    async def list_runs(self, asked: RunsAsked) -> tuple[RunRecord, ...]:
        """Whoever names a job they may not look at is refused; of a job that is gone, what is left is shown to those
        who may see everything. A name that no job ever had is told."""
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

    async def pace(self, most: int = 500) -> tuple[Pace, ...]:
        return await self._asked(lambda: self._board.pace(most=most, seen_by=self.seen))

    async def overdue(self, grace: timedelta) -> Overdue:
        """Of all jobs: for those who may see them all."""
        await self._door.require(VIEW, action="look at what is overdue")
        return await self._asked(lambda: self._board.overdue(grace))

    async def versions(self, job: str, *, before: int | None = None, limit: int = 50) -> tuple[VersionRecord, ...]:
        """Also of a job that was dropped, for those who may see everything."""
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
        """The audit trail is for administrators."""
        await self._door.require_sight("audit", "read the audit trail")
        return await self._asked(
            lambda: self._board.trail(before=before, limit=limit, event=event, actor=actor, job=job)
        )

    async def output_after(self, attempt_id: str, after: int = 0) -> OutputPart:
        ids.checked_id(attempt_id, ids.ATTEMPT)
        if self.seen is not None and await self._board.job_of_attempt(attempt_id) is None:
            # It printed nothing so far, or is none: whose it is cannot be told, and there is nothing to show.
            return OutputPart("", after)
        await self._door.require_output(attempt_id)
        return await self._asked(lambda: self._board.output_after(attempt_id, after))


def version_spec(version: VersionRecord) -> JobSpec:
    """What a version says. Raises what reading it does: schedules of users' own may be gone."""
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
