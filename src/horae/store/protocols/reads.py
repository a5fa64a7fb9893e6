"""The Board protocol: what pages and lists read, by pages, whatever the size of the catalog.

The rules of `store.protocols.store` hold. Nothing here locks or holds up an engine: on SQLite, where a statement runs
in the caller's own thread, these verbs read on a connection of their own in a thread of its own. No verb checks rights:
`VisibleJobs`, which `security.access` makes, limits what the reader sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from horae.core.clock_set_back import ClockLag
from horae.core.run.lifecycle import JobState, RunState
from horae.store.records import JobRecord, Origin, RunRecord

__all__ = [
    "JOB_ORDERS",
    "AuditEntry",
    "JobsPage",
    "JobsQuery",
    "OutputPart",
    "OverdueCounts",
    "ReadStore",
    "RecentRun",
    "RunPace",
    "RunsQuery",
    "Tally",
    "VersionRecord",
    "VisibleJobs",
]

JOB_ORDERS = ("name", "next_run_time", "state", "owner", "updated_at", "last_run")
"""What lists of jobs may be sorted by. `last_run` is the scheduled time of the latest run that has ended or is under
way. Jobs without the time that the list is sorted by come last in both directions."""


@dataclass(frozen=True, slots=True)
class VisibleJobs:
    """The jobs that a user sees who may not see all of them: their own, and those granted to them by name."""

    owner: str
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobsQuery:
    """Which jobs to list, in which order, from where. `search` is looked for in names, descriptions and tags, ignoring
    case. On PostgreSQL that is the case of the letters that its database's locale knows."""

    search: str | None = None
    state: JobState | None = None
    tag: str | None = None
    owner: str | None = None
    namespace: str | None = None
    sort: str = "name"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    seen_by: VisibleJobs | None = None


@dataclass(frozen=True, slots=True)
class JobsPage:
    """One page of jobs. `total` is how many there are on all pages together."""

    jobs: tuple[JobRecord, ...]
    total: int


@dataclass(frozen=True, slots=True)
class RunsQuery:
    """Which runs to list, the newest first by creation. `before` is the last run of the previous page.

    `since` and `until` are about scheduled times: `since <= scheduled_time < until`.
    """

    job: str | None = None
    states: frozenset[RunState] = frozenset()
    origin: Origin | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 100
    seen_by: VisibleJobs | None = None
    beginning: str | None = None
    """The beginning of the runs' ids, as `core.job.ids.run_range` reads it."""


class RecentRun(NamedTuple):
    """One run in a strip of the latest: its state, and how many seconds it took, if it started and has ended."""

    run_id: str
    state: RunState
    scheduled_ms: int
    started_ms: int | None
    """In milliseconds since 1970, as the catalog stores it: a page of jobs has a thousand of these."""
    seconds: float | None


class ScheduleFields(NamedTuple):
    """What `cb_schedules` has of a job beyond the job's record."""

    number: int
    kind: str
    cron_spec: str | None
    last_run_at: datetime | None


class HalfDeletedJob(NamedTuple):
    """The remains of a job that has neither a row nor a tombstone."""

    name: str | None
    """None where no version of the job can be read."""
    job_uuid: str
    runs: int
    open_runs: int


class RefusedRequest(NamedTuple):
    """A request through `cb_schedules` that was refused. `field` is the column that was set, create or drop."""

    name: str | None
    field: str
    error: str
    refused_at: datetime
    by: str


class Tally(NamedTuple):
    """How many runs fell into the step that begins at `at`, in one state. A row that covers many slots counts all of
    them."""

    at: datetime
    state: RunState
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses


class RunPace(NamedTuple):
    """One run that started: how late, and how long it took, both in seconds; `seconds` is None while it runs."""

    job_name: str
    lag: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class OverdueCounts:
    """What is late by more than the allowed time. `undecided` jobs should have been looked at by then, and no node did,
    so their due slots have no runs. `unstarted` runs are due, and no node has claimed them."""

    now: datetime
    undecided: int = 0
    oldest_undecided: datetime | None = None
    undecided_job: str | None = None
    unstarted: int = 0
    oldest_unstarted: datetime | None = None
    unstarted_job: str | None = None
    unreadable: tuple[str, ...] = ()
    """Such jobs whose definitions cannot be read here, or whose schedules raise. They are not among the undecided: no
    working node could decide about them."""


