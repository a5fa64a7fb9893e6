"""The records that the store's verbs take and return.

Times are aware datetimes in UTC. Claim, a record of the hot path, keeps milliseconds since 1970 and turns them into
datetimes when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.change.succession import Stage
from horae.core.job.requirements import reported_needs
from horae.core.node_liveness import SILENCE
from horae.core.report.report import RunReportRow, TaskRow
from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.core.run.waiting_reason import Requirements
from horae.core.schedule.schedules import Schedule
from horae.core.time.instant import EPOCH
from horae.store.catalog.job_version import Definition as Definition
from horae.store.catalog.job_version import DefinitionResult as DefinitionResult


class Origin(StrEnum):
    """Why a run exists."""

    SCHEDULE = "SCHEDULE"
    TRIGGER = "TRIGGER"
    REPLAY = "REPLAY"
    BACKFILL = "BACKFILL"


class SettlementVerdict(StrEnum):
    """The store's verdict on a write that names a run, its owner and its fence."""

    SETTLED = "SETTLED"
    """The write was applied."""
    ALREADY = "ALREADY"
    """The same owner and fence ended this run before. The write is a repetition, and nothing changed."""
    FENCED = "FENCED"
    """Another node owns the run by now, or no node does. Nothing changed."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the catalog has it. Its runs are next created at `wake_at`; users are shown `next_run_time`."""

    name: str
    version: int
    state: JobState
    definition: Definition
    created_at: datetime
    updated_at: datetime
    created_by: str
    planned_until: datetime
    next_run_time: datetime | None
    wake_at: datetime | None
    paused_until: datetime | None = None
    pause_note: str | None = None
    moved_slot: datetime | None = None
    moved_to: datetime | None = None
    covered_until: datetime | None = None
    last_enqueued_at: datetime | None = None
    owner: str = "local"
    """The user who owns it and whose rights it runs with. `created_by` is the user who wrote its first version."""

    @property
    def schedule(self) -> Schedule | None:
        """The schedule in force: those of earlier versions, each up to its moment, then its own."""
        return self.definition.schedule

    @property
    def former(self) -> tuple[Stage, ...]:
        """The earlier versions that still decide scheduled times, each up to its moment, which may have passed."""
        return self.definition.former


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the catalog has it, without its tasks. `not_before` and `waiting_for` say why a PENDING run waits."""

    run_id: str
    job_name: str
    state: RunState
    scheduled_time: datetime
    chosen_time: datetime
    origin: Origin
    version: int
    fence: int
    created_at: datetime
    key: str | None = None
    not_before: datetime | None = None
    waiting_for: str | None = None
    """One of `core.run.waiting_reason.WaitingFor`. A store sets those that it stores; services derive the others."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    owner: str | None = None
    reason: str | None = None
    is_recovery: bool = False
    covers_from: datetime | None = None
    covers_to: datetime | None = None
    count: int = 1
    replay_of: str | None = None
    cancel_requested_at: datetime | None = None
    cancelled_by: str | None = None
    retry_count: int = 0
    payload: Any = None
    error: str | None = None
    """The error of the latest failed attempt, of the last task that has one, even where a later attempt succeeded."""
    waiting_detail: str | None = None
    """What exactly it waits for, in words. Services set it; stores leave it None."""
    requires: Requirements | None = None
    """What its version requires before it may start; None once it has ended."""
    replay_reason: str | None = None
    """Why a replay was requested. `reason` explains the outcome."""


@dataclass(frozen=True, slots=True)
class RunHistory:
    """One run with its tasks and their attempts, as `core.report.report.build_report` takes them."""

    run: RunReportRow
    tasks: tuple[TaskRow, ...]
    record: RunRecord
    results: Mapping[str, Any] = field(default_factory=dict)
    """What each finished task returned, by task name."""


class AttemptStart(NamedTuple):
    """One attempt that is recorded RUNNING and now has to be executed: the task's position, the attempt from 1."""

    position: int
    number: int


