"""The records that cross the store's door: what verbs take, and what they answer.

Times are aware datetimes in UTC. The two records of the hot path, Claim and Start, keep integers (milliseconds since
1970) and turn them into datetimes when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.instant import EPOCH
from horae.core.lifecycle import AttemptState, JobState, RunState
from horae.core.liveness import SILENCE
from horae.core.needs import reported
from horae.core.report import RunRow, TaskRow
from horae.core.schedule import Schedule
from horae.core.succession import Stage
from horae.core.wait import Requirements
from horae.store.definition import Defined as Defined
from horae.store.definition import Definition as Definition


class Origin(StrEnum):
    """Why a run exists."""

    SCHEDULE = "SCHEDULE"
    TRIGGER = "TRIGGER"
    REPLAY = "REPLAY"
    BACKFILL = "BACKFILL"


class Verdict(StrEnum):
    """How the store took a write that names a run, its owner and its fence."""

    SETTLED = "SETTLED"
    """written"""
    ALREADY = "ALREADY"
    """the same owner and fence ended this run before: a repetition, nothing changed"""
    FENCED = "FENCED"
    """the run belongs to somebody else by now, or to nobody: nothing changed"""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the catalog has it. `wake_at` is the planner's alarm, `next_run_time` what people are shown."""

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
    """Whose it is, and whose rights it runs with; `created_by` is who wrote its first version."""

    @property
    def schedule(self) -> Schedule | None:
        """What its slots are taken from."""
        return self.definition.schedule

    @property
    def former(self) -> tuple[Stage, ...]:
        """The earlier versions that its slots begin with, each up to its moment, which may have passed."""
        return self.definition.former


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the catalog has it, without its tasks. `not_before` and `waiting_for` say what a PENDING run awaits."""

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
    """One of `core.wait.WaitingFor`. A store tells those that it stores; services derive the others."""
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
    """What the latest failed attempt said, of the last task that has one; also where a later attempt made good."""
    waiting_detail: str | None = None
    """What exactly it waits for, in words. Stores leave it to services."""
    requires: Requirements | None = None
    """What its version asks for before it may start; None once it has ended."""
    replay_reason: str | None = None
    """Why a replay was asked for. `reason` is the outcome's."""


@dataclass(frozen=True, slots=True)
class History:
    """One run with its tasks and their attempts, as `core.report.build_report` takes them."""

    run: RunRow
    tasks: tuple[TaskRow, ...]
    record: RunRecord
    results: Mapping[str, Any] = field(default_factory=dict)
    """What each finished task returned, by task name."""


class Start(NamedTuple):
    """One attempt that has been recorded RUNNING and is now to be made: task by position, attempt from 1."""

    position: int
    number: int


class Claim(NamedTuple):
    """A run this node owns from now on. Every later write about it carries `fence`."""

    run_id: str
    run_no: int
    definition: Definition
    scheduled_ms: int
    chosen_ms: int
    started_ms: int
    fence: int
    starts: tuple[Start, ...]
    origin: str = "SCHEDULE"
    is_recovery: bool = False
    covers_from_ms: int | None = None
    covers_to_ms: int | None = None
    payload: Any = None
    spent_ms: int = 0
    """How long it was RUNNING in earlier stretches: the execution timeout counts them too."""
    wake_ms: int | None = None
    """When a retry that waits beside `starts` is due, as `Settled.wake_at`."""
    elapsed_ms: int = 0
    """How long ago it started for the first time: its duration counts from there, parked time included."""

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
    """What a node can take on: its incarnation, its free slots, and the callables it has (None: whatever there is).
    Where owners share, `kept` of the slots are for owners with fewer runs under way (`core.shares.portions`)."""

    node: str
    slots: int
    handlers: frozenset[str] | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Passed:
    """A run that a verb ended, or put back, while no node had it to report. `count`: how many slots it stands for, from
    `first` to `covers_to`; None: its own."""

    job_name: str
    state: RunState
    count: int
    reason: str | None
    is_recovery: bool
    run_id: str
    scheduled_time: datetime
    first: datetime | None = None
    elapsed: timedelta | None = None
    """Since its first start; None where it never started."""
    covers_to: datetime | None = None

    @property
    def order(self) -> tuple[str, str, str, datetime, str]:
        return self.job_name, self.state, self.reason or "", self.scheduled_time, self.run_id


@dataclass(frozen=True, slots=True)
class Planned:
    """What one planning pass did. `claims` are runs born RUNNING for the node that asked; `more`: ask again at once.

    `wake_at` is the earliest moment any job or waiting run has to be looked at again; None when there is none. Where
    there is `more`, that is now.
    """

    now: datetime
    jobs: int
    born: int
    claims: tuple[Claim, ...]
    wake_at: datetime | None
    more: bool = False
    unreadable: tuple[Definition, ...] = ()
    """Due jobs, found in this pass, whose definitions cannot be read or whose schedules cannot be asked here: they are
    left alone, with the reason as their `fault`."""
    crowded: bool = False
    """Several owners share, and more is due than can start at once: nothing was started here, claims give turns."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The runs a node has been given. `next_at`: the earliest `not_before` among those that only wait for it.
    `held_back`: others may be due, for which there is no room but kept slots: look again when one is free."""

    now: datetime
    claims: tuple[Claim, ...]
    next_at: datetime | None = None
    held_back: bool = False


