"""The keeper: heartbeats that come late, runs that nobody ends, nodes that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.engine.world import after, only_report, only_run, simulate, states

from horae import Every, Horae, Run
from horae.events import HeartbeatLate, NodeBuried, RunReleased
from horae.testing.simulation import Simulation

AWAKE = {"heartbeat": 5.0, "reap_every": 5.0, "sweep_every": 10.0}
"""A keeper that looks as often as on real time, at the moments that something else makes."""


def test_a_node_that_slept_too_long_stops_its_tasks_before_anything_else_and_starts_them_anew() -> None:
    app = Horae("sqlite://")
    told: list[Any] = []
    app.events.listen(told.append, HeartbeatLate, RunReleased)
    calls: list[int] = []

    @app.job("a", Every("1d"))
    async def work(run: Run) -> None:
        calls.append(run.attempt)
        for _ in range(200):
            await asyncio.sleep(3)

    async def body(sim: Simulation) -> None:
        await sim.jump(after("24h"))
        await sim.advance("1m")
        told.clear()
        calls.clear()
        await sim.jump("2m")
        await sim.advance("15m")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body, settings={**AWAKE, "late_after": 25.0})
    names = [type(each).__name__ for each in told]
    assert (names[:2], names.count("RunReleased")) == (["HeartbeatLate", "RunReleased"], 1)
    assert len(calls) == 1


def test_a_dead_node_s_runs_are_taken_over_at_once_where_its_lock_is_free() -> None:
    app = Horae("sqlite://")
    buried: list[NodeBuried] = []
    app.events.listen(buried.append, NodeBuried)

    @app.job("a", Every("1d"))
    async def work() -> None:
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.jump(after("24h"))
        await sim.advance("1m")
        await sim.crash()
        await sim.advance("5s")
        run = await only_run(app)
        assert (run.state, run.fence) == ("RUNNING", 2)

    simulate(app, body, settings=AWAKE)
    assert [each.runs for each in buried] == [1]


def test_a_run_asked_to_stop_for_taking_too_long_while_its_node_was_away_ends_all_the_same() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1d"), execution_timeout="10m", cancel_grace="1m", max_lost=None)
    async def work() -> None:
        await asyncio.sleep(3000)

    async def body(sim: Simulation) -> None:
        await sim.jump(after("24h"))
        for _ in range(4):
            await sim.advance("3m")
            await sim.crash()
        await sim.advance("10m")
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("CANCELLED", "timeout")

    simulate(app, body, settings=AWAKE)


def test_a_keeper_that_works_as_on_real_time_changes_nothing_about_a_day_s_story() -> None:
    stories = []
    for settings in (None, AWAKE):
        app = Horae("sqlite://")

        @app.job("a", Every("1h"), overlap="queue")
        async def work() -> None:
            await asyncio.sleep(4000)

        async def body(sim: Simulation, app: Horae = app) -> Any:
            starts = await sim.advance("10h")
            return starts, await states(app)

        stories.append(simulate(app, body, settings=settings))
    assert stories[0] == stories[1]
