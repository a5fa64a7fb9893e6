"""The Store protocol: the catalog's verbs, each with what it commits together, in which order, and what it raises.

Rules that hold for every verb:

- **One transaction.** A verb commits all it says or nothing. When it raises, nothing was written, with one exception:
  `StoreUnavailable` with `outcome_unknown` means the connection broke while or after committing. Every verb may then be
  called again with the same arguments: what was written is recognised by its key, its version or its fence.
- **One clock.** `now` is read once per transaction, by the store: the server's clock on PostgreSQL, the host's on
  SQLite, or the clock injected for tests and simulations. It never goes back within one open store. (A transaction
  that a task joined reads it again when the run is settled. What only reads may go on from a reading of at most a
  second ago, by the time that has passed since.)
- **Reading is not deciding.** What people look at (`jobs`, `runs`, `totals`, `nodes`, the Board) may be put together
  from several statements, each of which sees what was committed when it began: on PostgreSQL a transaction around them
  would be most of the cost. A run's whole `history` is of one moment.
- **Lock first, judge second.** What a decision depends on is locked by one statement and read by a later one, then core
  decides, then one batch writes. (A claim may be one statement: it judges nothing but the rows it locks.) Locks are
  taken in the order nodes, pools, jobs, runs, each in key order; a verb that can do without a row that is locked skips
  it (`plan`, `dispatch`), the others wait. Where a chain of hand-overs leaves that order, the server finds the deadlock
  and the verb is repeated.
- **Rules live in core.** A verb reads rows, asks `horae.core`, writes rows.
- **Keys are the last word.** `UNIQUE(job_uuid, idempotency_key)` and the derived run uuid make a second run of one slot
  impossible, whatever a caller forgets.
- **Owner and fence.** Whoever writes about a RUNNING run names its incarnation and the fence it was given; a miss
  changes nothing and is told as `Verdict.FENCED`, never raised.

Errors every verb may raise: `StoreUnavailable` (cannot be reached; or lost while at work), `StoreConflict` (deadlock or
serialization failure: repeat; `horae.store.repeat` does), `StoreFull`, `StoreReadOnly`, `StoreError` (anything else the
driver said, kept as `__cause__`). Stores never log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from horae.core.declarative import Declared, DeclaredTask
from horae.core.job import JobSpec
from horae.core.lifecycle import JobState, RunState
from horae.core.move import HANDLER_GRACE
from horae.core.update import Update
from horae.store.records import (
    Admission,
    Admitted,
    AttemptEnd,
    Capacity,
    Claim,
    Defined,
    Definition,
    Dispatched,
    History,
    Hook,
    HookRecord,
    JobRecord,
    NodeRecord,
    Notice,
    Origin,
    OutputChunk,
    Passed,
    Planned,
    Pulse,
    Rows,
    RunRecord,
    Settled,
    Settlement,
    Start,
    ThreadKey,
    ThreadRecord,
    Totals,
    Verdict,
)
from horae.store.vault import Identity

__all__ = [
    "Admission",
    "Admitted",
    "AttemptEnd",
    "Capacity",
    "Claim",
    "Declared",
    "DeclaredTask",
    "Defined",
    "Definition",
    "Dispatched",
    "History",
    "Hook",
    "HookRecord",
    "JobRecord",
    "Joined",
    "NodeRecord",
    "Notice",
    "Origin",
    "OutputChunk",
    "Passed",
    "Planned",
    "Pulse",
    "Rows",
    "RunRecord",
    "Settled",
    "Settlement",
    "Start",
    "Store",
    "ThreadKey",
    "ThreadRecord",
    "Totals",
    "Verdict",
]

from_outside: ContextVar[bool] = ContextVar("horae_from_outside", default=False)
"""Whether somebody asks through a server. Where a store keeps several connections, those who ask have some of their
own: however long they wait there, an engine in the same process is not held up."""


class Joined(Protocol):
    """A run's transaction while it is open: see `Store.transact`."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Rows:
        """Runs one statement of the task's own in the catalog's database.

        Parameters are written as the driver has them: `?` and `:name` on SQLite, `%s` and `%(name)s` on PostgreSQL.
        What the database says of the statement is raised as the driver raises it, but for a connection that was lost,
        which is StoreUnavailable. Tables of the user's own are in the schema public on PostgreSQL, unless named
        otherwise; on SQLite they are in the catalog's file, which is called sys.

        Raises InvalidInput for what is not the task's to say: BEGIN, COMMIT, ROLLBACK, SAVEPOINT and their like,
        several statements at once, anything after a statement whose failure undid the transaction, anything after
        `settle`; on SQLite also ATTACH, DETACH, PRAGMA, VACUUM, and a CREATE outside the catalog's file.
        """

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a SQL job's text, one statement or several, as `identity`, who may do what was granted and no more.

        Answers the rows of its last statement that returns any, as plain JSON values: as many whole rows as fit into
        `most` characters of JSON (`Rows.cut` tells where there were more). `rowcount` is how many rows its statements
        inserted, updated and deleted, or, where it only reads, how many it read; -1 where that means nothing. While it
        runs, `current_setting('horae.job_uuid')`, `…job_run_uuid` and `…job_name` are what `identity.variables` say;
        on SQLite also the functions job_uuid(), job_run_uuid() and job_name().

        Raises StatementFailed with what the database said, and its SQLSTATE in `details` where it has one; InvalidInput
        for what `execute` refuses too, but for several statements; TransactionExpired, StoreUnavailable. A text that
        failed keeps nothing: the run can only be settled by the ordinary verb.
        """

    async def settle(self, settlement: Settlement) -> Settled:
        """Settles the run inside the transaction, by the rules of `Store.settle`; constraints that were deferred are
        checked first. Nothing can be executed after it. Raises InvalidInput where it is told of another run, comes
        twice, or comes after a statement whose failure undid the transaction."""


class Store(Protocol):
    """A catalog. Open it first; verbs may then be called from many tasks of one event loop."""

    @property
    def lock_grace(self) -> float:
        """For how many seconds a node's liveness lock must be seen free before it says that the node is gone.

        What `liveness.observe` takes as `released`: 0 where a free lock is proof.
        """

    @property
    def transaction_limit(self) -> float:
        """How many seconds `transact` should last at most: little where it holds the only writer."""

    @property
    def write_limit(self) -> float | None:
        """How many seconds text of others may write where it runs apart; None where `transaction_limit` holds."""

    async def now(self) -> datetime:
        """What the store's clock says, which decides what is due."""

    async def open(self) -> None:
        """Connects and checks the catalog: its schema is current, and this release may read it.

        Raises the store errors of `horae.errors`, each with its next step: unreachable, refused, missing, not a
        catalog, schema too old (`horae migrate`) or too new, clock implausible.
        """

    async def close(self) -> None:
        """Gives every connection and liveness lock back. Closing twice is nothing."""

    async def changed(self, seen: int = 0, timeout: float | None = None) -> int:
        """Waits until the catalog may have changed since `seen`, and returns the number to pass next time.

        It fires after local commits that give an engine something to do, after those of other processes (NOTIFY, or
        SQLite's data_version looked at every 100 ms), and after every reconnection; it may fire for nothing. After
        `timeout` seconds it returns `seen` unchanged. Begin with 0, which returns at once when anything ever fired.
        """

    def observe(self, listener: Callable[[Sequence[Passed]], None] | None) -> None:
        """Has `listener` called after each commit of this process that ended or put back runs which no node reports:
        born SKIPPED, MISSED or UNSCHEDULABLE, ended while they waited, reaped, taken over. They come in the order of
        names, states, reasons and times. A run that is put back is PENDING. There is one listener at a time; None ends
        it. Runs that `settle` ends are left out: their owner has the answer."""

    # ---- definitions and operations: what people ask -----------------------------------------------------------

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
    ) -> tuple[Defined, ...]:
        """Creates or changes jobs, all of them or none; answers in the order given.

        Commits together: job, tasks (those gone are retired), dependencies, version, cursor, audit row. A definition
        equal to the present one changes nothing. From `source="code"` or `"schedule"`, one equal to the last from there
        changes nothing either, so a restart never undoes an operator's change, and `state` and `owner` count only for a
        new job; from any other source those given count, but for the jobs that `keeps_state` names: they stay in the
        state that they have when they are locked. A new job without an owner is `by`'s, who must be a user.

        A new job's cursor stands at now, or where its tombstone left it if that is later; for a schedule whose every
        time has passed, just before the last, so that planning can run it within its grace or record it MISSED. A
        changed schedule first bears what the old one owes up to now (a Once that gets another time owes nothing, and
        its run goes unless it has started); then runs that wait for their chosen time become the new version's, decided
        anew, or are deleted where it has no such slot. A run that waits for a retry goes on under the new version where
        nothing of it has succeeded and the change is immediate. All others keep the version they were born under.
        `update` says how changes take effect, None as each job says: *immediate* is this; *graceful* leaves the next
        slot after now, or all before a moment, to the version before, with its windows and tasks; *windowed* leaves
        runs born ahead beyond the horizon as they are.

        `expected` maps names to the version the caller read (0: must not exist). Raises VersionConflict with both
        versions, NamespaceConflict, InvalidDefinition (unknown dependency, pool or role, payload that is not JSON, the
        same name twice), DependencyCycle, PrincipalNotFound (no such owner), and but for `source="code"` InvalidTime (a
        job is given a schedule whose every time is older than its grace).
        """

    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[Declared, ...]:
        """Makes `specs` (from `core.declarative.declared_spec`) the declarative tasks of the catalog, all or nothing.

        Says of each what it is, in the order given, then of those no longer registered, which are put to sleep:
        disabled, and what they have not finished is kept. Commits together: jobs, versions, cursors
        (`core.declarative.owed_after`), and the runs of nodes that are gone, which are to be started again. What was
        under way goes on under the new version. A job that a person paused or disabled stays so. Raises
        NamespaceConflict and InvalidDefinition, as `define`.
        """

    async def declared(self) -> tuple[DeclaredTask, ...]:
        """Every declarative task the catalog has, registered or asleep, by name."""

    async def drop(self, names: Sequence[str], *, keep_history: bool = False, by: str = "local") -> int:
        """Removes jobs and leaves tombstones with their cursors; returns how many there were.

        Runs that have not started end CANCELLED("dropped"), running ones are asked to stop and keep their rows. Without
        `keep_history` every ended run goes too. Raises JobNotFound before anything is written, InvalidDefinition where
        another job depends on one of them.
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
        """ENABLED, PAUSED (perhaps `until` a time, with a note) or DISABLED. Answers the state that the job had.

        Where that state is not `among` the given ones nothing is written: the job is judged under the lock that the
        change is made under. What is owed under the old state is planned first; enabling a disabled job starts from
        now. Raises JobNotFound,
        and Conflict for a declarative task that sleeps and is not to be DISABLED: nobody could run it.
        """

    async def reschedule(self, name: str, at: datetime, *, by: str = "local") -> datetime:
        """Moves the job's next slot (the first after its cursor) to `at` and returns the slot's nominal time; nothing
        else moves. Raises JobNotFound, InvalidInput where the job has no next slot, InvalidTime where `at` is older
        than its grace."""

    async def admit(self, requests: Sequence[Admission]) -> tuple[Admitted, ...]:
        """Bears runs people ask for. The overlap policy speaks, pause and dependencies don't; no cursor moves.

        A key that is known answers with its run, whatever became of it. Backfill and replay line up behind what is
        active (QUEUED) unless the policy is allow. Raises JobNotFound, RunNotFound (replay), InvalidInput (a backfill
        time that is no slot, a task that the replayed run did not have).
        """

    async def cancel(
        self, run_ids: Sequence[str], *, by: str = "local", reason: str = "cancelled"
    ) -> tuple[RunState, ...]:
        """Ends what has not started CANCELLED and hands over; asks the owner of a RUNNING run to stop (the column its
        heartbeat and `changed` show it). An ended run stays as it is. Answers each run's state after that. Raises
        RunNotFound before anything is written."""

    async def set_pool(self, name: str, limit: int | None) -> None:
        """Sets how many runs of a pool may be RUNNING at once on all nodes together; None removes the pool, and runs
        that wait for it are free."""

    # ---- engine: schedule -> run -> attempt -> outcome -------------------------------------------------------------

    async def join(
        self,
        node: UUID,
        *,
        name: str | None = None,
        details: Mapping[str, Any] | None = None,
        working: Collection[ThreadKey] = (),
    ) -> None:
        """Registers an incarnation and takes its liveness lock. Raises NodeNameTaken while another live incarnation has
        the name; a dead predecessor's row of that name is left to `take_over`. `working` are attempts of the process'
        incarnation before, which others took for dead, whose code works on: they are this one's threads, and what has
        been put back and has not been started elsewhere waits for them."""

    async def describe(self, node: UUID, details: Mapping[str, Any]) -> None:
        """Replaces what a live node said of itself when it joined. What is not alive is left alone."""

    async def heartbeat(
        self, node: UUID, known: Mapping[str, int], working: Collection[ThreadKey] | None = None
    ) -> Pulse:
        """Raises the node's counter by one and compares the rows it owns with `known` (run id to fence): rows it does
        not know are released as never started (no try is counted), runs it no longer owns are told as lost. Call it
        after every lost connection, before anything else. `working` are the attempts whose code still works on the
        node: of threads that the catalog takes to work there, all others have ended. None says nothing of them."""

    async def end_threads(self, node: UUID, ended: Collection[ThreadKey]) -> int:
        """Threads of the node that outlived their attempts have ended: runs that waited to be tried again may start,
        and what lines up behind the threads is handed over. Returns how many the catalog knew of."""

    async def leave(self, node: UUID, *, working: bool = False) -> int:
        """Releases what the node still owns, marks it STOPPED, gives its lock back; returns how many were released. Its
        threads count no longer. `working`: some of them work on until the process ends. Then they count until it has:
        the node stays ALIVE, its lock ends with the process, and others take it over."""

    async def plan(self, limit: int = 500, start: Capacity | None = None) -> Planned:
        """Lets due jobs bear their runs: up to `limit` jobs whose `wake_at` has come, the longest waiting first.

        In this order: requests written through `cb_schedules` are applied; waiting runs whose chosen time has come are
        judged (overlap) and those past their deadline end MISSED; then jobs. Locked jobs are passed over. Runs and
        cursor commit together. With `start`, runs that may start now, need no pool and no handler the node lacks are
        born RUNNING, owned by the node, fence 1, with their first attempts, up to its slots. Runs whose dependencies
        are unmet are born PENDING with `waiting_for` "dependencies".
        """

    async def dispatch(self, capacity: Capacity) -> Dispatched:
        """Gives a node that has joined up to `slots` PENDING runs whose `not_before` has come, the oldest first:
        RUNNING, owner, `fence + 1`, task runs and the attempts that core starts. Pool limits are counted under the
        pools' locks. Runs whose handlers the node lacks, that wait for something, or whose job has its limit running
        are passed over. A node that is not ALIVE in the catalog is given nothing."""

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        """Writes what became of attempts and says how each run goes on: further attempts, parked for a retry, or ended.

        One transaction for all of them: attempts, task runs, run, then hand-over: the next QUEUED run of the job, runs
        whose dependencies this completes, runs that wait for a pool; a Once job that is done is disabled or dropped;
        audit rows. A settlement whose owner or fence does not match is FENCED (ALREADY where that same fence ended the
        run) and touches nothing. Repeated after its answer was lost, it says how the run stands, but not once more
        which attempts it had started: whoever misses those hands the run back (`release`).
        """

    def transact(
        self, node: UUID, run_id: str, run_no: int, fence: int, limit: float | None = None, owner: str | None = None
    ) -> AbstractAsyncContextManager[Joined]:
        """The transaction that a task's own writes join, so that they are done exactly once: they are committed with
        the run's settlement, or not at all.

            async with store.transact(node, claim.run_id, claim.run_no, claim.fence) as joined:
                await joined.execute("INSERT INTO sys.sales VALUES (?)", (7,))
                settled = await joined.settle(Settlement(claim.run_id, claim.run_no, claim.fence, ends))

        Entering raises Conflict where the run is not RUNNING, the node's, with that fence. When the block ends after
        `settle` was answered SETTLED, everything is committed. In every other case (no settle, FENCED, ALREADY, an
        error) everything is rolled back, and the run is as it was: its owner settles it by the ordinary verb.

        The commit may raise StoreUnavailable with `outcome_unknown`. Then settle the run by the ordinary verb with
        `release=True`: it waits for the locks of the transaction in doubt. Where that was committed after all, the
        answer is ALREADY (FENCED, if it parked the run), or SETTLED with the tasks it ended left as they are; where it
        was not, the run goes back and all that it left undone is done again.

        `limit` (None: `transaction_limit`) is for how many seconds the caller means to keep it open. Where a statement
        would hold up the caller's whole thread, it is stopped then and raises TransactionExpired.

        With an `owner` it is for that owner's text (`run_text`) and nothing else. Where `write_limit` is not None, that
        text runs in a process of its own, which is killed when the block is cancelled, and `limit` (then `write_limit`)
        is for how many seconds it may write. Of one owner only a few run at a time, on places of their own: entering
        waits for its turn for as long as the caller does, and `limit` counts from then on.

        A held transaction holds others up: on SQLite every other verb waits for it, on PostgreSQL its snapshot slows
        claims down, and only ten without an `owner` may be open in a process. Keep it short, and call no verb of this
        store inside it.
        """

    async def take_over(self, node: UUID, dead: UUID, counter: int) -> int | None:
        """Takes the runs of an incarnation that is judged dead, if its counter is still `counter`: attempts end LOST,
        runs go back to PENDING, or end FAILED_STALE (at most once) or FAILED (lost too often). Its row becomes DEAD, so
        that nothing it writes counts, and its threads count no longer. Returns how many runs were taken; None where
        nothing was done: the node turned out to live, or is gone already."""

    async def reap(self, limit: int = 500) -> int:
        """Looks at RUNNING runs: one past its execution timeout is asked to stop; one that was asked and did not stop
        within `cancel_grace` is ended with a raised fence, FAILED_STALE where time was the reason, else
        CANCELLED("abandoned"), and hands over. Where its owner lives, its threads are taken to work until the owner
        says otherwise by `heartbeat`. Returns how many it ended."""

    async def sweep(self, limit: int = 500, *, handler_grace: timedelta = HANDLER_GRACE) -> int:
        """Finds what no hand-over reached: QUEUED runs with nothing before them, runs whose dependencies are met or
        whose wait is over, Once jobs that are done, threads whose node is gone. Returns how many it moved. In a healthy
        catalog that is 0. Forgets hooks that no node had for seven days, and ends that waited as long for one.

        A run of an earlier version that waits, whatever for, and needs a handler which no live node has had for
        `handler_grace`, and which the job's present version does not name, goes on under the present version
        (`core.move`), or ends FAILED("handler gone") and hands over. A run that waits for its task's registration, or
        for a thread of its own, is left alone. Where a live node has not reported all of its handlers, nothing counts
        as gone."""

    async def retain(self, older_than: timedelta, limit: int = 5000) -> int:
        """Deletes up to `limit` ended runs whose end lies further back, with all that hangs on them. Cursors,
        tombstones and audit rows stay. Returns how many; call again while it is `limit`."""

    # ---- hooks ---------------------------------------------------------------------------------------------------

    async def register_hooks(self, hooks: Sequence[Hook]) -> None:
        """Remembers hooks, or that they are still there. From then on the transaction that ends a run, by whatever
        verb, writes a notice for each hook that asks for its job and state."""

    async def drop_hooks(self, hook_ids: Sequence[str]) -> None:
        """Forgets hooks, and what waits to be delivered to them."""

    async def hooks(self) -> tuple[HookRecord, ...]:
        """Every hook that is remembered, by its id, with how much waits for it."""

    async def claim_notices(
        self, node: UUID, hook_ids: Sequence[str], *, held: Sequence[int] = (), limit: int = 100
    ) -> tuple[Notice, ...]:
        """Gives a live node up to `limit` ends to deliver to these hooks, the oldest first: those that no live node has
        taken, and those that it took itself and does not name in `held` (an answer that got lost)."""

    async def delete_notices(self, node: UUID, numbers: Sequence[int]) -> int:
        """Ends what the node has delivered; returns how many of these were its own."""

    async def write_output(self, chunks: Sequence[OutputChunk]) -> None:
        """Appends output; a chunk that is there already is left alone."""

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
        """Jobs by name, in name order; `after` pages on. Names that don't exist are left out."""

    async def runs(
        self,
        *,
        job: str | None = None,
        state: RunState | None = None,
        active: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> tuple[RunRecord, ...]:
        """Runs, the newest born first; `before` (a run id) pages on; `active`: only those that have not ended."""

    async def history(self, run_id: str) -> History:
        """One run with tasks, attempts and results. Raises RunNotFound."""

    async def previous_starts(self, claims: Sequence[Claim]) -> Mapping[str, datetime]:
        """When the run before each claimed one started, by run id; those that have none before them are left out.

        Before it: of the job's other runs that started earlier than this claim was made, and whose nominal time is not
        after the time this run was due, the latest by nominal time. It is looked for among the scheduled ones and among
        those that people asked for, and the later of the two starts counts.
        """

    async def totals(self) -> Totals:
        """How many runs are under way in each state, and how many jobs there are in each: for metrics. Reads every job,
        so it is not for loops."""

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Every incarnation that is not STOPPED, with whether its lock is free and how many runs it owns."""

    async def threads(self, limit: int = 1000) -> tuple[ThreadRecord, ...]:
        """Threads that work although their attempt has ended, those of the oldest run first."""

    async def read_output(self, attempt_id: str) -> str:
        """All an attempt printed; empty where nothing was kept."""
