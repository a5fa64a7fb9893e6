"""However a run ends, hooks are called with it, and events tell of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.world import simulate

from horae import Cron, Every, Horae, HoraeError, Retry, Window
from horae.core.report.report import RunReport
from horae.events import HookFailed, NodeBuried, RunEnded, RunPassed, RunReleased
from horae.testing.simulation import Simulation

HOURLY = Cron("0 * * * *")


def line(report: RunReport) -> str:
    return f"{report.run.job_name} {report.outcome} {report.run.reason}"


def test_on_complete_is_called_for_runs_that_never_started() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    @app.on_complete
    def ended(report: RunReport) -> None:
        told.append(line(report))

    never = asyncio.Event()

    @app.job("overlapping", Every("1h"), execution_timeout=None)
    async def overlapping() -> None:
        await never.wait()

    @app.job("narrow", HOURLY, window=Window.after("10m", only={"hours": "3"}))
    def narrow() -> None: ...

    @app.job("paused", HOURLY)
    def paused() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.pause("paused")
        await sim.advance("2h30m")
        never.set()
        await sim.advance("1s")

    simulate(app, body)
    assert sorted(told) == [
        "narrow UNSCHEDULABLE no candidate accepted within MaxAttempts",
        "narrow UNSCHEDULABLE no candidate accepted within MaxAttempts",
        "overlapping COMPLETED None",
        "overlapping SKIPPED overlap",
    ]


def test_on_complete_is_called_for_slots_missed_while_the_program_was_down() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    @app.job("nightly", HOURLY, recovery="none", on_complete=lambda report: told.append(line(report)))
    def nightly() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert told == ["nightly COMPLETED None"]
        await sim.jump(sim.now + timedelta(hours=3, minutes=30))

    simulate(app, body)
    assert told[1:] == ["nightly MISSED missed"] * 3


def test_a_hook_that_a_crash_cut_off_is_called_again_in_the_next_life() -> None:
    app = Horae("sqlite://")
    told: list[str] = []
    forever = asyncio.Event()

    @app.on_complete
    async def ended(report: RunReport) -> None:
        told.append(report.run.run_id)
        if len(told) == 1:
            await forever.wait()

    @app.job("a", HOURLY)
    def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert len(told) == 1
        await sim.crash()
        await sim.advance("1m")

    simulate(app, body)
    assert len(told) == 2
    assert len(set(told)) == 1


def test_a_hook_asks_for_states() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    @app.on_complete(states={"FAILED"})
    def failed(report: RunReport) -> None:
        told.append(line(report))

    @app.job("good", HOURLY)
    def good() -> None: ...

    @app.job("bad", HOURLY, retry=Retry(0, "1s"))
    def bad() -> None:
        raise ValueError("no")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    simulate(app, body)
    assert [each.split()[0] for each in told] == ["bad"]


@pytest.mark.parametrize("states", [["RUNNING"], "DONE", []])
def test_states_that_no_run_ends_in_are_refused_with_those_there_are(states: Any) -> None:
    with pytest.raises(HoraeError, match="on_complete"):
        Horae("sqlite://").on_complete(states=states)(print)


def test_a_run_whose_job_was_dropped_with_its_history_is_told_from_its_notice() -> None:
    app = Horae("sqlite://")
    told: list[RunReport] = []

    @app.on_complete
    def ended(report: RunReport) -> None:
        told.append(report)

    never = asyncio.Event()

    @app.task("waits")
    async def waits() -> None:
        await never.wait()

    async def body(sim: Simulation) -> None:
        await app.schedule("line", HOURLY, task="waits", overlap="queue", execution_timeout=None)
        await sim.advance("2h")
        assert told == []
        await app.drop("line")
        await sim.advance("1s")

    simulate(app, body)
    first, second = sorted(told, key=lambda each: each.run.scheduled_time)
    assert (line(second), second.tasks) == ("line CANCELLED dropped", ())
    assert line(first) == "line CANCELLED dropped"


def test_a_hook_is_called_once_for_each_run() -> None:
    app = Horae("sqlite://")
    told: list[str] = []
    passed: list[RunPassed] = []
    app.events.listen(passed.append, RunPassed)

    @app.job("a", HOURLY, on_complete=lambda report: told.append(report.run.run_id))
    def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("5h")

    simulate(app, body)
    assert len(told) == len(set(told)) == 5
    assert passed == []


def test_a_take_over_says_what_became_of_each_run() -> None:
    app = Horae("sqlite://")
    seen: list[Any] = []
    app.events.listen(seen.append, RunReleased, RunEnded, NodeBuried)
    forever = asyncio.Event()
    lives = 0

    @app.job("again", HOURLY)
    async def again() -> None:
        if lives == 0:
            await forever.wait()

    @app.job("once", HOURLY, delivery="at_most_once")
    async def once() -> None:
        if lives == 0:
            await forever.wait()

    async def body(sim: Simulation) -> None:
        nonlocal lives
        await sim.advance("1h")
        lives = 1
        await sim.crash()
        await sim.advance("10m")

    simulate(app, body)
    released = [each for each in seen if isinstance(each, RunReleased)]
    stale = [each for each in seen if isinstance(each, RunEnded) and each.state == "FAILED_STALE"]
    assert [each.job for each in released] == ["again"]
    assert "died" in released[0].reason
    assert [(each.job, each.reason) for each in stale] == [("once", "lost, and delivered at most once")]
    assert [each.runs for each in seen if isinstance(each, NodeBuried)] == [2]


def test_a_hook_that_hangs_does_not_keep_others_from_being_called_and_is_announced() -> None:
    app = Horae("sqlite://")
    told: list[str] = []
    failed: list[HookFailed] = []
    app.events.listen(failed.append, HookFailed)
    never = asyncio.Event()

    async def hangs() -> None:
        await never.wait()

    for number in range(40):

        @app.job(f"hung-{number}", HOURLY, on_complete=hangs)
        def work() -> None: ...

    @app.job("good", HOURLY, on_complete=lambda report: told.append(report.run.run_id))
    def good() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert len(told) == 2
        await sim.advance("30m")

    simulate(app, body)
    assert len(failed) == 80
    assert {each.error for each in failed} == {"took longer than 300.0 s, and is not waited for"}
