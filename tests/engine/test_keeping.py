"""The keeper: heartbeats that come late, runs that nobody ends, nodes that are gone."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.engine.world import after, only_report, only_run, simulate, states

from horae import Every, Horae, Run
from horae.engine.tuning import checked_system, parse_tuning, retuned
from horae.errors import InvalidPolicy
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


@pytest.mark.parametrize(("given", "dead_after"), [({}, 30), ({"take_over_after": 10.0}, 10)])
def test_how_long_a_node_may_be_silent_is_a_setting(given: dict[str, Any], dead_after: int) -> None:
    app = Horae("sqlite://")
    silent = uuid4()
    buried: list[str] = []
    app.job("tick", Every("1s"))(lambda: None)
    app.events.listen(lambda event: buried.append(event.node), NodeBuried)

    async def body(sim: Simulation) -> None:
        await (await app.home.store()).join(silent)
        await sim.advance(f"{dead_after - 1}s")
        assert buried == []
        await sim.advance("7s")
        assert buried == [str(silent)]

    simulate(app, body, settings={**AWAKE, **given})


def test_a_take_over_names_the_dead_node_by_its_name_and_its_id(caplog: pytest.LogCaptureFixture) -> None:
    app = Horae("sqlite://", node="front")
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

    with caplog.at_level("INFO", "horae"):
        simulate(app, body, settings=AWAKE)
    (dead,) = buried
    assert dead.name == "front"
    lines = [record.getMessage() for record in caplog.records]
    assert f"node front ({dead.node}) is dead: 1 run taken over from it" in lines
    assert any(line.startswith(f"a handed back: node front ({dead.node}) died") for line in lines)
    (stopped,) = [line for line in lines if "stopped" in line]
    assert stopped.startswith("node front (")


def test_a_node_that_cannot_be_taken_over_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Horae("sqlite://")
    buried: list[str] = []
    tried: list[UUID] = []
    app.job("tick", Every("1s"))(lambda: None)
    app.events.listen(lambda event: buried.append(event.node), NodeBuried)

    async def body(sim: Simulation) -> None:
        store = await app.home.store()
        take_over = store.take_over
        await store.join(uuid4())
        await store.join(uuid4())

        async def first_fails(node: UUID, dead: UUID, counter: int) -> int:
            tried.append(dead)
            if dead == tried[0]:
                raise OverflowError("date value out of range")
            return await take_over(node, dead, counter)

        monkeypatch.setattr(store, "take_over", first_fails)
        await sim.advance("40s")

    simulate(app, body, settings=AWAKE)
    assert buried == [str(node) for node in dict.fromkeys(tried) if node != tried[0]]
    assert len(buried) == 1


def test_a_silence_shorter_than_two_heartbeats_is_refused_wherever_it_is_set() -> None:
    with pytest.raises(InvalidPolicy, match="must be at least two heartbeats, of 5 s each"):
        parse_tuning({"take_over_after": "9s"})
    with pytest.raises(InvalidPolicy, match="must be at least two heartbeats, of 20 s each"):
        parse_tuning({"take_over_after": "30s", "heartbeat": "20s"})
    assert parse_tuning({"take_over_after": "12s"}).late_after == 10.0
    assert parse_tuning({"take_over_after": "12s", "late_after": "3s"}).late_after == 3.0
    assert parse_tuning({"heartbeat": "20s"}).take_over_after == 30.0
    with pytest.raises(InvalidPolicy, match="two heartbeats"):
        checked_system("scheduler.take_over_after", 9)
    with pytest.raises(InvalidPolicy, match="two heartbeats"):
        checked_system("scheduler.heartbeat", 20, {"scheduler.take_over_after": 30.0})
    assert checked_system("scheduler.heartbeat", 20, {"scheduler.take_over_after": 40.0}) == 20.0
    _, tuning = retuned((1, parse_tuning({"heartbeat": "30s"})), {"scheduler.take_over_after": 12.0})
    assert (tuning.take_over_after, tuning.late_after) == (60.0, 50.0)


def test_a_node_stops_its_work_before_others_take_it_over_whoever_set_the_silence() -> None:
    own = parse_tuning({"take_over_after": "60s"})
    assert own.late_after == 50.0
    _, tuning = retuned((1, own), {"scheduler.take_over_after": 12.0})
    assert (tuning.take_over_after, tuning.late_after) == (12.0, 10.0)
    _, tuning = retuned((1, parse_tuning({"late_after": "3s"})), {"scheduler.take_over_after": 12.0})
    assert tuning.late_after == 3.0


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