class AttemptEnd(NamedTuple):
    """One attempt's outcome. `result` is JSON text or None; a task that failed has `error` and perhaps a number.

    `traceback` says where it failed; of a program it is the last lines it printed.
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
    """An attempt, as a marker of its thread names it: its run, the place of its task, its number."""

    run_no: int
    position: int
    number: int


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A thread that works although its attempt has ended, `since` then."""

    run_id: str
    job_name: str
    task_name: str
    number: int
    node: str
    node_name: str | None
    since: datetime
    pool: str | None = None
    """The pool that its run has a place in."""


class Settlement(NamedTuple):
    """What a node has to say about one run it owns.

    `ends` are the attempts that ended. `stop` ends the run whatever its tasks still say: `cancelled` (the reason goes
    into the row), or `timeout`. `release` hands the run back: attempts still RUNNING, and those that `ends` calls
    CANCELLED, end CANCELLED without counting as tries, and the run goes back to PENDING, or ends CANCELLED where it may
    be delivered at most once and has started work (`started=True`). `threads` are attempts that have ended, with this
    or before, while their thread still works: the run counts as under way for its job, and their tasks are not tried
    again, until `end_threads`.
    """

    run_id: str
    run_no: int
    fence: int
    ends: tuple[AttemptEnd, ...] = ()
    stop: str | None = None
    release: bool = False
    started: bool = True
    threads: tuple[Start, ...] = ()


class Settled(NamedTuple):
    """What became of one settlement. `starts` are the attempts to make next, `cancels` the positions to stop.

    `wake_at`: the run goes on RUNNING, and one of its tasks waits for a retry that is due then. Its owner says so by a
    settlement without ends at that time, and is given the attempt in `starts`. `reason`: why the run ended so.
    """

    run_id: str
    verdict: Verdict
    state: RunState | None = None
    starts: tuple[Start, ...] = ()
    cancels: tuple[int, ...] = ()
    park_until: datetime | None = None
    wake_at: datetime | None = None
    reason: str | None = None


class Rows(list[tuple[Any, ...]]):
    """What a statement of a task's own answered: its rows, the names of their columns, how many rows it concerned.

    `rowcount` is -1 where that means nothing, as for CREATE TABLE. `cut`: there were more rows than were asked for.
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
    """A request for a run outside the schedule's own course.

    TRIGGER: `key` is the caller's idempotency key. REPLAY: `replay_of` names the run, `tasks` the tasks to run (None:
    all), `reason` why. BACKFILL: `scheduled_time` is the past slot.
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
class Admitted:
    """The run an admission stands for. `fresh` is false where its key was known already."""

    run_id: str
    state: RunState
    fresh: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One incarnation of a node. `lock_free`: its liveness lock could be had, so its process is gone or cut off."""

    node: str
    name: str | None
    state: str
    counter: int
    started_at: datetime
    heartbeat_at: datetime
    lock_free: bool = False
    running: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    """What it says of itself: host, process, handlers."""

    @property
    def is_live(self) -> bool:
        """Whether it is alive, as far as the catalog knows."""
        return self.state == "ALIVE" and not self.lock_free

    @property
    def silence(self) -> float:
        """Seconds after which it may be taken for dead, by its own word. A release that does not say so stands by the
        default; 0 where the node has said nothing at all."""
        given = self.details.get("silence", SILENCE if self.details else 0.0)
        return float(given) if isinstance(given, int | float) else SILENCE

    @property
    def heartbeat(self) -> float:
        """Seconds between two of its heartbeats, by its own word; 0 where it has not said."""
        given = self.details.get("heartbeat", 0.0)
        return float(given) if isinstance(given, int | float) else 0.0

    @property
    def handlers(self) -> frozenset[str] | None:
        """What it has, in the words of `core.needs`; None where it has not said all of it."""
        return reported(self.details)

    @property
    def sandbox(self) -> str | None:
        """Why it starts no programs although its configuration allows them."""
        return self.details.get("sandbox")


@dataclass(frozen=True, slots=True)
class Pulse:
    """The store's answer to a heartbeat.

    `expelled`: somebody declared this incarnation dead; nothing it writes counts any more. `released` are runs whose
    rows said they were the node's but which it did not know; `lost` are runs the node knew but no longer owns;
    `cancels` are those of its runs that somebody asked to stop, with the reason.
    """

    now: datetime
    expelled: bool = False
    released: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    cancels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """How much of what there is just now. `runs_pending` are all that are PENDING, `runs_due` those of them whose time
    has come and that wait for nothing but a slot, a pool's room or a handler."""

    runs_running: int = 0
    runs_queued: int = 0
    runs_pending: int = 0
    runs_due: int = 0
    jobs_enabled: int = 0
    jobs_paused: int = 0
    jobs_disabled: int = 0


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of what one attempt printed; `number` counts from 0 within the attempt."""

    run_no: int
    position: int
    attempt: int
    attempt_id: str
    number: int
    text: str


class Hook(NamedTuple):
    """A function that a program wants called with the ends of runs: of one job, or of every job (None).

    `hook_id` is the same on every node of that program. `states` are the terminal states it asks for; None: all, but
    for slots that a pause skipped.
    """

    hook_id: str
    job_name: str | None = None
    states: frozenset[RunState] | None = None


@dataclass(frozen=True, slots=True)
class HookRecord:
    """A hook as the catalog knows it. `waiting` ends have not been delivered to it, the oldest of them since
    `oldest`."""

    hook: Hook
    seen_at: datetime
    waiting: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The end of one run, to be delivered to one hook. `count`: how many slots the run stands for."""

    number: int
    hook_id: str
    run: RunRow
    count: int = 1
