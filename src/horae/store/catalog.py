"""The catalog: every verb of the Store protocol, once, on any driver. Each method is a transaction and its module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from horae.core import ids
from horae.core.custom import Schedules
from horae.core.declarative import Declared, DeclaredTask
from horae.core.job import JobSpec
from horae.core.lifecycle import JobState, RunState
from horae.core.move import HANDLER_GRACE
from horae.core.update import Update
from horae.errors import InvalidDefinition, StoreConflict, shown
from horae.store import declaring, dispatching, keeping, operating, outbox, reading, threads
from horae.store.boarding import Boarded
from horae.store.bundling import Bundle
from horae.store.defining import Definer
from horae.store.definitions import Compiled, check_batch
from horae.store.driver import Driver, KeyTaken
from horae.store.joining import JoinedRun
from horae.store.migrating import check_catalog
from horae.store.parking import park_expired
from horae.store.planning import Planner
from horae.store.records import (
    Admission,
    Admitted,
    Capacity,
    Claim,
    Defined,
    Dispatched,
    History,
    Hook,
    HookRecord,
    JobRecord,
    NodeRecord,
    Notice,
    OutputChunk,
    Passed,
    Planned,
    Pulse,
    RunRecord,
    Settled,
    Settlement,
    ThreadKey,
    ThreadRecord,
    Totals,
)
from horae.store.requests import apply_earlier, apply_requests, requested_jobs
from horae.store.rows import optional_moment, to_json
from horae.store.settling import Settler, plain_definitions
from horae.store.transacting import Listener
from horae.store.vaulting import Vaulted
from horae.store.visiting import Visited
from horae.store.work import Work

MOST_CLAIMED = 100_000
MOST_WAITING = 10_000
"""How many waiting runs one planning pass looks at; jobs have a limit of the caller's."""

MOST_AT_ONCE = 100
"""Definitions that are worked out within the time that any transaction may stand still."""


class _StartOver(Exception):
    """Rolls a transaction back that turned out not to be the plain case."""


