"""The keeper: heartbeats that come late, runs that nobody ends, nodes that are gone."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.engine.world import after, only_report, only_run, simulate, states

from horae import Every, Horae, Run
from horae.config.loader import load_configuration, parse_configuration
from horae.engine.limits import checked_system, parse_tuning, retuned
from horae.errors import InvalidPolicy
from horae.events import HeartbeatLate, NodeBuried, RunReleased, TrailSealed
from horae.security.audit.verification import verify
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


def test_a_late_node_kills_what_it_can_while_others_do_not_have_its_runs() -> None:
    app = Horae("sqlite://")
    killed: list[float] = []
    ended: list[float] = []

    @app.job("a", Every("1d"), cancel_grace="30s")
    async def work() -> None:
        try:
            await asyncio.sleep(3000)
        finally:
            await asyncio.sleep(20)
            ended.append(engine().maintenance.watchdog.silence)

    def engine() -> Any:
        assert app.engine is not None
        return app.engine

    async def body(sim: Simulation) -> None:
        await app.trigger("a")
        await sim.advance("1s")
        # As a program would have it, of which the attempt waits for the end.
        (attempt,) = engine().ledger.attempts
        attempt.kill = lambda: killed.append(engine().maintenance.watchdog.silence)
        await engine().maintenance.pulse()
        async with engine().claimer.claiming:
            await sim.advance("26s")
            engine().maintenance.late(26.0)
            await sim.advance("1m")

    simulate(app, body, settings={"heartbeat": 3600, "late_after": 25.0})
    assert [round(each, 3) for each in (*killed, *ended)] == [29.2, 46.0], "a coroutine has the time it is given"


def written(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """From now on: which of its verbs was called when, in simulated seconds."""
    calls: list[tuple[str, float]] = []

    def noted(name: str) -> None:
        verb = getattr(store, name)

        async def noting(*args: Any) -> Any:
            calls.append((name, asyncio.get_running_loop().time()))
            return await verb(*args)

        monkeypatch.setattr(store, name, noting)

    for name in ("heartbeat", "create_due_runs", "claim_runs"):
        noted(name)
    return calls


def test_a_node_without_a_confirmed_heartbeat_claims_nothing_before_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("10s"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> list[tuple[str, float]]:
        calls = written(await app.home.store(), monkeypatch)
        assert len(await sim.advance("5m")) == 30
        return calls

    # Its own heartbeats are as good as none.
    made = simulate(app, body, settings={"heartbeat": 3600, "late_after": 25.0})
    beaten = made[0][1]
    for name, at in made:
        if name == "heartbeat":
            beaten = at
        assert at - beaten < 25.0
    assert [name for name, _ in made].count("heartbeat") == 10


def test_a_claim_that_waited_for_a_heartbeat_that_hung_is_made_after_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("10s"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> list[str]:
        engine = app.engine
        assert engine is not None
        await sim.advance("5s")
        calls = written(await app.home.store(), monkeypatch)
        await engine.claimer.claiming.acquire()
        await sim.advance("40s")
        assert calls == []
        engine.claimer.claiming.release()
        await sim.advance("1s")
        return [name for name, _ in calls]

    made = simulate(app, body, settings={"heartbeat": 3600, "late_after": 25.0})
    assert made[0] == "heartbeat"
    assert "create_due_runs" in made


def test_a_run_whose_preparation_took_too_long_for_its_node_is_handed_back_unbegun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")
    silent: list[float] = []
    slow: list[bool] = []

    @app.job("a", Every("1d"))
    async def work() -> None:
        assert app.engine is not None
        silent.append(app.engine.maintenance.watchdog.silence)

    @app.on_start
    async def starting(run: Any) -> None:
        if not slow:
            slow.append(True)
            await asyncio.sleep(40)

    async def body(sim: Simulation) -> None:
        await app.trigger("a")
        await sim.advance("2m")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body, settings={"heartbeat": 3600, "late_after": 25.0})
    assert slow
    assert silent
    assert max(silent) < 25


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

        async def first_fails(node: UUID, dead: UUID, counter: int) -> int | None:
            tried.append(dead)
            if dead == tried[0]:
                raise OverflowError("date value out of range")
            return await take_over(node, dead, counter)

        monkeypatch.setattr(store, "take_over", first_fails)
        await sim.advance("40s")

    simulate(app, body, settings=AWAKE)
    assert buried == [str(node) for node in dict.fromkeys(tried) if node != tried[0]]
    assert len(buried) == 1


def test_nothing_is_said_of_a_node_that_beats_before_it_is_taken_over_nor_of_one_that_another_node_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")
    buried: list[str] = []
    outcomes: dict[UUID, list[int | None]] = {}
    app.job("tick", Every("1s"))(lambda: None)
    app.events.listen(lambda event: buried.append(event.node), NodeBuried)
    lives, foreign = uuid4(), uuid4()

    async def body(sim: Simulation) -> None:
        store = await app.home.store()
        take_over = store.take_over
        await store.join(lives)
        await store.join(foreign)

        async def overtaken(node: UUID, dead: UUID, counter: int) -> int | None:
            if dead == lives and lives not in outcomes:
                await store.heartbeat(lives, {})
            if dead == foreign:
                assert await take_over(uuid4(), dead, counter) == 0
            outcomes.setdefault(dead, []).append(await take_over(node, dead, counter))
            return outcomes[dead][-1]

        monkeypatch.setattr(store, "take_over", overtaken)
        await sim.advance("40s")
        assert (outcomes, buried) == ({lives: [None], foreign: [None]}, [])
        await sim.advance("40s")

    simulate(app, body, settings=AWAKE)
    assert buried == [str(lives)], "silent from then on, it is dead in the end"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heartbeat": "60s"}, "heartbeat 60 s with take_over_after 30 s"),
        ({"take_over_after": "7s"}, "heartbeat 2 s with take_over_after 7 s"),
        ({"late_after": "28s"}, "less than 28 s"),
        ({"late_after": "3s"}, "at least 4 s"),
        ({"heartbeat": "10ms"}, "heartbeat 0.01 s: must be at least 0.05 s"),
    ],
)
def test_settings_that_make_living_nodes_bury_each_other_are_refused_wherever_they_are_set(
    given: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPolicy, match=said):
        Horae("sqlite://", settings=given)
    ((name, value),) = given.items()
    with pytest.raises(InvalidPolicy, match=said):
        checked_system(f"scheduler.{name}", value)
    configuration = tmp_path / "horae.toml"
    configuration.write_text(f'[scheduler]\n{name} = "{value}"\n')
    with pytest.raises(InvalidPolicy, match=said):
        parse_tuning(load_configuration(configuration, {}).scheduler)
    with pytest.raises(InvalidPolicy, match=said):
        parse_tuning(parse_configuration("", environment={f"HORAE_SCHEDULER_{name.upper()}": value}).scheduler)


def test_a_heartbeat_that_is_due_does_not_wait_for_the_spacing_of_looks_for_cancellations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")
    beats: list[float] = []

    @app.job("a", Every("1s"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        store = await app.home.store()
        heartbeat = store.heartbeat

        async def beating(*args: Any) -> Any:
            beats.append(asyncio.get_running_loop().time())
            return await heartbeat(*args)

        monkeypatch.setattr(store, "heartbeat", beating)
        await sim.advance("5m")

    simulate(app, body, settings={**AWAKE, "spacing": 60})
    assert max(later - earlier for earlier, later in pairwise(beats)) < 7
    assert beats[-1] - beats[0] > 280


def test_settings_of_the_system_are_judged_together_also_when_one_is_taken_back() -> None:
    slow = {"scheduler.take_over_after": 240.0}
    assert checked_system("scheduler.heartbeat", 60, slow) == 60.0
    with pytest.raises(InvalidPolicy, match="heartbeat 60 s with take_over_after 30 s"):
        checked_system("scheduler.take_over_after", None, {**slow, "scheduler.heartbeat": 60.0})
    with pytest.raises(InvalidPolicy, match="less than 28 s"):
        checked_system("scheduler.take_over_after", None, {**slow, "scheduler.late_after": 100.0})


def test_when_a_node_stops_its_work_follows_the_silence_it_stands_by() -> None:
    assert parse_tuning({"take_over_after": "60s"}).late_after == 50.0
    assert parse_tuning({"take_over_after": "8s"}).late_after == 5.0
    assert parse_tuning({"take_over_after": "12s", "late_after": "6s"}).late_after == 6.0
    _, tuning = retuned((1, parse_tuning({"take_over_after": "60s"})), {"scheduler.take_over_after": 12.0})
    assert (tuning.take_over_after, tuning.late_after) == (12.0, 9.0)


def test_a_node_whose_own_settings_do_not_fit_the_system_s_stands_by_a_longer_silence() -> None:
    own = parse_tuning({"heartbeat": "30s", "take_over_after": "120s", "late_after": "80s"})
    _, tuning = retuned((1, own), {"scheduler.take_over_after": 12.0})
    assert (tuning.take_over_after, tuning.late_after) == (120.0, 80.0)
    own = parse_tuning({"late_after": "25s"})
    _, tuning = retuned((1, own), {"scheduler.take_over_after": 12.0})
    assert (tuning.take_over_after, tuning.late_after) == (12.0, 9.0)


def test_a_node_s_row_says_what_it_stands_by_before_it_goes_by_more_and_only_after_it_goes_by_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")
    told: list[tuple[Any, Any]] = []

    async def body(sim: Simulation) -> None:
        store, engine = await app.home.store(), app.engine
        assert engine is not None
        describe = store.describe

        async def describing(node: UUID, details: dict[str, Any]) -> None:
            told.append(((details["silence"], details["heartbeat"]), engine.maintenance.rhythm))
            await describe(node, details)

        monkeypatch.setattr(store, "describe", describing)
        own = engine.maintenance.rhythm
        slow = {"scheduler.take_over_after": 40_000.0, "scheduler.heartbeat": 10_000.0}
        await engine._retune(slow)
        assert (told, engine.maintenance.rhythm) == ([((40_000.0, 10_000.0), own)], (40_000.0, 10_000.0))
        told.clear()
        await engine._retune({})
        assert told == []
        await engine._describe()
        assert told == [(own, own)]

    simulate(app, body)


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


def test_the_head_of_the_trail_is_published_by_event_and_metric_when_it_is_another() -> None:
    app = Horae("sqlite://")
    told: list[TrailSealed] = []
    app.events.listen(told.append, TrailSealed)

    async def body(sim: Simulation) -> None:
        store = await app.home.store()
        await store.note("LOGIN", by="ann", outcome="OK")
        await sim.advance("1m")
        assert [told[-1]] == [TrailSealed(*(await store.head() or ()))]
        seen = len(told)
        await sim.advance("1m")
        assert len(told) == seen, "nothing was sealed"
        await store.note("LOGIN", by="ann", outcome="OK")
        await sim.advance("1m")
        # Another node may seal: each tells what it sees.
        await store.note("LOGIN", by="ann", outcome="OK")
        await store.seal()
        await sim.advance("1m")
        assert [each.seal for each in told[seen:]] == [told[seen - 1].seal + 1, told[seen - 1].seal + 2]
        found = app.metrics.snapshot()
        assert found["scheduler_audit_seals"] == [{"labels": {}, "value": told[-1].seal}]
        assert found["scheduler_audit_head"] == [{"labels": {}, "value": int(told[-1].head[:13], 16)}]
        assert (await verify(store, head=told[0].head)).ok

    simulate(app, body, settings=AWAKE)
