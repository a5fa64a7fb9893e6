"""Beside each other: tasks run together, one task never runs twice at once, and a call lasts as long as it likes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from unittest.mock import AsyncMock

from tests.declarative.stage import ALWAYS, Stage, play

from horae.declarative import Callback, SchedulerAlreadyActiveError


def test_tasks_that_are_due_together_run_together() -> None:
    async def body(stage: Stage) -> tuple[int, set[str]]:
        await stage.initialize(*(stage.task(f"t{n}", "5 * * * *", lasts="1m") for n in range(200)))
        await stage.sim.advance("10m")
        return stage.together[""], {time for n in range(200) for time in stage.times(f"t{n}")}

    assert play(body) == (200, {"10:05:00"})


def test_one_task_never_runs_twice_at_once() -> None:
    async def body(stage: Stage) -> tuple[int, list[str]]:
        await stage.initialize(stage.task("a", "* * * * *", lasts="150s"))
        await stage.sim.advance("10m")
        return stage.together["a"], stage.times("a")

    assert play(body, "2026-01-01 10:00:00") == (1, ["10:00:00", "10:02:30", "10:05:00", "10:07:30", "10:10:00"])


def test_minutes_that_pass_during_a_long_run_are_owed_once_when_it_ends() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,10,20,30,40,50 * * * *", lasts="35m"))
        await stage.sim.advance("80m")
        return stage.times("a")

    assert play(body, "2026-01-01 10:00:00") == ["10:00:00", "10:35:00", "11:10:00"]


def test_a_long_run_that_fails_gives_way_to_what_came_due_meanwhile() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,10 * * * *", "1h", lasts="15m", fails=1))
        await stage.sim.advance("30m")
        return stage.told(task="a")

    told = play(body, "2026-01-01 10:00:00")
    assert told[:2] == ["10:00:00 TaskRunStarted a", "10:15:00 TaskRunFailed a"]
    assert told[2:] == ["10:15:00 TaskRetryPreempted a", "10:15:00 TaskRunStarted a", "10:30:00 TaskRunCompleted a"]


def test_a_call_may_last_for_days_and_nothing_cuts_it_off() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 1 1 *", lasts="20d"), stage.task("b", "0 0 * * *"))
        await stage.sim.advance("21d")
        assert len(stage.times("b")) == 21
        return stage.told(task="a")

    assert play(body) == ["10:00:30 TaskRunStarted a", "10:00:30 TaskRunCompleted a"]


def test_long_calls_take_nobody_elses_turn() -> None:
    async def body(stage: Stage) -> list[str]:
        long = [stage.task(f"long{n}", "0 10 * * *", lasts="5h") for n in range(300)]
        await stage.initialize(*long, stage.task("short", "* * * * *"))
        await stage.sim.advance("3m")
        return stage.times("short")

    assert play(body) == ["10:00:30", "10:01:00", "10:02:00", "10:03:00"]


def test_whatever_a_callback_raises_is_its_own_failure_only() -> None:
    async def leaves() -> None:
        raise SystemExit(3)

    async def interrupts() -> None:
        raise KeyboardInterrupt

    async def cancels() -> None:
        raise asyncio.CancelledError

    async def nothing() -> None:
        raise ExceptionGroup("several", [ValueError("one"), OSError("two")])

    async def body(stage: Stage) -> None:
        odd = [("leaves", leaves), ("interrupts", interrupts), ("cancels", cancels), ("nothing", nothing)]
        await stage.initialize(
            *((name, "* * * * *", callback, timedelta(hours=1)) for name, callback in odd),
            stage.task("good", "* * * * *"),
        )
        await stage.sim.advance("2m")
        assert stage.times("good") == ["10:00:30", "10:01:00", "10:02:00"]
        for name, _ in odd:
            assert stage.told(task=name)[1] == f"10:00:30 TaskRunFailed {name}"

    play(body)


def test_a_callback_that_initializes_its_scheduler_is_refused_and_fails() -> None:
    refused: list[str] = []

    async def body(stage: Stage) -> list[str]:
        async def again() -> None:
            try:
                await stage.scheduler.initialize([])
            except SchedulerAlreadyActiveError as error:
                refused.append(error.details["currentState"])
                raise

        await stage.initialize(("a", "* * * * *", again, timedelta(hours=1)))
        return stage.told(task="a")

    assert play(body) == ["10:00:30 TaskRunStarted a", "10:00:30 TaskRunFailed a"]
    assert refused == ["running"]


def test_whatever_is_taken_for_a_callback_is_called_without_arguments_and_awaited() -> None:
    class Counting:
        def __init__(self) -> None:
            self.calls = 0

        async def __call__(self) -> None:
            await asyncio.sleep(1)
            self.calls += 1

        async def method(self, by: int = 10) -> None:
            await asyncio.sleep(1)
            self.calls += by

    mock, called, bound, partly = AsyncMock(return_value=object()), Counting(), Counting(), Counting()

    async def body(stage: Stage) -> list[str]:
        callbacks: list[Callback] = [mock, called, bound.method, partial(partly.method, by=100)]
        await stage.initialize(
            *((f"t{number}", "* * * * *", each, timedelta(0)) for number, each in enumerate(callbacks))
        )
        await stage.sim.advance("61s")
        return [each for each in stage.told() if "Failed" in each]

    assert play(body, "2026-01-01 10:00:00") == []
    assert mock.await_count == 2
    assert (called.calls, bound.calls, partly.calls) == (2, 20, 200)


def test_stop_waits_for_every_callback_and_starts_nothing_meanwhile() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("long", "0 10 * * *", lasts="10m"), stage.task("often", "* * * * *"))
        since = len(stage.heard)
        await stage.scheduler.stop()
        assert stage.times("often") == ["10:00:30"]
        assert stage.running.total() == 0
        assert stage.told(since=since) == [
            "10:00:30 SchedulerStopRequested",
            "10:00:30 PollingStopRequested",
            "10:10:30 TaskRunCompleted long",
            "10:10:30 PollingStopped",
            "10:10:30 SchedulerStopped",
        ]

    play(body)


def test_stop_waits_for_a_callback_that_fails_and_closes_everything_all_the_same() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *", "1m", lasts="10m", fails=ALWAYS))
        since = len(stage.heard)
        await stage.scheduler.stop()
        await stage.sim.advance("1h")
        assert stage.times("a") == ["10:00:30"]
        assert stage.told(since=since)[2:] == [
            "10:10:30 TaskRunFailed a",
            "10:10:30 PollingStopped",
            "10:10:30 SchedulerStopped",
        ]

    play(body)


def test_a_stopped_scheduler_starts_nothing() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "* * * * *"))
        await stage.scheduler.stop()
        await stage.sim.advance("5h")
        return stage.times("a")

    assert play(body) == ["10:00:30"]