class Claim(NamedTuple):
    """A run that this node owns from now on. Every later write about it must carry `fence`."""

    run_id: str
    run_no: int
    definition: Definition
    scheduled_ms: int
    chosen_ms: int
    started_ms: int
    fence: int
    starts: tuple[AttemptStart, ...]
    origin: str = "SCHEDULE"
    is_recovery: bool = False
    covers_from_ms: int | None = None
    covers_to_ms: int | None = None
    payload: Any = None
    spent_ms: int = 0
    """How long it was RUNNING before this claim. The execution timeout counts that time too."""
    wake_ms: int | None = None
    """When a retry that waits besides `starts` is due; see `SettlementResult.wake_at`."""
    elapsed_ms: int = 0
    """How long ago it started for the first time. Its duration counts from there, parked time included."""

    @property
    def job_name(self) -> str:
        return self.definition.spec.name

    @property
    def scheduled_time(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.scheduled_ms)

    @property
    def chosen_time(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.chosen_ms)

    @property
    def started_at(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.started_ms)

    @property
    def wake_at(self) -> datetime | None:
        return None if self.wake_ms is None else EPOCH + timedelta(milliseconds=self.wake_ms)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node can take on: its incarnation, its free capacity (`slots`), and its handlers (None: any).

    Where owners share, `kept` of the free capacity is for owners with fewer active runs
    (`core.job.owner_limits.portions`).
    """

    node: str
    slots: int
    handlers: frozenset[str] | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class UnreportedRun:
    """A run that a verb ended or put back, and that no node will report.

    `count` is how many scheduled times it stands for, from `first` to `covers_to`. Both are None where it stands only
    for its own.
    """

    job_name: str
    state: RunState
    count: int
    reason: str | None
    is_recovery: bool
    run_id: str
    scheduled_time: datetime
    first: datetime | None = None
    elapsed: timedelta | None = None
    """The time since its first start; None where it never started."""
    covers_to: datetime | None = None

    @property
    def order(self) -> tuple[str, str, str, datetime, str]:
        return self.job_name, self.state, self.reason or "", self.scheduled_time, self.run_id


@dataclass(frozen=True, slots=True)
class CreationResult:
    """What one call of `create_due_runs` did. `claims` are runs created RUNNING for the node that asked. `more`: call
    it again.

    `wake_at` is the earliest moment at which a job or a waiting run has to be looked at again; None when there is none.
    Where there is `more`, that is now.
    """

    now: datetime
    jobs: int
    born: int
    claims: tuple[Claim, ...]
    wake_at: datetime | None
    more: bool = False
    unreadable: tuple[Definition, ...] = ()
    """Due jobs of this call whose definitions cannot be read, or whose schedules cannot be evaluated, here. They are
    left alone, with the reason as their `fault`."""
    crowded: bool = False
    """Several owners share, and more runs are due than can start at once. `create_due_runs` started none; claims
    give turns."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The runs that a node has been given. `next_at`: the earliest `not_before` of the runs that wait only for it.

    `held_back`: other runs may be due, but only capacity that is kept for other owners is free. Look again when more is
    free.
    """

    now: datetime
    claims: tuple[Claim, ...]
    next_at: datetime | None = None
    held_back: bool = False


class AttemptEnd(NamedTuple):
    """One attempt's outcome. `result` is JSON text or None. A failed one has `error` and perhaps `error_code`.

    `traceback` says where it failed. For a program, it is the last lines that it printed.
    """

    position: int
    number: int
    state: AttemptState
    error: str | None = None
    error_code: int | None = None
    result: str | None = None
    rows_affected: int | None = None
    traceback: str | None = None


class ThreadKey(NamedTuple):
    """The attempt that a marker of a thread names: its run, the position of its task, its number."""

    run_no: int
    position: int
    number: int


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A thread that still works although its attempt has ended, at `since`."""

    run_id: str
    job_name: str
    task_name: str
    number: int
    node: str
    node_name: str | None
    since: datetime
    pool: str | None = None
    """The pool in which its run takes a place."""


class Settlement(NamedTuple):
    """What a node reports about one run that it owns.

    `ends` are the attempts that ended. `stop` ends the run whatever its tasks still do: `cancelled` (the reason goes
    into the row), or `timeout`.

    `release` gives the run back. Attempts that are RUNNING, and those that `ends` calls CANCELLED, end CANCELLED
    without counting as tries. The run goes back to PENDING, or ends CANCELLED where it may be delivered at most once
    and has started work (`started=True`).

    `threads` are attempts that have ended, now or before, while their thread still works. Until `end_threads`, the run
    counts as active for its job, and the tasks of these attempts are not tried again.
    """

    run_id: str
    run_no: int
    fence: int
    ends: tuple[AttemptEnd, ...] = ()
    stop: str | None = None
    release: bool = False
    started: bool = True
    threads: tuple[AttemptStart, ...] = ()


class SettlementResult(NamedTuple):
    """The answer to one settlement. `starts` are the attempts to execute next, `cancels` the positions of the tasks to
    stop.

    `wake_at`: the run goes on RUNNING, and one of its tasks waits for a retry that is due then. At that time its owner
    sends a settlement without ends, and is given the attempt in `starts`. `reason`: why the run ended so.
    """

    run_id: str
    verdict: SettlementVerdict
    state: RunState | None = None
    starts: tuple[AttemptStart, ...] = ()
    cancels: tuple[int, ...] = ()
    park_until: datetime | None = None
    wake_at: datetime | None = None
    reason: str | None = None


