"""The slow, obvious store that real stores are compared with: one process, no files, the whole catalog read every time.

It asks the rules of core that every store asks, and nothing else about it is clever, so where it differs from a real
store, that one is wrong, or the specification is. Nothing survives it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from horae.core.change.run_move import HANDLER_GRACE
from horae.core.change.update_policy import Update
from horae.core.declarative import DeclarationResult, DeclaredTask
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.errors import Conflict, InvalidInput, NodeNameTaken, shown
from horae.store.protocols.people import Identity
from horae.store.records import (
    Admission,
    AdmissionResult,
    Capacity,
    Claim,
    ClaimResult,
    CreationResult,
    DefinitionResult,
    HeartbeatResult,
    Hook,
    HookRecord,
    JobRecord,
    NodeRecord,
    Notice,
    OutputChunk,
    Rows,
    RunHistory,
    RunRecord,
    Settlement,
    SettlementResult,
    StateCounts,
    ThreadKey,
    ThreadRecord,
    UnreportedRun,
)
from horae.testing.clock import whole_milliseconds
from horae_store_tests.model import (
    creation,
    definitions,
    maintenance,
    operations,
    outbox,
    progress,
    records,
    registrations,
)
from horae_store_tests.model.rows import Catalog, Node, Work
from horae_store_tests.model.threads import adopt_threads, remove_threads, thread_records, threads_of
from horae_store_tests.model.transitions import hand_over_all

if TYPE_CHECKING:
    from horae.store.protocols.store import Store

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Verb = Callable[Concatenate["ModelStore", Parameters], Coroutine[Any, Any, Answer]]


def atomic(verb: Verb[Parameters, Answer]) -> Verb[Parameters, Answer]:
    """Makes a verb a transaction: what raises changes nothing, and what changed something wakes those who wait."""

    @wraps(verb)
    async def transaction(store: ModelStore, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        before = store.catalog.snapshot()
        try:
            answer = await verb(store, *args, **kwargs)
        except BaseException:
            store.catalog = before
            raise
        store.note_ends(before, args)
        await store.announce(before)
        return answer

    return transaction


class ModelStore:
    """A catalog in memory. What `clock` says is floored to milliseconds, and where it goes back it is not believed."""

    lock_grace: float = 0.0
    """How long a lock has to be free before its node may be judged dead: here a free lock is proof."""

    transaction_limit: float = 5.0
    write_limit: float | None = None

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.catalog = Catalog()
        self._clock = clock
        self._latest: datetime | None = None
        self._changes = 0
        self._changed = asyncio.Condition()
        self._listener: Callable[[Sequence[UnreportedRun]], None] | None = None

    def _work(self) -> Work:
        now = whole_milliseconds(self._clock(), "now")
        self._latest = now if self._latest is None else max(self._latest, now)
        return Work(self.catalog, self._latest)

    async def now(self) -> datetime:
        return self._work().now

    def observe(self, listener: Callable[[Sequence[UnreportedRun]], None] | None) -> None:
        self._listener = listener

    def note_ends(self, before: Catalog, args: Sequence[Any]) -> None:
        """Writes notices of what a verb ended, and tells of what nobody reports: the owners of settled runs do."""
        outbox.note_ends(before, self.catalog)
        given = args[1] if len(args) > 1 and isinstance(args[1], Sequence) else ()
        reported = {each.run_id for each in given if isinstance(each, Settlement)}
        passed = outbox.passed_between(before, self.catalog, reported, self._work().now)
        if self._listener is not None and passed:
            self._listener(passed)

    async def announce(self, before: Catalog) -> None:
        """Wakes those who wait in `changed` if jobs, runs or pools are not as they were; heartbeats wake nobody."""
        after = self.catalog
        if (after.jobs, after.runs, after.pools) != (before.jobs, before.runs, before.pools):
            self._changes += 1
            async with self._changed:
                self._changed.notify_all()

    def die(self, node: UUID) -> None:
        """What is left of an incarnation whose process is gone: its lock is free, its row says nothing of it."""
        self.catalog.held.discard(str(node))

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self.catalog.held.clear()

    async def changed(self, seen: int = 0, timeout: float | None = None) -> int:
        async def fired() -> int:
            async with self._changed:
                await self._changed.wait_for(lambda: self._changes != seen)
            return self._changes

        try:
            return await asyncio.wait_for(fired(), timeout)
        except TimeoutError:
            return seen

    # ---- definitions and operations ------------------------------------------------------------------------------

    @atomic
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
        specs = definitions.stated(self._work(), specs, keeps_state)
        return definitions.define(
            self._work(), specs, by=by, source=source, defaults=defaults, expected=expected, update=update
        )

    @atomic
    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[DeclarationResult, ...]:
        return registrations.declare(self._work(), specs, by=by)

    async def declared(self) -> tuple[DeclaredTask, ...]:
        return registrations.declared(self.catalog)

    @atomic
    async def drop(self, names: Sequence[str], *, keep_history: bool = False, by: str = "local") -> int:
        return operations.drop(self._work(), names, keep_history=keep_history, by=by)

    @atomic
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
        return operations.set_state(self._work(), name, state, until, note, among)

    @atomic
    async def reschedule(self, name: str, at: datetime, *, by: str = "local") -> datetime:
        return operations.reschedule(self._work(), name, at)

    @atomic
    async def admit(self, requests: Sequence[Admission]) -> tuple[AdmissionResult, ...]:
        return operations.admit(self._work(), requests)

    @atomic
    async def cancel(
        self, run_ids: Sequence[str], *, by: str = "local", reason: str = "cancelled"
    ) -> tuple[RunState, ...]:
        return operations.cancel(self._work(), run_ids, by=by, reason=reason)

    @atomic
    async def set_pool(self, name: str, limit: int | None) -> None:
        operations.set_pool(self._work(), name, limit)

    # ---- engine ------------------------------------------------------------------------------------------------------

    @atomic
    async def join(
        self,
        node: UUID,
        *,
        name: str | None = None,
        details: Mapping[str, Any] | None = None,
        working: Collection[ThreadKey] = (),
    ) -> None:
        work, own = self._work(), str(node)
        for other in work.catalog.nodes.values():
            live = other.state == "ALIVE" and other.node in work.catalog.held
            if live and name is not None and other.name == name and other.node != own:
                raise NodeNameTaken(f"Another live node is called {shown(name)}")
        fresh = Node(own, name, work.now, work.now, details=dict(details or {}))
        row = work.catalog.nodes.setdefault(own, fresh)
        if row.state == "ALIVE":
            work.catalog.held.add(own)
        adopt_threads(work, own, working)

    @atomic
    async def describe(self, node: UUID, details: Mapping[str, Any]) -> None:
        row = self._work().catalog.nodes.get(str(node))
        if row is not None and row.state == "ALIVE":
            row.details = dict(details)

    @atomic
    async def heartbeat(
        self, node: UUID, known: Mapping[str, int], working: Collection[ThreadKey] | None = None
    ) -> HeartbeatResult:
        work, own = self._work(), str(node)
        row = work.catalog.nodes.get(own)
        if row is None or row.state != "ALIVE":
            return HeartbeatResult(work.now, expelled=True)
        row.counter += 1
        row.heartbeat_at = work.now
        if working is not None:
            remove_threads(work, [thread for thread in threads_of(work, own) if thread.key not in working])
        owned = work.catalog.owned(own)
        held = {run.run_id: run.fence for run in owned}
        lost = tuple(run_id for run_id, fence in known.items() if held.get(run_id) != fence)
        strangers = [run for run in owned if known.get(run.run_id) != run.fence]
        for run in strangers:
            progress.release(work, run, started=False)
        hand_over_all(work)
        cancels = {run.run_id: run.cancel_reason for run in work.catalog.owned(own) if run.cancel_reason is not None}
        return HeartbeatResult(work.now, released=tuple(run.run_id for run in strangers), lost=lost, cancels=cancels)

    @atomic
    async def end_threads(self, node: UUID, ended: Collection[ThreadKey]) -> int:
        work = self._work()
        return remove_threads(work, [thread for thread in threads_of(work, str(node)) if thread.key in ended])

    @atomic
    async def leave(self, node: UUID, *, working: bool = False) -> int:
        work, own = self._work(), str(node)
        row = work.catalog.nodes.get(own)
        if row is None:
            return 0
        owned = work.catalog.owned(own)
        for run in owned:
            progress.release(work, run, started=True)
        hand_over_all(work)
        if working:
            return len(owned)
        remove_threads(work, threads_of(work, own))
        row.state = "STOPPED"
        row.ended_at = work.now
        work.catalog.held.discard(own)
        return len(owned)

    @atomic
    async def create_due_runs(self, limit: int = 500, start: Capacity | None = None) -> CreationResult:
        return creation.plan(self._work(), limit, start)

    @atomic
    async def claim_runs(self, capacity: Capacity) -> ClaimResult:
        return progress.claim_runs(self._work(), capacity)

    @atomic
    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        return progress.settle(self._work(), node, settlements)

    @asynccontextmanager
    async def transact(
        self, node: UUID, run_id: str, run_no: int, fence: int, limit: float | None = None, owner: str | None = None
    ) -> AsyncIterator[ModelJoined]:
        run = self.catalog.run(run_id)
        if run is None or (run.state, run.owner, run.fence) != (RunState.RUNNING, str(node), fence):
            raise Conflict(f"Run {shown(run_id)} is not this node's to work on")
        joined = ModelJoined(self, node, run_id, fence)
        try:
            yield joined
        except BaseException:
            if joined.before is not None:
                self.catalog = joined.before
            raise
        finally:
            joined.closed = True

    @atomic
    async def take_over(self, node: UUID, dead: UUID, counter: int) -> int | None:
        return maintenance.take_over(self._work(), dead, counter)

    @atomic
    async def reap(self, limit: int = 500) -> int:
        return maintenance.reap(self._work(), limit)

    @atomic
    async def sweep(self, limit: int = 500, *, handler_grace: timedelta = HANDLER_GRACE) -> int:
        work = self._work()
        outbox.expire(work)
        return operations.sweep(work, limit, handler_grace)

    @atomic
    async def retain(self, older_than: timedelta, limit: int = 5000) -> int:
        return operations.retain(self._work(), older_than, limit)

    # ---- hooks -------------------------------------------------------------------------------------------------------

    @atomic
    async def register_hooks(self, hooks: Sequence[Hook]) -> None:
        outbox.register(self._work(), hooks)

    @atomic
    async def drop_hooks(self, hook_ids: Sequence[str]) -> None:
        outbox.drop(self._work(), hook_ids)

    async def hooks(self) -> tuple[HookRecord, ...]:
        return outbox.records(self.catalog)

    @atomic
    async def claim_notices(
        self, node: UUID, hook_ids: Sequence[str], *, held: Sequence[int] = (), limit: int = 100
    ) -> tuple[Notice, ...]:
        return outbox.claim(self._work(), node, hook_ids, held, limit)

    @atomic
    async def delete_notices(self, node: UUID, numbers: Sequence[int]) -> int:
        return outbox.delete(self._work(), node, numbers)

    @atomic
    async def write_output(self, chunks: Sequence[OutputChunk]) -> None:
        numbers = {run.number for run in self.catalog.runs}
        for chunk in chunks:
            if chunk.run_no in numbers:
                self.catalog.output.setdefault((chunk.attempt_id, chunk.number), chunk)

    # ---- reading -------------------------------------------------------------------------------------------------

    async def jobs(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        state: JobState | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> tuple[JobRecord, ...]:
        found = [records.job_record(self.catalog, job) for _, job in sorted(self.catalog.jobs.items())]
        return tuple(
            job
            for job in found
            if (names is None or job.name in names)
            and (tag is None or tag in job.definition.spec.tags)
            and (state is None or job.state == state)
            and (after is None or job.name > after)
        )[: limit if names is None else len(names)]

    async def runs(
        self,
        *,
        job: str | None = None,
        state: RunState | None = None,
        active: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> tuple[RunRecord, ...]:
        mark = None if before is None else self.catalog.run(before)
        if before is not None and mark is None:
            return ()
        return tuple(
            records.run_record(self.catalog, run)
            for run in reversed(self.catalog.runs)
            if (job is None or run.job_name == job)
            and (state is None or run.state == state)
            and not (active and run.ended)
            and (mark is None or run.number < mark.number)
        )[:limit]

    async def history(self, run_id: str) -> RunHistory:
        return records.history(self.catalog, operations.found_run(self._work(), run_id))

    async def previous_starts(self, claims: Sequence[Claim]) -> Mapping[str, datetime]:
        found = {claim.run_id: records.previous_start(self.catalog, claim) for claim in claims}
        return {run_id: started for run_id, started in found.items() if started is not None}

    async def totals(self) -> StateCounts:
        work = self._work()
        runs = Counter(run.state for run in self.catalog.runs)
        jobs = Counter(job.state for job in self.catalog.jobs.values())
        due = len(progress.due_runs(work))
        return StateCounts(
            runs[RunState.RUNNING],
            runs[RunState.QUEUED],
            runs[RunState.PENDING],
            due,
            jobs[JobState.ENABLED],
            jobs[JobState.PAUSED],
            jobs[JobState.DISABLED],
        )

    async def nodes(self) -> tuple[NodeRecord, ...]:
        nodes = self.catalog.nodes.values()
        return tuple(records.node_record(self.catalog, node) for node in nodes if node.state != "STOPPED")

    async def threads(self, limit: int = 1000) -> tuple[ThreadRecord, ...]:
        return thread_records(self.catalog, limit)

    async def read_output(self, attempt_id: str) -> str:
        pieces = sorted(
            (chunk.number, chunk.text) for chunk in self.catalog.output.values() if chunk.attempt_id == attempt_id
        )
        return "".join(text for _, text in pieces)


class ModelJoined:
    """A run's transaction in the model. There is no SQL in it, so all that can be done is to settle the run."""

    def __init__(self, store: ModelStore, node: UUID, run_id: str, fence: int) -> None:
        self._store = store
        self._node = node
        self._run = (run_id, fence)
        self.before: Catalog | None = None
        self.closed = False

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Rows:
        raise InvalidInput("The model store has no SQL", hint="Use a store on SQLite or PostgreSQL.")

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        return await self.execute(sql)

    async def settle(self, settlement: Settlement) -> SettlementResult:
        if self.closed or (settlement.run_id, settlement.fence) != self._run:
            raise InvalidInput("The transaction is over, or another run's")
        self.closed = True
        self.before = self._store.catalog.snapshot()
        (answer,) = await self._store.settle(self._node, (settlement,))
        return answer


if TYPE_CHECKING:
    # Says to the type checker, and to nobody else, that the model is a store.
    _is_a_store: type[Store] = ModelStore
