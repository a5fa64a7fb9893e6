"""Any await of the PostgreSQL driver may hang for ever: whoever waits gives up in time, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from uuid import uuid4

import pytest
from tests.store.catalogs import Place
from tests.store.databases import Databases
from tests.store.hanging import Hanging, hanging
from tests.tier import seeds

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import AttemptState, RunState
from horae.errors import Conflict, StoreConflict, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import Admission, AttemptEnd, Capacity, Claim, Origin, Settlement

Answer = TypeVar("Answer")
LONGEST = 240.0
"""Simulated seconds that one call may take: for a connection (30 s), for the answers of its few trips to the server (15
s each, and up to 60 s from one that was slow before), for what is to be undone."""
TASK = 20.0
WHOLE = 400_000.0
"""Simulated seconds of a whole test. What hangs is drawn at each wait, and how many waits there are is the server's
choice: with 20,000 s every fifth seed ran out of time. What hangs for ever is found whatever the limit."""
RUNS = 12
THINGS = "DROP TABLE IF EXISTS things; CREATE TABLE things (name TEXT PRIMARY KEY)"


class Broken(Exception):
    """What a task raises."""


class Node:
    """A node that does by hand what an engine does: it repeats what the store did not answer."""

    def __init__(self, faults: Hanging, store: Catalog) -> None:
        self.node = uuid4()
        self._faults = faults
        self._store = store
        self._known: dict[str, int] = {}

    async def call(self, verb: Callable[[], Awaitable[Answer]]) -> Answer:
        """What a verb answers, repeated until it does; each try ends in time."""
        while True:
            try:
                return await self.once(verb)
            except (StoreUnavailable, StoreConflict):
                await asyncio.sleep(1)

    async def once(self, verb: Callable[[], Awaitable[Answer]]) -> Answer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await verb()
        finally:
            took = loop.time() - began
            assert took <= LONGEST, f"a call took {took:.0f} s"

    async def begin(self) -> None:
        await self.call(self._store.open)
        await self.call(lambda: self._store.join(self.node))
        await self.call(lambda: self._store.define([JobSpec("a", None, (TaskSpec("t"),), {"overlap": "allow"})]))

    async def asks(self) -> None:
        for number in range(RUNS):
            await self.call(partial(self._store.admit, [Admission("a", Origin.TRIGGER, "ann", key=str(number))]))

    async def works(self) -> None:
        """Until every run has ended."""
        ended = 0
        while ended < RUNS:
            dispatched = await self.call(partial(self._store.claim_runs, Capacity(str(self.node), 3)))
            for claim in dispatched.claims:
                self._known[claim.run_id] = claim.fence
            await asyncio.gather(*(self._run(claim) for claim in dispatched.claims))
            await self.call(lambda: self._store.heartbeat(self.node, dict(self._known)))
            ended = len(await self.call(lambda: self._store.runs(state=RunState.COMPLETED, limit=RUNS)))
            await asyncio.sleep(1)

    async def _run(self, claim: Claim) -> None:
        for number in range(1000):
            try:
                await self.once(partial(self._attempt, claim, fails=number == 0))
            except (Broken, StoreUnavailable, StoreConflict):
                await asyncio.sleep(1)
            except Conflict:
                break  # it was settled, and only the answer was lost
            else:
                break
        self._known.pop(claim.run_id)

    async def _attempt(self, claim: Claim, *, fails: bool) -> None:
        async with self._store.transact(self.node, claim.run_id, claim.run_no, claim.fence, limit=TASK) as joined:
            await joined.execute("INSERT INTO things VALUES (%s)", (claim.run_id,))
            if fails:
                raise Broken
            ends = tuple(AttemptEnd(position, number, AttemptState.SUCCESS) for position, number in claim.starts)
            await joined.settle(Settlement(claim.run_id, claim.run_no, claim.fence, ends))

    async def looks(self) -> None:
        driver = self._store.driver
        for _ in range(RUNS):
            await self.call(self._store.totals)
            await self.call(self._store.nodes)
            await self.call(self._store.create_due_runs)
            await self.call(self._store.sweep)
            await self.call(lambda: driver.select("SELECT count(*) FROM sys.jobs", 10, 5.0))
            await self.once(lambda: self._store.changed(0, 1.0))


@pytest.mark.parametrize("seed", seeds(3))
def test_whatever_hangs_every_call_ends_in_time_and_every_run_has_its_effect_once(
    databases_18: Databases, seed: int
) -> None:
    place = Place("postgres", databases_18.emptied())
    place.sql(THINGS)
    with hanging(seed) as faults:

        async def main() -> None:
            store = Catalog(PostgresDriver(place.url))
            node = Node(faults, store)
            await node.begin()
            faults.is_on = True
            await asyncio.gather(node.asks(), node.works(), node.looks())
            await node.once(store.close)
            faults.is_on = False

        faults.loop.run_through(main(), limit=WHOLE)
        assert faults.hung > 5, "nothing hung: this shows nothing"
    names = [name for (name,) in place.sql("SELECT name FROM things")]
    assert len(names) == RUNS
    assert place.sql("SELECT state, count(*) FROM sys.job_runs GROUP BY state") == [("COMPLETED", RUNS)]


@pytest.mark.parametrize("fails", [True, False], ids=["undone", "settled"])
def test_a_task_s_transaction_whose_connection_hangs_is_over_soon_also_where_the_task_itself_failed(
    databases_18: Databases, *, fails: bool
) -> None:
    place = Place("postgres", databases_18.emptied())
    place.sql(THINGS)
    with hanging(0) as faults:

        async def main() -> float:
            store = Catalog(PostgresDriver(place.url))
            node = Node(faults, store)
            await node.begin()
            await store.admit([Admission("a", Origin.TRIGGER, "ann")])
            [claim] = (await store.claim_runs(Capacity(str(node.node), 1))).claims
            loop = asyncio.get_running_loop()
            began = loop.time()

            async def task() -> None:
                limit = 3600.0 if fails else TASK
                async with store.transact(node.node, claim.run_id, claim.run_no, claim.fence, limit=limit) as joined:
                    await joined.execute("INSERT INTO things VALUES ('x')")
                    faults.cut(joined._transaction.connection)  # type: ignore[attr-defined]
                    if fails:
                        raise Broken
                    await joined.settle(Settlement(claim.run_id, claim.run_no, claim.fence, ()))

            with pytest.raises(Broken if fails else StoreUnavailable):
                await task()
            took = loop.time() - began
            await store.totals()
            await store.close()
            return took

        assert faults.loop.run_through(main(), limit=WHOLE) < 60
    assert place.sql("SELECT name FROM things") == []
