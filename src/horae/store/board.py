"""The Board protocol: what pages and lists look at. Reading only, by pages, whatever the size of the catalog.

The rules of `store.port` hold. Nothing here locks or holds up an engine: on SQLite, where a statement runs in the
caller's own thread, these are read on a connection of their own in a thread of its own. Who may see what is not judged
here: `Seen` says whose view it is, and `control` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from horae.core.lifecycle import JobState, RunState
from horae.core.set_back import SetBack
from horae.store.records import JobRecord, Origin, RunRecord

__all__ = [
    "JOB_ORDERS",
    "AuditEntry",
    "Board",
    "JobsAsked",
    "JobsPage",
    "Outcome",
    "OutputPart",
    "Overdue",
    "Pace",
    "RunsAsked",
    "Seen",
    "Tally",
    "VersionRecord",
]

JOB_ORDERS = ("name", "next_run_time", "state", "owner", "updated_at", "last_run")
"""What lists of jobs may be sorted by; `last_run` is the nominal time of the latest run that has ended or is under way.
Jobs that have no such time come last, whichever way the others go."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The jobs that somebody who may not see all of them sees: their own, and those granted to them by name."""

    owner: str
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JobsAsked:
    """Which jobs, in which order, from where. `search` is looked for in names, descriptions and tags, in any case: on
    PostgreSQL that is the case of the letters that its database's locale knows."""

    search: str | None = None
    state: JobState | None = None
    tag: str | None = None
    owner: str | None = None
    namespace: str | None = None
    sort: str = "name"
    descending: bool = False
    offset: int = 0
    limit: int = 50
    seen_by: Seen | None = None


@dataclass(frozen=True, slots=True)
class JobsPage:
    """`total` is how many there are on all pages together."""

    jobs: tuple[JobRecord, ...]
    total: int


@dataclass(frozen=True, slots=True)
class RunsAsked:
    """Which runs, the newest born first; `before` is the run that the page before ended with.

    `since` and `until` are about nominal times: `since <= scheduled_time < until`."""

    job: str | None = None
    states: frozenset[RunState] = frozenset()
    origin: Origin | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: str | None = None
    limit: int = 100
    seen_by: Seen | None = None
    beginning: str | None = None
    """What their ids begin with, as `ids.run_range` reads it."""


class Outcome(NamedTuple):
    """One run in a strip of the latest: how it stands, and how long it took in seconds, if it started and has ended."""

    run_id: str
    state: RunState
    scheduled_ms: int
    started_ms: int | None
    """In milliseconds since 1970, as the catalog has them: a page of jobs brings a thousand."""
    seconds: float | None


class ScheduleSeen(NamedTuple):
    """What `cb_schedules` has of a job and its record has not."""

    number: int
    kind: str
    cron_spec: str | None
    last_run_at: datetime | None


class HalfDeleted(NamedTuple):
    """What is left of a job that has neither a row nor a tombstone."""

    name: str | None
    """None where no version of it can be read."""
    job_uuid: str
    runs: int
    open_runs: int


class Refusal(NamedTuple):
    """A request through `cb_schedules` that was refused. `field` is the column that was set, create or drop."""

    name: str | None
    field: str
    error: str
    refused_at: datetime
    by: str


class Tally(NamedTuple):
    """How many runs fell into the step that begins at `at`, in one state. A row that covers many slots counts them."""

    at: datetime
    state: RunState
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a tally


class Pace(NamedTuple):
    """One run that started: how late, and how long it took; `seconds` None while it runs. Both in seconds."""

    job_name: str
    lag: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Overdue:
    """What is late. `undecided` jobs have a wake-up that came longer ago than was allowed and was not seen to, so that
    nobody planned what they owe; `unstarted` runs are due as long, and no node has taken them."""

    now: datetime
    undecided: int = 0
    oldest_undecided: datetime | None = None
    undecided_job: str | None = None
    unstarted: int = 0
    oldest_unstarted: datetime | None = None
    unstarted_job: str | None = None
    unreadable: tuple[str, ...] = ()
    """Jobs with such a wake-up whose definitions cannot be read, or whose schedules cannot be asked, here. They are not
    among the undecided: no node that works could decide about them."""