class Rows(list[tuple[Any, ...]]):
    """The answer to a task's own statement: its rows, the names of their columns, how many rows it affected.

    `rowcount` is -1 where it has no meaning, as for CREATE TABLE. `cut`: there were more rows than were asked for.
    """

    __slots__ = ("columns", "cut", "rowcount")

    def __init__(
        self,
        rows: Iterable[tuple[Any, ...]] = (),
        rowcount: int = -1,
        columns: tuple[str, ...] = (),
        *,
        cut: bool = False,
    ) -> None:
        super().__init__(rows)
        self.rowcount = rowcount
        self.columns = columns
        self.cut = cut


@dataclass(frozen=True, slots=True)
class Admission:
    """A request for a run that the schedule does not create.

    TRIGGER: `key` is the caller's idempotency key. REPLAY: `replay_of` names the run, `tasks` the tasks to run (None:
    all), `reason` why. BACKFILL: `scheduled_time` is a past time of the schedule.
    """

    job_name: str
    origin: Origin
    by: str
    key: str | None = None
    payload: Any = None
    scheduled_time: datetime | None = None
    replay_of: str | None = None
    tasks: tuple[str, ...] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The run that an admission created or found. `fresh` is false where its key was known already."""

    run_id: str
    state: RunState
    fresh: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One incarnation of a node. `lock_free`: its liveness lock is free, so its process is gone or cut off."""

    node: str
    name: str | None
    state: str
    counter: int
    started_at: datetime
    heartbeat_at: datetime
    lock_free: bool = False
    running: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the node reports of itself: host, process, handlers."""

    @property
    def is_live(self) -> bool:
        """Whether the node is alive, as far as the catalog knows."""
        return self.state == "ALIVE" and not self.lock_free

    @property
    def silence(self) -> float:
        """The seconds of silence that the node reports, after which it may be taken for dead. The default where its
        release does not report them; 0 where the node has reported nothing at all."""
        given = self.details.get("silence", SILENCE if self.details else 0.0)
        return float(given) if isinstance(given, int | float) else SILENCE

    @property
    def heartbeat(self) -> float:
        """The seconds between two heartbeats that the node reports; 0 where it has not reported them."""
        given = self.details.get("heartbeat", 0.0)
        return float(given) if isinstance(given, int | float) else 0.0

    @property
    def handlers(self) -> frozenset[str] | None:
        """What the node has, as `core.job.requirements` writes it; None where it has not reported all of it."""
        return reported_needs(self.details)

    @property
    def sandbox(self) -> str | None:
        """Why the node starts no programs although its configuration allows them."""
        return self.details.get("sandbox")


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The store's answer to a heartbeat.

    `expelled`: this incarnation was declared dead, and nothing that it writes counts any more. `released` are runs that
    the node owned but did not know. `lost` are runs that the node knew but no longer owns. `cancels` are those of its
    runs that were asked to stop, with the reason.
    """

    now: datetime
    expelled: bool = False
    released: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    cancels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateCounts:
    """How many runs and jobs there are in which state. `runs_pending` counts all PENDING runs.

    `runs_due` counts those of them whose time has come and that wait only for free capacity, for a pool or for a
    handler.
    """

    runs_running: int = 0
    runs_queued: int = 0
    runs_pending: int = 0
    runs_due: int = 0
    jobs_enabled: int = 0
    jobs_paused: int = 0
    jobs_disabled: int = 0


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of one attempt's output. `number` counts from 0 within the attempt."""

    run_no: int
    position: int
    attempt: int
    attempt_id: str
    number: int
    text: str


class Hook(NamedTuple):
    """A function of a program that is called with the ends of runs: of one job, or of every job (None).

    `hook_id` is the same on every node of that program. `states` are the terminal states it asks for; None: all, except
    for scheduled times that a pause skipped.
    """

    hook_id: str
    job_name: str | None = None
    states: frozenset[RunState] | None = None


@dataclass(frozen=True, slots=True)
class HookRecord:
    """A hook as the catalog knows it. `waiting` ends have not been delivered to it. The oldest of them waits since
    `oldest`."""

    hook: Hook
    seen_at: datetime
    waiting: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The end of one run, to be delivered to one hook. `count`: how many scheduled times the run stands for."""

    number: int
    hook_id: str
    run: RunReportRow
    count: int = 1
