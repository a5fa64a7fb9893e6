"""Runs that wait before they start: windows, misfire grace, deadlines, dependencies, a handler nobody has."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.engine.world import after, clock, offsets, oldest_first, only_run, simulate, states

from horae import Cron, DecisionRequest, Every, Horae, Run, Window, decide
from horae.errors import DependencyCycle, InvalidDefinition
from horae.testing.simulation import Simulation

HOURLY = Cron("0 * * * *")


def test_a_windowed_run_starts_at_the_time_the_decision_core_chooses() -> None:
    app = Horae("sqlite://")
    seen: list[tuple[str | None, str | None, str | None]] = []

    @app.job("spread", HOURLY, window=Window.after("30m"))
    async def work(run: Run) -> None:
        seen.append((clock(run.scheduled_time), clock(run.chosen_time), clock(run.started_at)))

    async def body(sim: Simulation) -> list[str]:
        return offsets(await sim.advance("5h"))

    starts = simulate(app, body)
    expected = []
    for hour in (1, 2, 3, 4):
        request = DecisionRequest("spread", after(f"{hour}h"), window_duration=timedelta(minutes=30))
        expected.append((f"{hour}:00:00", clock(decide(request).chosen_time), clock(decide(request).chosen_time)))
    assert seen == expected
    assert starts == [chosen for _, chosen, _ in expected]
    assert len({chosen for _, chosen, _ in expected}) == 4


def test_a_window_before_the_slot_opens_early_and_the_waiting_run_is_seen() -> None:
    app = Horae("sqlite://")

    @app.job("early", Cron("0 12 * * *"), window=Window.before("2h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("9h59m")
        assert await app.runs() == []
        await sim.advance("1m")
        run = await only_run(app)
        assert (run.state, run.waiting_for, run.not_before) == ("PENDING", "window", run.chosen_time)
        assert after("10h") <= run.chosen_time <= after("12h")
        assert offsets(await sim.advance("2h")) == [clock(run.chosen_time)]

    simulate(app, body)


def test_a_crash_between_the_window_s_opening_and_the_chosen_time_changes_nothing() -> None:
    app = Horae("sqlite://")

    @app.job("spread", Cron("0 12 * * *"), window=Window.around("4h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("10h1m")
        before = await only_run(app)
        await sim.crash()
        assert offsets(await sim.advance("6h")) == [clock(before.chosen_time)]

    simulate(app, body)


def test_a_slot_for_which_nothing_can_be_chosen_is_recorded_and_never_runs() -> None:
    app = Horae("sqlite://")

    @app.job("never", HOURLY, window=Window.after("10m", only={"hours": {3}}))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        assert [each[0] for each in offsets(await sim.advance("4h30m"))] == ["3"]
        runs = await oldest_first(app)
        assert [str(run.state) for run in runs] == ["UNSCHEDULABLE", "UNSCHEDULABLE", "COMPLETED", "UNSCHEDULABLE"]

    simulate(app, body)


@pytest.mark.parametrize(("late", "expected"), [("50s", "COMPLETED"), ("70s", "MISSED (missed)")])
def test_a_slot_noticed_within_its_misfire_grace_runs_later_it_was_missed(late: str, expected: str) -> None:
    app = Horae("sqlite://")

    @app.job("a", HOURLY, recovery="none")
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h30m")
        await sim.jump("30m")
        await sim.advance("59m")
        await sim.jump("1m")
        assert (await states(app))[-1] == "COMPLETED"
        await sim.advance("59m")
        await sim.jump(timedelta(minutes=1) + after(late) - after("0s"))
        assert (await states(app))[-1] == expected

    simulate(app, body)


def test_a_run_that_cannot_start_by_its_deadline_is_missed() -> None:
    app = Horae("sqlite://")

    @app.job("a", HOURLY, overlap="queue", deadline="20m", execution_timeout=None)
    async def work() -> None:
        await asyncio.sleep(5400)

    async def body(sim: Simulation) -> None:
        await sim.advance("3h45m")
        assert await states(app) == ["COMPLETED", "MISSED (deadline)", "RUNNING"]

    simulate(app, body)


def test_a_run_waits_for_what_it_depends_on_and_starts_when_that_is_completed() -> None:
    app = Horae("sqlite://")

    @app.job("extract", Cron("0 1 * * *"))
    async def extract() -> None:
        await asyncio.sleep(1200)

    @app.job("report", Cron("5 1 * * *"), depends_on=["extract"])
    async def report() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h10m")
        waiting = await only_run(app, "report")
        assert (waiting.state, waiting.waiting_for) == ("PENDING", "dependencies")
        assert offsets(await sim.advance("1h"), "report") == ["1:20:00"]

    simulate(app, body)


def test_a_dependency_that_fails_keeps_the_run_waiting_until_its_next_slot_then_it_is_skipped() -> None:
    app = Horae("sqlite://")

    @app.job("extract", HOURLY)
    async def extract(run: Run) -> None:
        if clock(run.scheduled_time) == "1:00:00":
            raise ValueError("no source")

    @app.job("report", Cron("5 * * * *"), depends_on=["extract"])
    async def report() -> None: ...

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("2h30m"), "report")
        assert starts == ["2:05:00"]
        assert await states(app, "report") == ["SKIPPED (dependencies)", "SKIPPED (dependencies)", "COMPLETED"]

    async def first_slot_without_any(sim: Simulation) -> None:
        await sim.advance("30m")
        assert (await only_run(app, "report")).waiting_for == "dependencies"
        await body(sim)

    simulate(app, first_slot_without_any)


def test_a_chain_of_dependencies_runs_in_order() -> None:
    app = Horae("sqlite://")
    order: list[str] = []
    previous: list[str] = []
    for name in ("one", "two", "three", "four"):

        @app.job(name, Cron("0 1 * * *"), depends_on=list(previous))
        async def work(run: Run) -> None:
            order.append(run.job_name)
            await asyncio.sleep(60)

        previous = [name]

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("2h")) == ["1:00:00", "1:01:00", "1:02:00", "1:03:00"]

    simulate(app, body)
    assert order == ["one", "two", "three", "four"]


def test_a_triggered_run_does_not_wait_for_dependencies() -> None:
    app = Horae("sqlite://")

    @app.job("extract", HOURLY)
    async def extract() -> None: ...

    @app.job("report", HOURLY, depends_on=["extract"])
    async def report() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.trigger("report")
        assert offsets(await sim.advance("1m"), "report") == ["0:00:00"]

    simulate(app, body)


def test_a_cycle_of_dependencies_is_refused_by_its_name_before_anything_runs() -> None:
    app = Horae("sqlite://")

    @app.job("a", HOURLY, depends_on=["b"])
    async def one() -> None: ...

    @app.job("b", HOURLY, depends_on=["a"])
    async def two() -> None: ...

    async def body(sim: Simulation) -> None: ...

    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        simulate(app, body)


def test_a_dependency_that_does_not_exist_is_refused() -> None:
    app = Horae("sqlite://")

    @app.job("a", HOURLY, depends_on=["nobody"])
    async def one() -> None: ...

    async def body(sim: Simulation) -> None: ...

    with pytest.raises(InvalidDefinition, match="nobody"):
        simulate(app, body)


def test_a_run_whose_handler_this_node_lacks_waits_in_sight_and_starts_where_there_is_one(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/horae.db"
    first = Horae(url)

    @first.job("theirs", Every("1h"))
    async def theirs() -> None: ...

    other = Horae(url)

    @other.job("ours", Every("1h"))
    async def ours() -> None: ...

    async def define(sim: Simulation) -> None:
        await sim.advance("1m")

    async def wait(sim: Simulation) -> None:
        assert {each.job for each in await sim.advance("1h")} == {"ours"}
        waiting = await only_run(other, "theirs")
        assert (waiting.state, waiting.owner) == ("PENDING", None)

    async def start(sim: Simulation) -> None:
        assert {each.job for each in await sim.advance("10s")} == {"theirs"}
        assert await states(first, "theirs") == ["COMPLETED"]

    simulate(first, define)
    simulate(other, wait, start=after("1m"))
    simulate(first, start, start=after("1h2m"))