UNREADABLE = "unreadable"
"""The one key of a definition that is no JSON object; its value is the text as it stands."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a job: what it said, and who wrote it from where."""

    version: int
    definition: Mapping[str, object]
    """As `JobSpec.to_dict` has it."""
    source: str
    author: str
    reason: str | None
    created_at: datetime
    defaults: Mapping[str, object] = field(default_factory=dict)
    """The scheduler's settings that it was defined under, as plain values."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the trail, with its job's name where there is or was such a job."""

    number: int
    at: datetime
    event: str
    actor: str
    outcome: str
    job: str | None = None
    run_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    """Of JOB_EXECUTED, the numbers of its runs: `{"runs": [...]}`."""
    is_sealed: bool = False


class OutputPart(NamedTuple):
    """What an attempt printed after a place; ask for what follows with `next`."""

    text: str
    next: int


class Board(Protocol):
    """Lists and pages. Every `Catalog` is one."""

    async def list_jobs(self, asked: JobsAsked) -> JobsPage:
        """One page of jobs. Names decide between jobs that are equal by what the list is sorted by."""

    async def last_runs(self, names: Sequence[str], most: int) -> Mapping[str, tuple[Outcome, ...]]:
        """The latest runs of each job, by nominal time, the newest first: those that have ended or are under way, not
        those that wait. Jobs without any are left out."""

    async def schedules(self, names: Sequence[str]) -> Mapping[str, ScheduleSeen]:
        """By the names of jobs. Those that are not there are left out."""

    async def dependents(self, job: str, most: int) -> tuple[JobRecord, ...]:
        """The jobs that wait for this one, by name; no more than `most`."""

    async def half_deleted(self, most: int) -> tuple[HalfDeleted, ...]:
        """Jobs of which somebody deleted rows by hand, so that versions or open runs are left; no more than `most`."""

    async def refusals(self, since: datetime, most: int) -> tuple[Refusal, ...]:
        """Requests through `cb_schedules` that were refused since then, the newest first; no more than `most`."""

    async def list_runs(self, asked: RunsAsked) -> tuple[RunRecord, ...]:
        """One page of runs. Raises RunNotFound for a `before` that is none."""

    async def tally(
        self,
        since: datetime,
        until: datetime,
        step: timedelta,
        *,
        job: str | None = None,
        seen_by: Seen | None = None,
    ) -> tuple[Tally, ...]:
        """How many runs, by steps counted from `since` and by state, in order. Of one job by nominal time, those that
        have not ended included; of all jobs by when they ended. A row that stands for many slots counts as many, but
        one of a pause counts once: it is not where its slots are, for it grows."""

    async def pace(self, *, job: str | None = None, most: int = 500, seen_by: Seen | None = None) -> tuple[Pace, ...]:
        """Of the latest `most` runs that have ended, those that started: of one job the latest by nominal time, of all
        jobs the latest born."""

    async def overdue(self, grace: timedelta) -> Overdue:
        """What should have been seen to longer than `grace` ago, by the store's clock."""

    async def jobs_timed(self, timeout: timedelta) -> tuple[str, ...]:
        """Names of the jobs that had this execution timeout when they were last defined, in order."""

    async def set_back(self, job: str | None = None) -> SetBack:
        """Jobs whose slots were run early by a clock that was set back since, by the clock as it stands; `job`: only
        that one."""

    async def mark(self, besides: str | None) -> tuple[int, ...] | None:
        """Differs from what it was where runs were born, started, handed back or ended since, which other nodes tell
        nobody of. None where no node lives but `besides`, which is a node or none."""

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
        """Audit rows, the newest first; `before` is the number that the page before ended with."""

    async def output_after(self, attempt_id: str, after: int = 0) -> OutputPart:
        """What an attempt printed from its chunk `after` on."""
