"""The Store protocol: the catalog's verbs, with what each commits together, in which order, and what it raises.

Rules that hold for every verb:

- **One transaction.** A verb commits everything it describes or nothing. When it raises, nothing was written, with one
  exception: `StoreUnavailable` with `outcome_unknown` means that the connection broke during or after the commit. Every
  verb may then be called again with the same arguments: what was written is recognised by its key, its version or its
  fence.
- **One clock.** `now` is read once per transaction, by the store: the server's clock on PostgreSQL, the host's on
  SQLite, or the clock injected for tests and simulations. It never goes back within one open store. (A transaction that
  a task joined reads it again when the run is settled. A verb that only reads may extrapolate from a reading at most
  one second old.)
- **Reading is not deciding.** Reads for people (`jobs`, `runs`, `totals`, `nodes`, the Board) may combine several
  statements, each of which sees what was committed when it began: on PostgreSQL a transaction around them would be most
  of the cost. A run's whole `history` is of one moment.
- **Lock first, judge second.** The rows that a decision depends on are locked by one statement and read by a later one.
  Then core decides, then one batch writes. (A claim may be one statement: it judges nothing but the rows it locks.)
  Locks are taken in the order nodes, pools, jobs, runs, each in key order. A verb that can do without a locked row
  skips it (`create_due_runs`, `claim_runs`); the others wait. Where a chain of hand-overs leaves that order, the server
  detects the deadlock and the verb is repeated.
- **Rules live in core.** A verb reads rows, asks `horae.core`, writes rows.
- **Keys are the last word.** `UNIQUE(job_uuid, idempotency_key)` and the derived run uuid make a second run of one slot
  impossible, whatever a caller forgets.
- **Owner and fence.** A caller that writes about a RUNNING run names its incarnation and the fence it was given. Where
  they do not match, nothing changes and the answer is `SettlementVerdict.FENCED`; a mismatch never raises.

Errors every verb may raise: `StoreUnavailable` (the database cannot be reached, or was lost during the verb),
`StoreConflict` (deadlock or serialization failure: repeat; `horae.store.repeat` does), `StoreFull`, `StoreReadOnly`,
`StoreError` (any other error of the driver, kept as `__cause__`). Stores never log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from horae.core.change.run_move import HANDLER_GRACE
from horae.core.change.update_policy import Update
from horae.core.declarative import DeclarationResult, DeclaredTask
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.store.protocols.people import Identity
from horae.store.records import (
    Admission,
    AdmissionResult,
    AttemptEnd,
    AttemptStart,
    Capacity,
    Claim,
    ClaimResult,
    CreationResult,
    Definition,
    DefinitionResult,
    HeartbeatResult,
    Hook,
    HookRecord,
    JobRecord,
    NodeRecord,
    Notice,
    Origin,
    OutputChunk,
    Rows,
    RunHistory,
    RunRecord,
    Settlement,
    SettlementResult,
    SettlementVerdict,
    StateCounts,
    ThreadKey,
    ThreadRecord,
    UnreportedRun,
)

__all__ = [
    "Admission",
    "AdmissionResult",
    "AttemptEnd",
    "AttemptStart",
    "Capacity",
    "Claim",
    "ClaimResult",
    "CreationResult",
    "DeclarationResult",
    "DeclaredTask",
    "Definition",
    "DefinitionResult",
    "HeartbeatResult",
    "Hook",
    "HookRecord",
    "JobRecord",
    "NodeRecord",
    "Notice",
    "Origin",
    "OutputChunk",
    "Rows",
    "RunHistory",
    "RunRecord",
    "Settlement",
    "SettlementResult",
    "SettlementVerdict",
    "StateCounts",
    "Store",
    "TaskTransaction",
    "ThreadKey",
    "ThreadRecord",
    "UnreportedRun",
]

from_outside: ContextVar[bool] = ContextVar("horae_from_outside", default=False)
"""Whether the caller acts for a request through a server. Where a store keeps several connections, such requests have
some of their own: however long they wait there, an engine in the same process is not held up."""


class TaskTransaction(Protocol):
    """A run's open transaction: see `Store.transact`."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Rows:
        """Runs one of the task's own statements in the catalog's database.

        Parameters are written in the driver's style: `?` and `:name` on SQLite, `%s` and `%(name)s` on PostgreSQL.
        Errors of the database are raised as the driver raises them, except for a lost connection, which is
        StoreUnavailable. On PostgreSQL the user's own tables are in the schema public, unless named otherwise. On
        SQLite they are in the catalog's file, which is called sys.

        Raises InvalidInput for statements that the task may not run: BEGIN, COMMIT, ROLLBACK, SAVEPOINT and the like,
        several statements at once, anything after a statement whose failure undid the transaction, anything after
        `settle`; on SQLite also ATTACH, DETACH, PRAGMA, VACUUM, and a CREATE outside the catalog's file.
        """

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a SQL job's text, one statement or several, as `identity`, with the rights granted to it and no others.

        Answers the rows of the last statement that returns any, as plain JSON values: as many whole rows as fit into
        `most` characters of JSON (`Rows.cut`: there were more). `rowcount` is how many rows the statements inserted,
        updated and deleted or, where the text only reads, how many it read; -1 where that means nothing. During the
        text `current_setting('horae.job_uuid')`, `…job_run_uuid` and `…job_name` have the values of
        `identity.variables`; SQLite also has the functions job_uuid(), job_run_uuid() and job_name().

        Raises StatementFailed with the database's message, and its SQLSTATE in `details` where there is one;
        InvalidInput for what `execute` refuses, except several statements; TransactionExpired, StoreUnavailable. A text
        that failed keeps nothing: the run can then only be settled by `Store.settle`.
        """

    async def settle(self, settlement: Settlement) -> SettlementResult:
        """Settles the run inside the transaction, by the rules of `Store.settle`. Deferred constraints are checked
        first. Nothing can be executed after it. Raises InvalidInput for a settlement of another run, for a second call,
        and after a statement whose failure undid the transaction."""


class Store(Protocol):
    """A catalog. Open it first; its verbs may then be called from many tasks of one event loop."""

    @property
    def lock_grace(self) -> float:
        """For how many seconds a node's liveness lock must be seen free before that means that the node is gone.

        It is the argument `released` of `core.node_liveness.observe`: 0 where a free lock is proof.
        """

    @property
    def transaction_limit(self) -> float:
        """How many seconds `transact` should last at most: few where it holds the only writer."""

    @property
    def write_limit(self) -> float | None:
        """How many seconds the text of another owner may write where it runs in a process of its own; None where
        `transaction_limit` applies."""

    async def now(self) -> datetime:
        """The time of the store's clock, which decides what is due."""

    async def open(self) -> None:
        """Connects and checks the catalog: its schema is current, and this release may read it.

        Raises the store errors of `horae.errors`, each with its next step: unreachable, refused, missing, not a
        catalog, schema too old (`horae migrate`) or too new, clock implausible.
        """

    async def close(self) -> None:
        """Gives every connection and liveness lock back. Closing twice does nothing."""

    async def changed(self, seen: int = 0, timeout: float | None = None) -> int:
        """Waits until the catalog may have changed since `seen`, and returns the number to pass next time.

        It fires after local commits that give an engine something to do, after those of other processes (NOTIFY, or
        SQLite's data_version, polled every 100 ms), and after every reconnection. It may fire without a change. After
        `timeout` seconds it returns `seen` unchanged. Begin with 0, which returns at once if it ever fired before.
        """

    def observe(self, listener: Callable[[Sequence[UnreportedRun]], None] | None) -> None:
        """Has `listener` called after each commit of this process that ended or put back runs which no node reports:
        created SKIPPED, MISSED or UNSCHEDULABLE, ended while they waited, reaped, taken over.

        The runs come in the order of names, states, reasons and times. A run that was put back is PENDING. There is one
        listener at a time; None removes it. Runs that `settle` ends are left out: their owner has the answer.
        """

    # ---- definitions and operations, for users -----------------------------------------------------------------

    async def define(
        self,
        specs: Sequence[JobSpec],
        *,
        by: str = "local",
        source: str = "code",
        defaults: Mapping[str, Any] | None = None,
        expected: Mapping[str, int] | None = None,
        reason: str | None = None,
        update: Update | None = None,
        keeps_state: Collection[str] = (),
    ) -> tuple[DefinitionResult, ...]:
        """Creates or changes jobs, all of them or none. Answers in the order given.

        Commits together: job, tasks (removed ones are retired), dependencies, version, cursor, audit row. A definition
        equal to the present one changes nothing. From `source="code"` or `"schedule"`, a definition equal to the last
        one from that source changes nothing either, so a restart never undoes an operator's change; and `state` and
        `owner` count only for a new job. From any other source `state` and `owner` count where given, except for the
        jobs that `keeps_state` names: they stay in the state that they have when they are locked. A new job without an
        owner belongs to `by`, who must be a user.

        A new job's cursor stands at now, or where its tombstone left it if that is later. For a schedule whose every
        time has passed, it stands just before the last one, so that this slot runs within its grace or is recorded
        MISSED.

        A changed schedule first gets the runs that are due under the old one up to now. (A Once that gets another time
        has none due, and its run is deleted unless it has started.) Then runs that wait for their chosen time move to
        the new version: their starts are chosen anew, or they are deleted where the new version does not have their
        slot. A run that waits for a retry goes on under the new version where none of its tasks has succeeded and the
        change is immediate. All other runs keep the version under which they were created.

        `update` says how changes take effect; None: as each job says. *immediate* is as above. *graceful* leaves the
        next slot after now, or every slot before a moment, to the version before, with its windows and tasks.
        *windowed* leaves runs that were created beyond the horizon as they are.

        `expected` maps names to the version that the caller read (0: the job must not exist). Raises VersionConflict
        with both versions, NamespaceConflict, InvalidDefinition (unknown dependency, pool or role, payload that is not
        JSON, the same name twice), DependencyCycle, PrincipalNotFound (no such owner), and except for `source="code"`
        InvalidTime (a job is given a schedule whose every time is older than its grace).
        """

    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[DeclarationResult, ...]:
        """Makes `specs` (from `core.declarative.declared_spec`) the declarative tasks of the catalog, all or none.

        Answers what each task was found to be, in the order given, then the tasks that are no longer registered. Those
        are put to sleep: they are disabled, and their unfinished runs are kept. Commits together: jobs, versions,
        cursors (`core.declarative.owed_after`), and the runs of nodes that are gone, which are to be started again.
        Runs that are under way go on under the new version. A job that an operator paused or disabled stays so. Raises
        NamespaceConflict and InvalidDefinition, as `define`.
        """

    async def declared(self) -> tuple[DeclaredTask, ...]:
        """Every declarative task in the catalog, registered or asleep, by name."""

    async def drop(self, names: Sequence[str], *, keep_history: bool = False, by: str = "local") -> int:
        """Removes jobs and leaves tombstones with their cursors. Returns how many jobs there were.

        Runs that have not started end CANCELLED("dropped"). Running ones are asked to stop and keep their rows. Without
        `keep_history` every ended run is deleted too. Raises JobNotFound before anything is written, and
        InvalidDefinition where another job depends on one of them.
        """

    async def set_state(
        self,
        name: str,
        state: JobState,
        *,
        until: datetime | None = None,
        note: str | None = None,
        among: Collection[JobState] = tuple(JobState),
        by: str = "local",
    ) -> JobState:
        """Makes a job ENABLED, PAUSED (perhaps `until` a time, with a note) or DISABLED. Answers the state that it had.

        Where that state is not `among` the given ones nothing is written: the state is checked under the lock under
        which it is changed. Slots that are due under the old state are decided first. A disabled job that is enabled or
        paused starts from now. Raises JobNotFound, and Conflict for a sleeping declarative task that is not to be
        DISABLED: no node could run it.
        """

    async def reschedule(self, name: str, at: datetime, *, by: str = "local") -> datetime:
        """Moves the job's next slot (the first after its cursor) to `at` and returns the slot's scheduled time. No
        other slot moves. A Once whose slot is decided already gets `at` as its new time. Raises JobNotFound,
        InvalidInput where the job is disabled or has no next slot, InvalidTime where `at` is older than its grace."""

    async def admit(self, requests: Sequence[Admission]) -> tuple[AdmissionResult, ...]:
        """Creates runs that users ask for. Applies the overlap policy, ignores pauses and dependencies, never moves the
        cursor.

        A request with a known key is answered with that key's run, whatever its state. Backfill and replay are QUEUED
        behind active runs unless the policy is allow. Raises JobNotFound, RunNotFound (replay), InvalidInput (a
        backfill time that is no slot, a task that the replayed run did not have).
        """

    async def cancel(
        self, run_ids: Sequence[str], *, by: str = "local", reason: str = "cancelled"
    ) -> tuple[RunState, ...]:
        """Ends runs that have not started CANCELLED and hands over. Asks the owner of a RUNNING run to stop, by a
        column that its heartbeat shows; `changed` fires. An ended run stays as it is. Answers each run's state after
        that. Raises RunNotFound before anything is written."""

    async def set_pool(self, name: str, limit: int | None) -> None:
        """Sets how many runs of a pool may be RUNNING at once on all nodes together. None removes the pool, and the
        runs that wait for it are free."""

    # ---- engine: schedule -> run -> attempt -> outcome -------------------------------------------------------------

    async def join(
        self,
        node: UUID,
        *,
        name: str | None = None,
        details: Mapping[str, Any] | None = None,
        working: Collection[ThreadKey] = (),
    ) -> None:
        """Registers an incarnation of a node and takes its liveness lock.

        `working` are attempts of the process's previous incarnation whose code is still running although other nodes
        judged that incarnation dead. They become threads of this incarnation. Their runs that were put back and not
        started elsewhere wait for them. Raises NodeNameTaken while another live incarnation has the name. The row of a
        dead predecessor with that name is left to `take_over`.
        """

    async def describe(self, node: UUID, details: Mapping[str, Any]) -> None:
        """Replaces the details that a live node gave when it joined. A node that is not alive is left alone."""

    async def heartbeat(
        self, node: UUID, known: Mapping[str, int], working: Collection[ThreadKey] | None = None
    ) -> HeartbeatResult:
        """Raises the node's counter by one and compares the runs it owns with `known` (run id to fence).

        Runs that the node does not know are released as never started, so no try is counted. Runs that it no longer
        owns are reported as lost. Call it after every lost connection, before any other verb. `working` are the
        attempts whose code is still running on the node: every other thread that the catalog has there has ended. None:
        the caller does not say.
        """

    async def end_threads(self, node: UUID, ended: Collection[ThreadKey]) -> int:
        """Records that threads of the node which outlived their attempts have ended. Runs that waited for them to be
        tried again may start, and runs queued behind them are handed over. Returns how many of them the catalog
        knew."""

    async def leave(self, node: UUID, *, working: bool = False) -> int:
        """Releases the runs that the node still owns, marks it STOPPED and gives its lock back. Returns how many were
        released. Its threads no longer count. With `working`, some of them go on until the process ends, and count
        until then: the node stays ALIVE, its lock ends with the process, and another node takes it over."""

    async def create_due_runs(self, limit: int = 500, start: Capacity | None = None) -> CreationResult:
        """Creates runs for due jobs: up to `limit` jobs whose `wake_at` has come, the longest waiting first.

        In this order: requests written through `cb_schedules` are applied; waiting runs past their deadline end MISSED,
        and those whose chosen time has come are judged by the overlap policy; then jobs. Locked jobs are skipped. Runs
        and cursor commit together.

        With `start`, runs that may start now, and need neither a pool nor a handler that the node lacks, are created
        RUNNING, owned by the node, with fence 1 and their first attempts, up to its free capacity. Runs whose
        dependencies are unmet are created PENDING with `waiting_for` "dependencies".
        """

    async def claim_runs(self, capacity: Capacity) -> ClaimResult:
        """Claims up to `slots` PENDING runs whose `not_before` has come for a node that has joined, the oldest first.

        They become RUNNING with the node as owner, `fence + 1`, task runs, and the attempts that core starts. Pool
        limits are counted under the pools' locks. Skipped are runs whose handlers the node lacks, runs that wait for
        something, and runs whose job has reached its limit. A node that is not ALIVE in the catalog gets nothing.
        """

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        """Writes how attempts ended and how each run goes on: further attempts, parked for a retry, or ended.

        All settlements are one transaction, which writes attempts, task runs and the run, then hands over: to the next
        QUEUED run of the job, to runs whose dependencies this completes, to runs that wait for a pool. It also disables
        or drops a Once job that is done, and writes audit rows. A settlement whose owner or fence does not match is
        FENCED (ALREADY where that same fence ended the run) and changes nothing. When it is repeated after its answer
        was lost, it answers the run's state, but not again which attempts it had started: a node that misses those
        releases the run (`release`).
        """

    def transact(
        self, node: UUID, run_id: str, run_no: int, fence: int, limit: float | None = None, owner: str | None = None
    ) -> AbstractAsyncContextManager[TaskTransaction]:
        """The transaction that a task's own writes join, so that they are done exactly once: they are committed with
        the run's settlement, or not at all.

            async with store.transact(node, claim.run_id, claim.run_no, claim.fence) as joined:
                await joined.execute("INSERT INTO sys.sales VALUES (?)", (7,))
                settled = await joined.settle(Settlement(claim.run_id, claim.run_no, claim.fence, ends))

        Entering raises Conflict unless the run is RUNNING and owned by the node with that fence. When the block ends
        after `settle` was answered SETTLED, everything is committed. In every other case (no settle, FENCED, ALREADY,
        an error) everything is rolled back, and the run is as it was: its owner settles it by `Store.settle`.

        The commit may raise StoreUnavailable with `outcome_unknown`. Then settle the run by `Store.settle` with
        `release=True`: that waits for the locks of the transaction in doubt. If the transaction was committed after
        all, the answer is ALREADY (FENCED, if it parked the run), or SETTLED with the tasks that it ended left as they
        are. If it was not, the run is released, and everything that it left undone is done again.

        `limit` is for how many seconds the caller means to keep the transaction open; None: `transaction_limit`. A
        statement that would hold up the caller's whole thread is stopped when the limit is reached, and raises
        TransactionExpired.

        With an `owner` the transaction is only for that owner's text (`run_text`). Where `write_limit` is not None, the
        text runs in a process of its own, which is killed when the block is cancelled, and `limit` (by default
        `write_limit`) is for how many seconds it may write. Only a few texts of one owner run at a time, with places of
        their own. Entering waits for its turn as long as the caller does, and `limit` counts from then on.

        An open transaction holds others up: on SQLite every other verb waits for it, on PostgreSQL its snapshot slows
        claims down, and only ten without an `owner` may be open in a process. Keep it short, and call no verb of this
        store inside it.
        """

    async def take_over(self, node: UUID, dead: UUID, counter: int) -> int | None:
        """Takes the runs of an incarnation that is judged dead, if its counter is still `counter`.

        Its attempts end LOST. Its runs go back to PENDING, or end FAILED_STALE (at most once) or FAILED (lost too
        often). Its row becomes DEAD, so that nothing it writes counts, and its threads no longer count. Returns how
        many runs were taken; None where nothing was done: the node turned out to live, or is gone already.
        """

    async def reap(self, limit: int = 500) -> int:
        """Examines RUNNING runs. A run past its execution timeout is asked to stop. A run that was asked and did not
        stop within `cancel_grace` is ended with a raised fence: FAILED_STALE where time was the reason, else
        CANCELLED("abandoned"). Then it hands over. Where the run's owner lives, its threads count as running until the
        owner's `heartbeat` says otherwise. Returns how many runs it ended."""

    async def sweep(self, limit: int = 500, *, handler_grace: timedelta = HANDLER_GRACE) -> int:
        """Repairs what no hand-over reached: QUEUED runs with nothing before them, runs whose dependencies are met or
        whose wait is over, Once jobs that are done, threads whose node is gone. Returns how many it moved, which is 0
        in a healthy catalog. Deletes hooks that no node had for seven days, and ends that waited as long for delivery.

        A waiting run of an earlier version that needs a handler which no live node has had for `handler_grace`, and
        which the job's present version does not name, goes on under the present version (`core.change.run_move`), or
        ends FAILED("handler gone") and hands over. A run that waits for its task's registration, or for a thread of its
        own, is left alone. While a live node has not reported all of its handlers, no handler counts as gone.
        """

    async def retain(self, older_than: timedelta, limit: int = 5000) -> int:
        """Deletes up to `limit` runs that ended longer than `older_than` ago, with everything that belongs to them.
        Cursors, tombstones and audit rows stay. Returns how many; call again while it is `limit`."""

    # ---- hooks ---------------------------------------------------------------------------------------------------

    async def register_hooks(self, hooks: Sequence[Hook]) -> None:
        """Registers hooks, or confirms that they are still in use. From then on the transaction that ends a run, by
        whatever verb, writes a notice for each hook that asks for its job and state."""

    async def drop_hooks(self, hook_ids: Sequence[str]) -> None:
        """Deletes hooks, and the notices that wait to be delivered to them."""

    async def hooks(self) -> tuple[HookRecord, ...]:
        """Every registered hook, by its id, with how many notices wait for it."""

    async def claim_notices(
        self, node: UUID, hook_ids: Sequence[str], *, held: Sequence[int] = (), limit: int = 100
    ) -> tuple[Notice, ...]:
        """Gives a live node up to `limit` notices to deliver to these hooks, the oldest first: those that no live node
        has taken, and those that the node took itself and does not name in `held`, because an answer was lost."""

    async def delete_notices(self, node: UUID, numbers: Sequence[int]) -> int:
        """Deletes the notices that the node has delivered; returns how many of them were its own."""

    async def write_output(self, chunks: Sequence[OutputChunk]) -> None:
        """Appends output. A chunk that is stored already is left alone."""

    # ---- reading ---------------------------------------------------------------------------------------------

    async def jobs(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        state: JobState | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> tuple[JobRecord, ...]:
        """Jobs by name, in name order; `after` (a name) pages on. Names that don't exist are left out. `limit` counts
        only where no names are given."""

    async def runs(
        self,
        *,
        job: str | None = None,
        state: RunState | None = None,
        active: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> tuple[RunRecord, ...]:
        """Runs, the newest first by creation; `before` (a run id) pages on. `active`: only those that have not
        ended."""

    async def history(self, run_id: str) -> RunHistory:
        """One run with tasks, attempts and results. Raises RunNotFound."""

    async def previous_starts(self, claims: Sequence[Claim]) -> Mapping[str, datetime]:
        """When the run before each claimed one started, by run id. A run with none before it is left out.

        The run before is looked for among the job's other runs that started earlier than this claim was made, and whose
        scheduled time is not after the time this run was due: the latest by scheduled time. Scheduled runs and
        requested runs are searched apart, and the later of the two starts counts.
        """

    async def totals(self) -> StateCounts:
        """How many runs are under way in each state, and how many jobs there are in each: for metrics. It reads every
        job, so it is not for loops."""

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Every incarnation that is not STOPPED, with whether its lock is free and how many runs it owns."""

    async def threads(self, limit: int = 1000) -> tuple[ThreadRecord, ...]:
        """Threads that are still running although their attempt has ended, those of the oldest run first."""

    async def read_output(self, attempt_id: str) -> str:
        """Everything that an attempt printed; empty where nothing was kept."""
