"""Suspends and clocks that are set: a minute that passed while the scheduler was active is owed, once."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from tests.declarative.stage import Stage, at, play

from horae.declarative import Scheduler


@pytest.mark.parametrize("span", ["1h", "26h", "90d"])
def test_a_suspend_over_any_number_of_occurrences_leads_to_one_run(span: str) -> None:
    async def body(stage: Stage) -> int:
        await stage.initialize(stage.task("a", "0,15,30,45 * * * *"))
        await stage.sim.jump(span)
        return len(stage.times("a"))

    assert play(body) == 2


def test_after_a_suspend_the_schedule_goes_on_as_before() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,15,30,45 * * * *"))
        await stage.sim.jump("62m")
        await stage.sim.advance("30m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "11:02:30", "11:15:00", "11:30:00"]


def test_a_suspend_owes_its_minute_even_to_a_task_that_never_ran() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "15 * * * *"))
        await stage.sim.jump("30m")
        return stage.times("a")

    assert play(body) == ["10:30:30"]


def test_a_suspend_over_nothing_due_starts_nothing() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 12 * * *"))
        await stage.sim.jump("1h")
        return stage.times("a")

    assert play(body) == []


def test_a_retry_whose_time_passed_in_a_suspend_is_started_when_it_ends() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 * * *", "5m", fails=1))
        await stage.sim.jump("30m")
        return stage.told(task="a")[2:]

    assert play(body) == ["10:30:30 TaskRetryStarted a", "10:30:30 TaskRunCompleted a"]


def test_a_suspend_in_the_middle_of_a_run_does_not_start_it_again() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 * * *", lasts="10m"))
        await stage.sim.jump("5h")
        return stage.told(task="a")

    assert play(body) == ["10:00:30 TaskRunStarted a", "15:00:30 TaskRunCompleted a"]


def test_a_clock_that_is_set_back_runs_no_minute_a_second_time() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,15,30,45 * * * *"))
        await stage.sim.advance("20m")
        await stage.sim.set_clock(at("2026-01-01 10:05:00"))
        await stage.sim.advance("30m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:15:00", "10:30:00"]


def test_a_clock_that_is_set_forward_owes_one_run_for_all_it_passed_over() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,15,30,45 * * * *"))
        await stage.sim.set_clock(at("2026-01-01 12:20:00"))
        await stage.sim.advance("5s")
        await stage.sim.advance("30m")
        return stage.times("a")

    # Every five seconds, as on real time, the clock is compared with what has passed.
    assert play(body, settings={"heartbeat": 5}) == ["10:00:30", "12:20:05", "12:30:00", "12:45:00"]


def test_a_clock_that_was_set_back_before_a_restart_runs_no_minute_a_second_time() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0,15,30,45 * * * *")
        await stage.initialize(task)
        await stage.sim.advance("20m")
        await stage.scheduler.stop()
        await stage.sim.set_clock(at("2026-01-01 10:10:00"))
        await stage.initialize(task)
        await stage.sim.advance("30m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:15:00", "10:30:00"]


def test_a_late_start_is_in_the_log_and_in_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    async def body(stage: Stage) -> str:
        await stage.initialize(stage.task("a", "0 * * * *"))
        await stage.sim.jump("90m")
        return stage.scheduler.app.metrics.render()

    with caplog.at_level(logging.INFO, logger="horae.runs"):
        metrics = play(body)
    assert any(
        line.startswith("declarative:a started to make up for a missed slot, 30 min 30 s after its time")
        for line in caplog.messages
    ), caplog.messages
    assert 'scheduler_start_lag_seconds_bucket{le="300"} 1\n' in metrics
    assert "scheduler_start_lag_seconds_count 2\n" in metrics


def test_a_pause_of_the_machine_cuts_no_callback_off() -> None:
    """Longer than the time after which an ordinary node stops its tasks, because others may have taken them."""

    async def body(stage: Stage) -> list[str]:
        async def ticks() -> None:  # makes a moment every second, so that heartbeats come as on real time
            for _ in range(3600):
                await asyncio.sleep(1)

        await stage.initialize(("ticks", "0 10 * * *", ticks, timedelta(0)), stage.task("a", "0 10 * * *", lasts="10m"))
        await stage.sim.advance("1m")
        await stage.sim.jump("2m")
        await stage.sim.advance("20m")
        return stage.told(task="a")

    told = play(body, settings={"heartbeat": 5, "late_after": Scheduler("sqlite://").app.tuning.late_after})
    assert told == ["10:00:30 TaskRunStarted a", "10:10:30 TaskRunCompleted a"]