UNREADABLE = "unreadable"
"""The only key of a definition that is no JSON object; its value is the stored text."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a job, with its author and source."""

    version: int
    definition: Mapping[str, object]
    """As `JobSpec.to_dict` returns it."""
    source: str
    author: str
    reason: str | None
    created_at: datetime
    defaults: Mapping[str, object] = field(default_factory=dict)
    """The scheduler's settings that the version was defined under, as plain values."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the audit trail, with its job's name where there is or was such a job."""

    number: int
    at: datetime
    event: str
    actor: str
    outcome: str
    job: str | None = None
    run_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    """A JOB_EXECUTED row has the numbers of its runs: `{"runs": [...]}`."""
    is_sealed: bool = False


class OutputPart(NamedTuple):
    """The output of an attempt after a place. Pass `next` to read what follows."""

    text: str
    next: int


class ReadStore(Protocol):
    """Lists and pages. Every `Catalog` implements it."""

    async def list_jobs(self, asked: JobsQuery) -> JobsPage:
        """One page of jobs. Jobs that are equal by the sort order are sorted by name."""

    async def last_runs(self, names: Sequence[str], most: int) -> Mapping[str, tuple[RecentRun, ...]]:
        """The latest runs of each job, the newest first by scheduled time: those that have ended or are under way, not
        those that wait. Jobs without any are left out."""

    async def schedules(self, names: Sequence[str]) -> Mapping[str, ScheduleFields]:
        """By the names of jobs. Names that don't exist are left out."""

    async def dependents(self, job: str, most: int) -> tuple[JobRecord, ...]:
        """The jobs that depend on this one, by name; no more than `most`."""

    async def half_deleted(self, most: int) -> tuple[HalfDeletedJob, ...]:
        """Jobs whose rows were deleted by hand, so that versions or open runs are left; no more than `most`."""

    async def refusals(self, since: datetime, most: int) -> tuple[RefusedRequest, ...]:
        """Requests through `cb_schedules` that were refused since then, the newest first; no more than `most`."""

    async def list_runs(self, asked: RunsQuery) -> tuple[RunRecord, ...]:
        """One page of runs. Raises RunNotFound where `before` is no run."""

    async def tally(
        self,
        since: datetime,
        until: datetime,
        step: timedelta,
        *,
        job: str | None = None,
        seen_by: VisibleJobs | None = None,
    ) -> tuple[Tally, ...]:
        """How many runs there are by step, counted from `since`, and by state, in order.

        Runs of one job are counted by scheduled time, those that have not ended included; runs of all jobs by the time
        of their end. A row that stands for many slots counts all of them, but a row of a pause counts once: it grows,
        so its time is not that of its slots.
        """

    async def pace(
        self, *, job: str | None = None, most: int = 500, seen_by: VisibleJobs | None = None
    ) -> tuple[RunPace, ...]:
        """Those of the latest `most` ended runs that started: of one job the latest by scheduled time, of all jobs the
        latest by creation."""

    async def overdue(self, grace: timedelta) -> OverdueCounts:
        """What has been late for longer than `grace`, by the store's clock."""

    async def jobs_timed(self, timeout: timedelta) -> tuple[str, ...]:
        """Names of the jobs whose last definition had this execution timeout, in order."""

    async def set_back(self, job: str | None = None) -> ClockLag:
        """Jobs whose slots were run early by a clock that was set back since, as the clock stands now. `job`: only that
        one."""

    async def mark(self, besides: str | None) -> tuple[int, ...] | None:
        """A value that changes when runs are created, started, released or ended; other nodes do not announce that.
        None where no node is alive except `besides`, which is a node's id or None."""

    async def pools(self) -> Mapping[str, int]:
        """Every pool with its limit, by name."""

    async def versions(self, job: str, *, before: int | None = None, limit: int = 50) -> tuple[VersionRecord, ...]:
        """Versions of a job, the newest first; empty where there never was such a job."""

    async def trail(
        self,
        *,
        before: int | None = None,
        limit: int = 50,
        event: str | None = None,
        actor: str | None = None,
        job: str | None = None,
    ) -> tuple[AuditEntry, ...]:
        """Audit rows, the newest first; `before` is the number of the last row of the previous page."""

    async def output_after(self, attempt_id: str, after: int = 0) -> OutputPart:
        """What an attempt printed from its chunk `after` on."""
