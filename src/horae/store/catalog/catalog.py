"""The catalog: every verb of the Store protocol, on any driver.

Each method opens a transaction and calls a function of the module that implements the verb.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from horae.core.change.run_move import HANDLER_GRACE
from horae.core.change.update_policy import Update
from horae.core.declarative import DeclarationResult, DeclaredTask
from horae.core.job import ids
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.custom import ScheduleLike
from horae.errors import InvalidDefinition, StoreConflict, shown
from horae.store.catalog import maintenance, outbox, reads, threads
from horae.store.catalog.bundle import SharedTransactionDriver
from horae.store.catalog.definition_cache import CompiledDefinition, check_batch
from horae.store.catalog.jobs import declarations, operations
from horae.store.catalog.jobs.definition import JobDefiner
from horae.store.catalog.jobs.expired_texts import pause_expired_jobs
from horae.store.catalog.jobs.requests import apply_earlier, apply_requests, requested_jobs
from horae.store.catalog.page_reads import PageReadVerbs
from horae.store.catalog.people.people import PeopleVerbs
from horae.store.catalog.people.sessions import SessionVerbs
from horae.store.catalog.row_codec import optional_moment, to_json
from horae.store.catalog.runs import run_claims
from horae.store.catalog.runs.creation import RunCreator
from horae.store.catalog.runs.joined_run import JoinedRun
from horae.store.catalog.runs.settlement import SettlementWriter, plain_definitions
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.catalog.verb_group import Listener
from horae.store.driver import Driver, KeyTaken
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
    RunHistory,
    RunRecord,
    Settlement,
    SettlementResult,
    StateCounts,
    ThreadKey,
    ThreadRecord,
    UnreportedRun,
)
from horae.store.schema import check_catalog

MOST_CLAIMED = 100_000
MOST_WAITING = 10_000
"""How many waiting runs one call of `create_due_runs` looks at. The caller gives the limit for jobs."""

MOST_AT_ONCE = 100
"""How many definitions can be compiled within the time that any transaction may stay idle. A larger batch first asks
for more time."""


class _RollbackSignal(Exception):
    """Raised and caught here to roll a transaction back: it is not the plain case, or the run was not settled."""


class Catalog(PeopleVerbs, PageReadVerbs, SessionVerbs):
    """Implements Store, Vault, Board and Visitors on a driver. The verbs' contracts are in `store.protocols`."""

    def __init__(self, driver: Driver, find: Callable[[str], ScheduleLike | None] | None = None) -> None:
        super().__init__(driver, find)
        self._claimed: dict[int, CompiledDefinition] = {}
        self._left_alone: dict[str, tuple[int, str | None]] = {}
        """Jobs whose runs could not be created: the version, and why its definition could not be read, if so."""

    @property
    def lock_grace(self) -> float:
        return self.driver.lock_grace

    @property
    def transaction_limit(self) -> float:
        return self.driver.transaction_limit

    @property
    def write_limit(self) -> float | None:
        return self.driver.write_limit

    async def now(self) -> datetime:
        async with self._reading() as work:
            return work.moment

    async def open(self) -> None:
        await self.driver.open()
        try:
            await check_catalog(self.driver)
        except BaseException:
            await self.driver.close()
            raise

    async def close(self) -> None:
        await self.driver.close()

    async def changed(self, seen: int = 0, timeout: float | None = None) -> int:
        return await self.driver.changed(seen, timeout)

    def observe(self, listener: Listener | None) -> None:
        self._listener = listener

    @asynccontextmanager
    async def together(self, *, late: bool = False) -> AsyncIterator[Catalog]:
        bundle = SharedTransactionDriver(self.driver)
        # It has its own cache, because definitions that it learns are valid only once they are committed.
        store = Catalog(bundle, self._cache.find)
        passed: list[UnreportedRun] = []
        if self._listener is not None:
            store.observe(passed.extend)
        async with bundle.open_until_end():
            if not late:
                await (await bundle.begin()).rows("take_time")
            yield store
        for (job_uuid, _), compiled in store._cache.known.items():
            self._cache.put(job_uuid, compiled.definition)
        self._unplannable.clear()
        if self._listener is not None and passed:
            self._listener(passed)

    # ---- definitions and operations ---------------------------------------------------------------------------------

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
        check_batch(specs)
        try:
            async with self._work() as work:
                if len(specs) > MOST_AT_ONCE:
                    await work.transaction.rows("take_time")
                await apply_earlier(work, {spec.name for spec in specs}, self._unplannable)
                definer = JobDefiner(
                    work,
                    by=by,
                    source=source,
                    defaults=defaults or {},
                    expected=expected or {},
                    reason=reason,
                    unplannable=self._unplannable,
                    update=update,
                    keeps_state=keeps_state,
                )
                answers = await definer.define(specs)
        except KeyTaken as error:
            raise StoreConflict("Somebody else defined one of these jobs just now") from error
        self._unplannable.clear()
        return answers

    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[DeclarationResult, ...]:
        nodes = [each for each in await self.nodes() if each.state != "ALIVE" or each.lock_free]
        gone = [each.node for each in nodes]
        # With a `lock_grace`, a free lock may only mean a lost connection: maintenance observes it for longer first.
        dead = [] if self.lock_grace else [(each.node, each.counter) for each in nodes if each.state == "ALIVE"]
        async with self._work() as work:
            answers = await declarations.Declarer(work, by=by, unplannable=self._unplannable).declare(specs, gone, dead)
        self._unplannable.clear()
        return answers

    async def declared(self) -> tuple[DeclaredTask, ...]:
        async with self._work(write=False) as work:
            return await declarations.declared(work)

    async def drop(self, names: Sequence[str], *, keep_history: bool = False, by: str = "local") -> int:
        async with self._work() as work:
            await apply_earlier(work, names, self._unplannable)
            return await operations.drop(work, names, keep_history=keep_history, by=by)

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
        async with self._work() as work:
            await apply_earlier(work, {name}, self._unplannable)
            return await operations.set_state(
                work, name, JobState(state), until, note, by, self._unplannable, among=among
            )

    async def reschedule(self, name: str, at: datetime, *, by: str = "local") -> datetime:
        async with self._work() as work:
            await apply_earlier(work, {name}, self._unplannable)
            return await operations.reschedule(work, name, at, by, self._unplannable)

    async def admit(self, requests: Sequence[Admission]) -> tuple[AdmissionResult, ...]:
        async with self._work() as work:
            return await operations.Admitter(work, self._unplannable).admit(requests)

    async def cancel(
        self, run_ids: Sequence[str], *, by: str = "local", reason: str = "cancelled"
    ) -> tuple[RunState, ...]:
        async with self._work() as work:
            return await operations.cancel(work, run_ids, by=by, reason=reason)

    async def set_pool(self, name: str, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise InvalidDefinition(f"Invalid limit {shown(limit)} for the pool {shown(name)}: must be 1 or more")
        async with self._work() as work:
            if limit is None:
                await work.transaction.rows("delete_pool", pool=name)
            else:
                await work.transaction.rows("upsert_pool", pool=name, limit=limit)
            work.transaction.wake()

    # ---- engine ------------------------------------------------------------------------------------------------------

    async def join(
        self,
        node: UUID,
        *,
        name: str | None = None,
        details: Mapping[str, Any] | None = None,
        working: Collection[ThreadKey] = (),
    ) -> None:
        await self.driver.take_lock(node)
        try:
            async with self._work() as work:
                others = [row[0] for row in await work.transaction.rows("nodes_of_name", name=name)] if name else []
                free = await self.driver.free_locks(others)
                await maintenance.join(work, str(node), name, details, [other for other in others if other not in free])
                if working:
                    await threads.take_threads(work, str(node), working)
        except BaseException:
            await self.driver.free_lock(node)
            raise

    async def describe(self, node: UUID, details: Mapping[str, Any]) -> None:
        async with self._work() as work:
            await work.transaction.rows("describe_node", node=str(node), details=to_json(dict(details)))

    async def heartbeat(
        self, node: UUID, known: Mapping[str, int], working: Collection[ThreadKey] | None = None
    ) -> HeartbeatResult:
        self.driver.keep_locks()
        async with self._work() as work:
            return await maintenance.heartbeat(work, str(node), known, working)

    async def end_threads(self, node: UUID, ended: Collection[ThreadKey]) -> int:
        async with self._work() as work:
            return await threads.end_threads(work, str(node), ended)

    async def leave(self, node: UUID, *, working: bool = False) -> int:
        async with self._work() as work:
            released = await maintenance.leave(work, str(node), working=working)
        if working:
            self.driver.leave_lock(node)
        else:
            await self.driver.free_lock(node)
        return released

    async def create_due_runs(self, limit: int = 500, start: Capacity | None = None) -> CreationResult:
        try:
            return await self._create_due_runs(limit, start)
        except KeyTaken:
            # Another run has that key: a cursor was set back by hand. Scheduled times that have a run are skipped.
            return await self._create_due_runs(limit, start, careful=True)

    async def _create_due_runs(self, limit: int, start: Capacity | None, *, careful: bool = False) -> CreationResult:
        async with self._work() as work:
            node = None if start is None else start.node
            alive, requested, waiting, limited = (await work.transaction.rows("look_around", node=node))[0]
            await self._look_again(work)
            work.careful = careful
            planner = RunCreator(work, start if alive else None, self._unplannable, shared=limited)
            if requested:
                planner.more = await apply_requests(work, self._unplannable)
                planner.put_off = await requested_jobs(work) if planner.more else frozenset()
            if waiting:
                await planner.judge_waiting(MOST_WAITING)
            jobs = await planner.due_jobs(limit)
            wake: datetime | None = work.moment
            if not planner.more:
                await work.flush()
                rows = await work.transaction.rows("next_wake", skip=sorted(self._unplannable), left=planner.left)
                wake = optional_moment(rows[0][0])
            unread = tuple(planner.unreadable)
            keys = ((ids.job_key(each.name), each.version) for each in unread)
            faulty = self._cache.faulty
            self._left_alone |= {uuid: (version, faulty.get((uuid, version))) for uuid, version in keys}
            planned = CreationResult(
                work.moment, jobs, planner.born, tuple(work.claims), wake, planner.more, unread, planner.crowded
            )
        self._remember(work.started)
        return planned

    async def _look_again(self, work: UnitOfWork) -> None:
        """Retries jobs whose runs could not be created, once their version, or why it cannot be read, has changed."""
        if not self._unplannable:
            self._left_alone.clear()
            return
        rows = await work.transaction.rows("read_job_versions", jobs=sorted(self._unplannable))
        await work.cache.load(work.transaction, rows)
        found = {uuid: (version, self._cache.faulty.get((uuid, version))) for uuid, version in rows}
        before = self._left_alone
        changed = {uuid for uuid in self._unplannable if before.get(uuid, found.get(uuid)) != found.get(uuid)}
        self._unplannable -= changed
        self._left_alone = {uuid: found[uuid] for uuid in self._unplannable if uuid in found}

    async def claim_runs(self, capacity: Capacity) -> ClaimResult:
        plain = await run_claims.dispatch_plain(self.driver, self._cache, capacity)
        if plain is not None:
            dispatched, started, unread = plain
            self._remember(started)
            if unread:
                await self.settle(UUID(capacity.node), unread)
            return dispatched
        async with self._work() as work:
            upcoming = await run_claims.claim_runs(work, capacity)
            dispatched = ClaimResult(work.moment, tuple(work.claims), optional_moment(upcoming), work.held_back)
        self._remember(work.started)
        return dispatched

    def _remember(self, started: Sequence[tuple[int, CompiledDefinition]]) -> None:
        """Remembers each claimed run's definition for `settle`. It does not change while the run is RUNNING."""
        if len(self._claimed) > MOST_CLAIMED:
            self._claimed.clear()
        self._claimed.update(started)

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        if not settlements:
            return ()
        answers = None
        definitions = plain_definitions(settlements, self._claimed)
        if definitions is not None:
            with suppress(_RollbackSignal):
                async with self._work() as work:
                    work.reported = frozenset(each.run_no for each in settlements)
                    answers = await SettlementWriter(work, str(node)).settle_plain(settlements, definitions)
                    if answers is None:
                        raise _RollbackSignal
        if answers is None:
            async with self._work() as work:
                work.reported = frozenset(each.run_no for each in settlements)
                answers = await SettlementWriter(work, str(node)).settle(settlements)
                await pause_expired_jobs(work, settlements, answers, self._unplannable)
        claimed = self._claimed
        for answer, each in zip(answers, settlements, strict=True):
            if answer.state is not RunState.RUNNING:
                claimed.pop(each.run_no, None)
        return answers

    @asynccontextmanager
    async def transact(
        self, node: UUID, run_id: str, run_no: int, fence: int, limit: float | None = None, owner: str | None = None
    ) -> AsyncIterator[JoinedRun]:
        joined: JoinedRun | None = None
        committed = False
        try:
            with suppress(_RollbackSignal):
                async with self.driver.joined(limit or self.transaction_limit, owner) as transaction:
                    joined = JoinedRun(transaction, self._cache, str(node), run_id, run_no, fence)
                    await joined.check_owner()
                    yield joined
                    if not joined.keeps:
                        raise _RollbackSignal
                    if joined.work is not None:
                        await self._collect(joined.work)
                    joined.finish()
                committed = True
                if joined.work is not None:
                    self._tell(joined.work)
        finally:
            if joined is not None:
                joined.close(committed=committed)
        if joined is not None and joined.answer is not None and joined.answer.state is not RunState.RUNNING:
            self._claimed.pop(run_no, None)

    async def take_over(self, node: UUID, dead: UUID, counter: int) -> int | None:
        async with self._work() as work:
            return await maintenance.take_over(work, str(dead), counter)

    async def reap(self, limit: int = 500) -> int:
        async with self._work() as work:
            return await maintenance.reap(work, limit)

    async def sweep(self, limit: int = 500, *, handler_grace: timedelta = HANDLER_GRACE) -> int:
        await self.driver.end_strays()
        async with self._work() as work:
            return await maintenance.sweep(work, limit, handler_grace)

    async def retain(self, older_than: timedelta, limit: int = 5000) -> int:
        async with self._work() as work:
            before = work.now - older_than // timedelta(milliseconds=1)
            return await maintenance.retain(work, before, limit)

    # ---- hooks -------------------------------------------------------------------------------------------------------

    async def register_hooks(self, hooks: Sequence[Hook]) -> None:
        if hooks:
            async with self._work() as work:
                await outbox.register_hooks(work, hooks)

    async def drop_hooks(self, hook_ids: Sequence[str]) -> None:
        if hook_ids:
            async with self._work() as work:
                await outbox.drop_hooks(work, hook_ids)

    async def hooks(self) -> tuple[HookRecord, ...]:
        async with self._reading() as work:
            return await outbox.hooks(work)

    async def claim_notices(
        self, node: UUID, hook_ids: Sequence[str], *, held: Sequence[int] = (), limit: int = 100
    ) -> tuple[Notice, ...]:
        async with self._work() as work:
            return await outbox.claim_notices(work, str(node), hook_ids, held, limit)

    async def delete_notices(self, node: UUID, numbers: Sequence[int]) -> int:
        async with self._work() as work:
            return await outbox.delete_notices(work, str(node), numbers)

    async def write_output(self, chunks: Sequence[OutputChunk]) -> None:
        async with self._work() as work:
            rows = [
                (
                    each.run_no,
                    each.position,
                    each.attempt,
                    each.number,
                    each.attempt_id.removeprefix("attempt_"),
                    work.now,
                    each.text,
                )
                for each in chunks
            ]
            await work.transaction.many("insert_output", rows)

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def jobs(
        self,
        names: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        state: JobState | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> tuple[JobRecord, ...]:
        async with self._reading() as work:
            return await reads.jobs(work, names, tag, state, after, limit)

    async def runs(
        self,
        *,
        job: str | None = None,
        state: RunState | None = None,
        active: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> tuple[RunRecord, ...]:
        async with self._reading() as work:
            return await reads.runs(work, job=job, state=state, active=active, before=before, limit=limit)

    async def history(self, run_id: str) -> RunHistory:
        async with self._work(write=False) as work:
            return await reads.history(work, run_id)

    async def previous_starts(self, claims: Sequence[Claim]) -> Mapping[str, datetime]:
        if not claims:
            return {}
        async with self._reading() as work:
            return await reads.previous_starts(work, claims)

    async def totals(self) -> StateCounts:
        async with self._reading() as work:
            return await reads.totals(work)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        async with self._reading() as work:
            rows = await work.transaction.rows("list_nodes")
        free = await self.driver.free_locks([row[0] for row in rows if row[2] == "ALIVE"])
        return tuple(maintenance.node_record(row, free) for row in rows)

    async def threads(self, limit: int = 1000) -> tuple[ThreadRecord, ...]:
        async with self._reading() as work:
            return await reads.threads(work, limit)

    async def read_output(self, attempt_id: str) -> str:
        async with self._reading() as work:
            rows = await work.transaction.rows("read_output", attempt=attempt_id.removeprefix("attempt_"))
            return "".join(row[0] for row in rows)
