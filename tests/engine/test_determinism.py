"""The same seed gives the same story, to the last row; and a year passes in a moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.test_faults import FAULTS, busy
from tests.engine.world import START, clock, offsets, simulate

from horae import Cron, Every, Horae, Run, Window
from horae.events import LoopFailed
from horae.testing.faults import Faults
from horae.testing.simulation import Simulation, Started


def story(seed: int | None, faults: Faults | None = None) -> tuple[list[Started], list[Any]]:
    """Every start and the whole catalog, without what is drawn anew each time: the ids of nodes."""
    app = Horae("sqlite://")
    busy(app)

    @app.job("spread", Every("9m"), window=Window.after("5m"))
    async def spread() -> None:
        await asyncio.sleep(1)

    async def body(sim: Simulation) -> tuple[list[Started], list[Any]]:
        starts = await sim.advance("25m")
        starts += await sim.crash()
        starts += await sim.jump("13m")
        starts += await sim.advance("25m")
        assert sim.store is not None
        sim.store.faults = Faults()
        rows = []
        for run in await app.runs(limit=1000):
            report = await app.report(run.run_id)
            rows.append((run.run_id, run.state, run.fence, run.started_at, run.completed_at, report.tasks))
        return starts, rows

    return simulate(app, body, seed=seed, faults=faults)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_same_seed_gives_the_same_starts_and_the_same_catalog(seed: int | None) -> None:
    first, second = story(seed), story(seed)
    assert first[0] == second[0]
    assert first[1] == second[1]
    assert len(first[0]) > 30


def test_the_same_seed_gives_the_same_faults() -> None:
    assert story(3, FAULTS) == story(3, FAULTS)


def test_another_seed_interleaves_what_is_ready_at_the_same_time_differently() -> None:
    orders = set()
    for seed in range(6):
        app, order = Horae("sqlite://"), list[str]()
        for name in "abcdef":

            @app.job(name, Cron("0 1 * * *"))
            async def work(run: Run, order: list[str] = order) -> None:
                await asyncio.sleep(0)
                order.append(run.job_name)

        async def body(sim: Simulation) -> None:
            await sim.advance("61m")

        simulate(app, body, seed=seed)
        orders.add("".join(order))
    assert len(orders) > 1
    assert all(sorted(order) == list("abcdef") for order in orders)


def test_a_year_of_a_daily_job_passes() -> None:
    app = Horae("sqlite://", settings={"job_history_retention_days": None})

    @app.job("daily", Cron("0 2 * * *", tz="Europe/Brussels"))
    async def work() -> None:
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("365d")
        assert len(starts) == 365 - 1
        assert {f"{each.time:%H:%M}" for each in starts} == {"01:00", "00:00"}
        runs = await app.runs(limit=1000)
        assert {str(run.state) for run in runs} == {"COMPLETED"}
        assert len(runs) == len(starts)

    simulate(app, body)


def test_history_older_than_the_retention_time_goes_and_the_cursor_stays() -> None:
    app = Horae("sqlite://", settings={"job_history_retention_days": 10})

    @app.job("daily", Cron("0 2 * * *"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("60d")
        runs = await app.runs(limit=1000)
        assert 9 <= len(runs) <= 12
        await sim.crash()
        assert len(await sim.advance("1d")) == 1

    simulate(app, body)


def test_a_retention_time_that_is_set_later_counts_without_a_restart() -> None:
    app = Horae("sqlite://", settings={"job_history_retention_days": None})

    @app.job("daily", Cron("0 2 * * *"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("60d")
        assert len(await app.runs(limit=1000)) >= 59
        await app.sql("ALTER SYSTEM SET scheduler.job_history_retention_days = 10")
        await sim.advance("2d")
        assert 9 <= len(await app.runs(limit=1000)) <= 12

    simulate(app, body)


@pytest.mark.parametrize("days", [None, 40_000, 10**9, float("inf")])
def test_a_retention_time_beyond_a_century_keeps_history_for_ever(days: float | None) -> None:
    app = Horae("sqlite://", settings={"job_history_retention_days": days})
    failed: list[LoopFailed] = []
    app.events.listen(failed.append, LoopFailed)

    @app.job("daily", Cron("0 2 * * *"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("60d")
        assert len(await app.runs(limit=1000)) >= 59

    simulate(app, body)
    assert failed == []


def test_what_advance_and_jump_return_are_the_starts_since_the_call_before() -> None:
    app = Horae("sqlite://")

    @app.job("hourly", Every("1h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        assert sim.now == START
        assert offsets(await sim.advance("1h")) == ["1:00:00"]
        assert await sim.advance("59m") == []
        (start,) = await sim.jump(START.replace(hour=2))
        assert (start.job, start.task, clock(start.time)) == ("hourly", "work", "2:00:00")
        assert clock(sim.now) == "2:00:00"
        await app.trigger("hourly")
        assert offsets(await sim.advance("0s")) == ["2:00:00"]

    simulate(app, body)
