"""Two transactions on PostgreSQL, interleaved by hand: one is held up before each of its statements in turn, the other
goes as far as it can meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.store.databases import Databases
from tests.torture.crew import PATIENCE, success
from tests.torture.drivers import AFTER, TappedCatalog, driver_for
from tests.torture.evidence import Snapshot, query

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import RunState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Once
from horae.errors import StoreConflict
from horae.store.records import Capacity, Claim, Settlement
from horae.testing.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MOST_STATEMENTS = 60
Verb = Callable[[], Awaitable[Any]]


class Pair:
    """Two catalogs on one database and one clock; `first` can be held up inside its transactions."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock(START)
        self.first_driver = driver_for(url, clock=self.clock.now)
        self.first = TappedCatalog(self.first_driver)
        self.second = TappedCatalog(driver_for(url, clock=self.clock.now))
        self.node, self.other = uuid4(), uuid4()

    async def interleave(self, held: Verb, free: Verb, at: int) -> tuple[bool, Sequence[Any]]:
        """Holds `held` up before its `at`-th statement or commit while `free` runs, or waits for a lock of it.

        Says whether `held` has that many, and what both answered.
        """
        came, go_on, count = asyncio.Event(), asyncio.Event(), 0

        async def tap(where: str, name: str) -> None:
            nonlocal count
            if where != AFTER:
                count += 1
                if count == at:
                    came.set()
                    await go_on.wait()

        self.first_driver.tap = tap
        try:
            one = asyncio.ensure_future(_repeated(held))
            waiting = asyncio.ensure_future(came.wait())
            await asyncio.wait({one, waiting}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            two = asyncio.ensure_future(_repeated(free))
            await self._done_or_blocked(two)
            go_on.set()
            answers = await asyncio.wait_for(asyncio.gather(one, two), PATIENCE)
        finally:
            go_on.set()
            del self.first_driver.tap
        return came.is_set(), answers

    async def _done_or_blocked(self, task: asyncio.Future[Any]) -> None:
        ends = time.monotonic() + PATIENCE
        while not task.done() and time.monotonic() < ends:
            waits = await asyncio.to_thread(
                query,
                self.url,
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'",
            )
            if waits[0][0]:
                return
            await asyncio.sleep(0)

    async def define(self, name: str, **settings: Any) -> None:
        """A job that is due every minute from the next on."""
        start = self.clock.now() + MINUTE
        await self.first.define([JobSpec(name, Every("1m", start=start), (TaskSpec("t"),), settings)])

    async def states(self, name: str) -> list[str]:
        """The states of the job's runs, the oldest first."""
        return [str(run.state) for run in reversed(await self.second.runs(job=name))]


async def _repeated(verb: Verb) -> Any:
    """Repeats after a conflict, as every caller does."""
    for _ in range(5):
        try:
            return await verb()
        except StoreConflict:
            continue
    return await verb()


@asynccontextmanager
async def pair(url: str) -> AsyncIterator[Pair]:
    made = Pair(url)
    await made.first.open()
    await made.second.open()
    try:
        await made.first.join(made.node)
        await made.second.join(made.other)
        yield made
    finally:
        await made.first.close()
        await made.second.close()


def every_interleaving(url: str, scenario: Callable[[Pair, str, int], Awaitable[bool]]) -> int:
    """Runs a scenario once for each statement of the transaction that is held up; returns how many there were."""

    async def run() -> int:
        async with pair(url) as two:
            for at in range(1, MOST_STATEMENTS):
                name = f"job{at}"
                reached = await scenario(two, name, at)
                Snapshot(url).check()
                for run in await two.second.runs(active=True):
                    await two.second.cancel([run.run_id])
                await two.second.drop([name], keep_history=True)
                if not reached:
                    return at - 1
        raise AssertionError(f"more than {MOST_STATEMENTS} statements")

    return asyncio.run(run())


@pytest.mark.parametrize("fused", [True, False])
def test_two_planners_never_bear_two_active_runs_of_a_job_that_skips(fused: bool, databases_18: Databases) -> None:
    async def scenario(two: Pair, name: str, at: int) -> bool:
        await two.define(name, overlap="skip")
        two.clock.advance("1m")

        async def plan(store: TappedCatalog, node: UUID) -> int:
            if store is two.second:
                # The second planner meets the next slot; the first read the clock before and is still at this one.
                two.clock.advance("1m")
            return (await store.create_due_runs(start=Capacity(str(node), 5) if fused else None)).born

        reached, _ = await two.interleave(lambda: plan(two.first, two.node), lambda: plan(two.second, two.other), at)
        await two.second.create_due_runs(start=Capacity(str(two.other), 5) if fused else None)
        states = await two.states(name)
        assert states.count("RUNNING") + states.count("PENDING") == 1, states
        assert set(states) <= {"RUNNING", "PENDING", "SKIPPED", "MISSED"}, states
        for run in await two.second.runs(job=name, state=RunState.RUNNING):
            # Ends it as its owner does, so that the next scenario begins with nothing under way.
            owner = two.node if run.owner == str(two.node) else two.other
            store = two.first if run.owner == str(two.node) else two.second
            number = query(two.url, f"SELECT run_no FROM sys.job_runs WHERE job_run_uuid = '{run.run_id[4:]}'")
            await store.settle(owner, [Settlement(run.run_id, number[0][0], run.fence, stop="cancelled")])
        return reached

    assert every_interleaving(databases_18.emptied(), scenario) > 4


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("held", ["settle", "create_due_runs"])
def test_a_queued_run_is_never_stranded_between_the_end_of_one_and_the_birth_of_the_next(
    held: str, remembered: bool, databases_18: Databases
) -> None:
    async def scenario(two: Pair, name: str, at: int) -> bool:
        await two.define(name, overlap="queue")
        two.clock.advance("1m")
        claims = (await two.first.create_due_runs(start=Capacity(str(two.node), 5))).claims
        assert [claim.job_name for claim in claims] == [name]
        two.clock.advance("1m")
        settler, planner = (two.first, two.second) if held == "settle" else (two.second, two.first)
        if remembered:
            settler._claimed |= two.first._claimed
        else:
            settler._claimed.clear()

        async def settle() -> str:
            answers = await settler.settle(two.node, [success(claim) for claim in claims])
            return str(answers[0].verdict)

        async def plan() -> int:
            return (await planner.create_due_runs()).born

        verbs = (settle, plan) if held == "settle" else (plan, settle)
        reached, answers = await two.interleave(verbs[0], verbs[1], at)
        assert "SETTLED" in answers
        # Whoever came too late to see the job plans now; a run that was born must go without any sweep.
        states = await two.states(name)
        assert states in (["COMPLETED", "PENDING"], ["COMPLETED"]), states
        await planner.create_due_runs()
        assert await two.states(name) == ["COMPLETED", "PENDING"]
        assert await two.second.sweep() == 0
        return reached

    assert every_interleaving(databases_18.emptied(), scenario) > 4


@pytest.mark.parametrize(("plain", "places"), [(True, 2), (False, 4)], ids=["one statement", "the longer way"])
def test_one_run_is_never_given_to_two_nodes(databases_18: Databases, plain: bool, places: int) -> None:
    async def scenario(two: Pair, name: str, at: int) -> bool:
        await two.define(name)
        if not plain:
            # As versions are that the release before this one wrote.
            query(two.url, "UPDATE sys.job_versions SET plain_start = NULL RETURNING 1")
        two.clock.advance("1m")
        await two.first.create_due_runs()
        reached, answers = await two.interleave(
            lambda: two.first.claim_runs(Capacity(str(two.node), 5)),
            lambda: two.second.claim_runs(Capacity(str(two.other), 5)),
            at,
        )
        claims = [claim for dispatched in answers for claim in dispatched.claims]
        assert len(claims) == 1
        owner, store = (two.node, two.first) if answers[0].claims else (two.other, two.second)
        assert (await store.settle(owner, [success(claims[0])]))[0].verdict == "SETTLED"
        return reached

    assert every_interleaving(databases_18.emptied(), scenario) >= places


@pytest.mark.parametrize("verb", ["settle", "claim_runs", "create_due_runs"])
def test_a_take_over_leaves_nothing_with_the_dead_whatever_they_are_writing(verb: str, databases_18: Databases) -> None:
    """The dead node's transaction began before it was declared dead, and ends after that."""

    async def scenario(two: Pair, name: str, at: int) -> bool:
        await two.define(name)
        dead = uuid4()
        await two.first.join(dead)
        two.clock.advance("1m")
        claims: tuple[Claim, ...] = ()
        if verb == "settle":
            claims = (await two.first.create_due_runs(start=Capacity(str(dead), 5))).claims
        elif verb == "claim_runs":
            await two.first.create_due_runs()

        async def write() -> Any:
            if verb == "settle":
                return await two.first.settle(dead, [success(claim) for claim in claims])
            if verb == "claim_runs":
                return await two.first.claim_runs(Capacity(str(dead), 5))
            return await two.first.create_due_runs(start=Capacity(str(dead), 5))

        async def take_over() -> None:
            with suppress(StoreConflict):
                await two.second.take_over(two.other, dead, 0)

        reached, _ = await two.interleave(write, take_over, at)
        # One that found the row held looks again at its next round.
        await take_over()
        owned = [run.run_id for run in await two.second.runs(active=True) if run.owner == str(dead)]
        assert not owned, f"{owned} belong to a node that is {[n for n in await two.second.nodes() if n.running]}"
        return reached

    every_interleaving(databases_18.emptied(), scenario)


def test_a_sweep_undoes_no_definition_that_is_made_while_it_looks(databases_18: Databases) -> None:
    """A Once job that is done is given another time in the moment in which the sweep finds it done."""

    async def scenario(two: Pair, name: str, at: int) -> bool:
        first = two.clock.now() + MINUTE
        later = first + timedelta(hours=1)
        await two.first.define([JobSpec(name, Once(first), (TaskSpec("t"),))])
        two.clock.advance("1m")
        claims = (await two.first.create_due_runs(start=Capacity(str(two.node), 5))).claims
        await two.first.settle(two.node, [success(claim) for claim in claims])
        await two.first.define([JobSpec(name, Once(first), (TaskSpec("t"),), {"deadline": "1h"})], source="operator")
        reached, _ = await two.interleave(
            two.first.sweep,
            lambda: two.second.define([JobSpec(name, Once(later), (TaskSpec("t"),))], source="operator"),
            at,
        )
        job = (await two.second.jobs([name]))[0]
        assert (str(job.state), job.next_run_time) == ("ENABLED", later)
        return reached

    assert every_interleaving(databases_18.emptied(), scenario) > 2
