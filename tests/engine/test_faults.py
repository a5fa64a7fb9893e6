"""A store that fails, answers that get lost, processes that die: nothing is lost, nothing done twice, nothing stuck."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.engine.checking import Witness
from tests.engine.world import START, oldest_first, simulate, states
from tests.tier import seeds

from horae import Every, Horae, Retry, Run
from horae.events import StoreFound, StoreLost
from horae.testing.faults import Faults
from horae.testing.simulation import Simulation

FAULTS = Faults(lost=0.05, unknown=0.05, conflict=0.05)
QUIET = Faults()


def busy(app: Horae) -> dict[str, Every]:
    """Jobs of every shape: sequential, parallel, sync, flaky, pooled, lined up."""
    app.pool("shared", 1)
    schedules = {name: Every(rhythm) for name, rhythm in JOBS.items()}
    steps = app.job("steps", schedules["steps"], overlap="queue", recovery="all", max_lost=None)

    @steps.task
    async def one() -> int:
        await asyncio.sleep(20)
        return 1

    @steps.task
    def two(run: Run) -> int:
        return int(run.results["one"]) + 1

    @steps.task
    async def three(run: Run) -> None:
        assert dict(run.results) == {"one": 1, "two": 2}
        await asyncio.sleep(20)

    beside = app.job("beside", schedules["beside"], mode="parallel", overlap="allow", recovery="all", max_lost=None)
    for name in ("a", "b", "c"):

        async def work() -> None:
            await asyncio.sleep(45)

        beside.task(name=name)(work)

    @app.job("flaky", schedules["flaky"], retry=Retry(3, "30s"), recovery="all", overlap="queue", max_lost=None)
    async def flaky(run: Run) -> None:
        if run.attempt < 3:
            raise ValueError("not yet")

    for name in ("pooled", "pooled too"):

        @app.job(name, schedules[name], pool="shared", recovery="all", overlap="queue", max_lost=None)
        async def pooled() -> None:
            await asyncio.sleep(50)

    return schedules


JOBS = {"steps": "5m", "beside": "7m", "flaky": "11m", "pooled": "6m", "pooled too": "6m"}


@pytest.mark.parametrize("seed", seeds(6))
def test_with_a_store_that_often_fails_everything_is_done_once(seed: int) -> None:
    app = Horae("sqlite://")
    schedules = busy(app)
    witness = Witness(app)

    async def main(sim: Simulation) -> None:
        await sim.advance("1h")
        end = sim.now
        assert sim.store is not None
        sim.store.faults = QUIET
        for name in schedules:
            await app.disable(name)
        await sim.advance("30m")
        for name, rhythm in JOBS.items():
            await witness.check(name, Every(rhythm, start=START), START, end)
            assert {str(run.state) for run in await app.runs(name)} == {"COMPLETED"}
        assert sim.store.failed > 10

    simulate(app, main, seed=seed, faults=FAULTS)


@pytest.mark.parametrize("seed", seeds(6))
def test_with_crashes_at_any_moment_and_faults_as_well_everything_is_done_once(seed: int) -> None:
    app = Horae("sqlite://")
    schedules = busy(app)
    witness = Witness(app)
    chance = Random(seed)

    async def main(sim: Simulation) -> None:
        for _ in range(6):
            await sim.advance(chance.uniform(60, 900))
            await sim.crash()
            if chance.random() < 0.5:
                await sim.jump(chance.uniform(1, 1200))
        end = sim.now
        assert sim.store is not None
        sim.store.faults = QUIET
        for name in schedules:
            await app.disable(name)
        # A keeper looks at the moments that something makes: after a look that failed it is the silence that proves a
        # node dead, which takes several.
        for _ in range(120):
            await sim.advance("1m")
        for name, rhythm in JOBS.items():
            await witness.check(name, Every(rhythm, start=START), START, end)
            assert {str(run.state) for run in await app.runs(name, limit=1000)} == {"COMPLETED"}

    simulate(app, main, seed=seed, faults=FAULTS)


def test_while_the_store_is_away_nothing_starts_it_is_said_once_and_then_all_goes_on() -> None:
    app = Horae("sqlite://")
    told: list[str] = []
    app.events.listen(lambda event: told.append(type(event).__name__), StoreLost, StoreFound)

    @app.job("a", Every("1h"), misfire_grace="2h")
    async def work() -> None:
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.advance("75m")
        assert sim.store is not None
        sim.store.outage = True
        assert await sim.advance("1h30m") == []
        sim.store.outage = False
        starts = await sim.advance("1m")
        assert [each.job for each in starts] == ["a"]
        await sim.advance("10m")
        assert await states(app) == ["COMPLETED", "COMPLETED"]

    simulate(app, body)
    assert told == ["StoreLost", "StoreFound"]


def test_a_task_that_ends_while_the_store_is_away_is_settled_when_it_is_back_and_not_repeated() -> None:
    app = Horae("sqlite://")
    calls: list[int] = []

    @app.job("a", Every("1d"))
    async def work(run: Run) -> None:
        calls.append(run.attempt)
        await asyncio.sleep(60)

    async def body(sim: Simulation) -> None:
        await sim.advance("24h30s")
        assert sim.store is not None
        sim.store.outage = True
        await sim.advance("30m")
        sim.store.outage = False
        await sim.advance("1m")
        (run,) = await oldest_first(app)
        assert (run.state, run.fence) == ("COMPLETED", 1)

    simulate(app, body)
    assert calls == [1]


@pytest.mark.parametrize("kind", ["lost", "unknown", "conflict"])
def test_a_store_that_fails_every_third_time_still_gets_through(kind: str) -> None:
    app = Horae("sqlite://")
    witness = Witness(app)

    @app.job("a", Every("10m"), recovery="all", overlap="queue")
    async def work() -> None:
        await asyncio.sleep(5)

    async def body(sim: Simulation) -> None:
        await sim.advance("5h")
        end = sim.now
        assert sim.store is not None
        sim.store.faults = QUIET
        await app.disable("a")
        await sim.advance("10m")
        await witness.check("a", Every("10m", start=START), START, end)

    simulate(app, body, seed=1, faults=Faults(**{kind: 0.33}))