class Catalog(Vaulted, Boarded, Visited):
    """A Store, a Vault, a Board and its Visitors on a driver. What verbs mean is written in those protocols."""

    def __init__(self, driver: Driver, find: Callable[[str], Schedules | None] | None = None) -> None:
        super().__init__(driver, find)
        self._claimed: dict[int, Compiled] = {}
        self._left_alone: dict[str, tuple[int, str | None]] = {}
        """Jobs that could not be planned: of which version, and why its definition could not be read."""

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
        bundle = Bundle(self.driver)
        # Definitions of its own: what it learns counts only once it is committed.
        store = Catalog(bundle, self._cache.find)
        passed: list[Passed] = []
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
    ) -> tuple[Defined, ...]:
        check_batch(specs)
        try:
            async with self._work() as work:
                if len(specs) > MOST_AT_ONCE:
                    await work.transaction.rows("take_time")
                await apply_earlier(work, {spec.name for spec in specs}, self._unplannable)
                definer = Definer(
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

    async def declare(self, specs: Sequence[JobSpec], *, by: str = "local") -> tuple[Declared, ...]:
        nodes = [each for each in await self.nodes() if each.state != "ALIVE" or each.lock_free]
        gone = [each.node for each in nodes]
        # Where a free lock may only mean a connection that was lost, the keeper looks longer before it takes over.
        dead = [] if self.lock_grace else [(each.node, each.counter) for each in nodes if each.state == "ALIVE"]
        async with self._work() as work:
            answers = await declaring.Declarer(work, by=by, unplannable=self._unplannable).declare(specs, gone, dead)
        self._unplannable.clear()
        return answers

    async def declared(self) -> tuple[DeclaredTask, ...]:
        async with self._work(write=False) as work:
            return await declaring.declared(work)

    async def drop(self, names: Sequence[str], *, keep_history: bool = False, by: str = "local") -> int:
        async with self._work() as work:
            await apply_earlier(work, names, self._unplannable)
            return await operating.drop(work, names, keep_history=keep_history, by=by)

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
            return await operating.set_state(
                work, name, JobState(state), until, note, by, self._unplannable, among=among
            )

    async def reschedule(self, name: str, at: datetime, *, by: str = "local") -> datetime:
        async with self._work() as work:
            await apply_earlier(work, {name}, self._unplannable)
            return await operating.reschedule(work, name, at, by, self._unplannable)

    async def admit(self, requests: Sequence[Admission]) -> tuple[Admitted, ...]:
        async with self._work() as work:
            return await operating.Admitter(work, self._unplannable).admit(requests)

    async def cancel(
        self, run_ids: Sequence[str], *, by: str = "local", reason: str = "cancelled"
    ) -> tuple[RunState, ...]:
        async with self._work() as work:
            return await operating.cancel(work, run_ids, by=by, reason=reason)

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
                await keeping.join(work, str(node), name, details, [other for other in others if other not in free])
                if working:
                    await threads.adopt(work, str(node), working)
        except BaseException:
            await self.driver.free_lock(node)
            raise

    async def describe(self, node: UUID, details: Mapping[str, Any]) -> None:
        async with self._work() as work:
            await work.transaction.rows("describe_node", node=str(node), details=to_json(dict(details)))

    async def heartbeat(
        self, node: UUID, known: Mapping[str, int], working: Collection[ThreadKey] | None = None
    ) -> Pulse:
        self.driver.keep_locks()
        async with self._work() as work:
            return await keeping.heartbeat(work, str(node), known, working)

    async def end_threads(self, node: UUID, ended: Collection[ThreadKey]) -> int:
        async with self._work() as work:
            return await threads.end_threads(work, str(node), ended)

    async def leave(self, node: UUID, *, working: bool = False) -> int:
        async with self._work() as work:
            released = await keeping.leave(work, str(node), working=working)
        if working:
            self.driver.leave_lock(node)
        else:
            await self.driver.free_lock(node)
        return released

    async def plan(self, limit: int = 500, start: Capacity | None = None) -> Planned:
        try:
            return await self._plan(limit, start)
        except KeyTaken:
            # Somebody else's run has that key: a cursor was set back by hand. Slots that have a run are passed over.
            return await self._plan(limit, start, careful=True)

    async def _plan(self, limit: int, start: Capacity | None, *, careful: bool = False) -> Planned:
        async with self._work() as work:
            node = None if start is None else start.node
            alive, requested, waiting, limited = (await work.transaction.rows("look_around", node=node))[0]
            await self._look_again(work)
            work.careful = careful
            planner = Planner(work, start if alive else None, self._unplannable, shared=limited)
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
            planned = Planned(
                work.moment, jobs, planner.born, tuple(work.claims), wake, planner.more, unread, planner.crowded
            )
        self._remember(work.started)
        return planned

    async def _look_again(self, work: Work) -> None:
        """Plans jobs again that could not be planned, once they have another version or can be read."""
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

    async def dispatch(self, capacity: Capacity) -> Dispatched:
        plain = await dispatching.dispatch_plain(self.driver, self._cache, capacity)
        if plain is not None:
            dispatched, started, unread = plain
            self._remember(started)
            if unread:
                await self.settle(UUID(capacity.node), unread)
            return dispatched
        async with self._work() as work:
            upcoming = await dispatching.dispatch(work, capacity)
            dispatched = Dispatched(work.moment, tuple(work.claims), optional_moment(upcoming), work.held_back)
        self._remember(work.started)
        return dispatched

    def _remember(self, started: Sequence[tuple[int, Compiled]]) -> None:
        """Which definition each claimed run is of: it stays so while the run is RUNNING, and settling asks for it."""
        if len(self._claimed) > MOST_CLAIMED:
            self._claimed.clear()
        self._claimed.update(started)

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        if not settlements:
            return ()
        answers = None
        definitions = plain_definitions(settlements, self._claimed)
        if definitions is not None:
            with suppress(_StartOver):
                async with self._work() as work:
                    work.reported = frozenset(each.run_no for each in settlements)
                    answers = await Settler(work, str(node)).settle_plain(settlements, definitions)
                    if answers is None:
                        raise _StartOver
        if answers is None:
            async with self._work() as work:
                work.reported = frozenset(each.run_no for each in settlements)
                answers = await Settler(work, str(node)).settle(settlements)
                await park_expired(work, settlements, answers, self._unplannable)
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
            with suppress(_StartOver):
                async with self.driver.joined(limit or self.transaction_limit, owner) as transaction:
                    joined = JoinedRun(transaction, self._cache, str(node), run_id, run_no, fence)
                    await joined.check_owner()
                    yield joined
                    if not joined.keeps:
                        raise _StartOver
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
            return await keeping.take_over(work, str(dead), counter)

    async def reap(self, limit: int = 500) -> int:
        async with self._work() as work:
            return await keeping.reap(work, limit)

    async def sweep(self, limit: int = 500, *, handler_grace: timedelta = HANDLER_GRACE) -> int:
        await self.driver.end_strays()
        async with self._work() as work:
            return await keeping.sweep(work, limit, handler_grace)

    async def retain(self, older_than: timedelta, limit: int = 5000) -> int:
        async with self._work() as work:
            before = work.now - older_than // timedelta(milliseconds=1)
            return await keeping.retain(work, before, limit)

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
            return await reading.jobs(work, names, tag, state, after, limit)

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
            return await reading.runs(work, job=job, state=state, active=active, before=before, limit=limit)

    async def history(self, run_id: str) -> History:
        async with self._work(write=False) as work:
            return await reading.history(work, run_id)

    async def previous_starts(self, claims: Sequence[Claim]) -> Mapping[str, datetime]:
        if not claims:
            return {}
        async with self._reading() as work:
            return await reading.previous_starts(work, claims)

    async def totals(self) -> Totals:
        async with self._reading() as work:
            return await reading.totals(work)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        async with self._reading() as work:
            rows = await work.transaction.rows("list_nodes")
        free = await self.driver.free_locks([row[0] for row in rows if row[2] == "ALIVE"])
        return tuple(keeping.node_record(row, free) for row in rows)

    async def threads(self, limit: int = 1000) -> tuple[ThreadRecord, ...]:
        async with self._reading() as work:
            return await reading.threads(work, limit)

    async def read_output(self, attempt_id: str) -> str:
        async with self._reading() as work:
            rows = await work.transaction.rows("read_output", attempt=attempt_id.removeprefix("attempt_"))
            return "".join(row[0] for row in rows)
