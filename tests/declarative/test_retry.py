"""Failures: a task that failed is tried again after its delay, unless its next occurrence comes first."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.declarative.stage import ALWAYS, Stage, at, play

from horae.declarative import TaskRunFailed


def test_a_failed_task_is_tried_again_after_its_delay() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", fails=2))
        await stage.sim.advance("1h")
        return stage.told(task="a")

    assert play(body) == [
        "10:00:30 TaskRunStarted a",
        "10:00:30 TaskRunFailed a",
        "10:07:30 TaskRetryStarted a",
        "10:07:30 TaskRunFailed a",
        "10:14:30 TaskRetryStarted a",
        "10:14:30 TaskRunCompleted a",
    ]


def test_the_delay_counts_from_the_failure_not_from_the_start() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", lasts="20m", fails=1))
        await stage.sim.advance("1h")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:27:30"]


def test_a_failure_says_why_and_until_when_the_retry_waits() -> None:
    async def body(stage: Stage) -> TaskRunFailed:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", fails=1))
        (failure,) = [each for each in stage.heard if isinstance(each, TaskRunFailed)]
        return failure

    failure = play(body)
    assert failure.error == "Failure: a"
    assert failure.pendingRetryUntil == at("2026-01-01 10:07:30")


def test_a_waiting_retry_is_read_as_such_and_cleared_by_a_success() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", fails=1))
        waiting = await stage.state("a")
        assert (waiting.state, waiting.pendingRetryUntil) == ("AwaitingRetry", at("2026-01-01 10:07:30"))
        await stage.sim.advance("8m")
        after = await stage.state("a")
        assert (after.state, after.pendingRetryUntil) == ("AwaitingRun", None)
        assert after.lastAttemptAt == after.lastSuccessAt == at("2026-01-01 10:07:30")

    play(body)


def test_a_retry_that_runs_is_running_and_waits_for_nothing() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", lasts="2m", fails=1))
        await stage.sim.advance("10m")
        state = await stage.state("a")
        assert (state.state, state.pendingRetryUntil) == ("Running", None)

    play(body)


def test_a_due_occurrence_takes_the_place_of_a_waiting_retry() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,30 * * * *", "45m", fails=1))
        await stage.sim.advance("50m")
        return stage.told(task="a")

    assert play(body) == [
        "10:00:30 TaskRunStarted a",
        "10:00:30 TaskRunFailed a",
        "10:30:00 TaskRetryPreempted a",
        "10:30:00 TaskRunStarted a",
        "10:30:00 TaskRunCompleted a",
    ]


def test_a_retry_and_an_occurrence_of_the_same_moment_are_one_call() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "0,30 * * * *", "30m", fails=1))
        await stage.sim.advance("1h")
        return stage.times("a")

    assert play(body, "2026-01-01 10:00:00") == ["10:00:00", "10:30:00", "11:00:00"]


def test_a_task_that_always_fails_is_tried_again_for_as_long_as_it_does() -> None:
    async def body(stage: Stage) -> int:
        await stage.initialize(stage.task("a", "0 10 1 1 *", "1h", fails=ALWAYS))
        await stage.sim.advance("30d")
        return len(stage.times("a"))

    assert play(body) == 30 * 24 + 1


def test_a_delay_of_nothing_is_a_retry_at_once_that_leaves_others_their_turn() -> None:
    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        await stage.initialize(stage.task("a", "0 10 * * *", 0, fails=3), stage.task("b", "* * * * *"))
        await stage.sim.advance("1m")
        return stage.times("a"), stage.times("b")

    retried, other = play(body)
    assert len(retried) == 4
    assert retried[-1] < "10:00:40"
    assert other == ["10:00:30", "10:01:00"]


def test_a_delay_of_years_is_kept_and_waited_for() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 29 2 *", "500d", fails=1))
        state = await stage.state("a")
        assert state.retryDelay == timedelta(days=500)
        assert state.pendingRetryUntil == at("2028-02-29 10:00:00") + timedelta(days=500)
        await stage.sim.advance("501d")
        assert len(stage.times("a")) == 2

    play(body, "2028-02-29 10:00:00")


def test_a_failure_keeps_the_time_of_the_last_success() -> None:
    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 * * * *", "2h"))
        stage.failures["a"] = 1
        await stage.sim.advance("1h")
        state = await stage.state("a")
        assert state.lastAttemptAt == at("2026-01-01 11:00:00")
        assert state.lastSuccessAt == at("2026-01-01 10:00:30")

    play(body)


@pytest.mark.parametrize(("down", "when"), [("5m", "10:20:30"), ("10m", "10:20:30"), ("25m", "10:35:30")])
def test_a_waiting_retry_survives_a_stop_and_is_due_when_it_was_or_at_once(down: str, when: str) -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 10 * * *", "20m", fails=1)
        await stage.initialize(task)
        await stage.sim.advance("10m")
        await stage.restart(task, down=down)
        await stage.sim.advance("1h")
        return stage.told(task="a")[2:]

    assert play(body) == [f"{when} TaskRetryStarted a", f"{when} TaskRunCompleted a"]


def test_a_waiting_retry_survives_a_crash() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0 10 * * *", "20m", fails=1)
        await stage.initialize(task)
        await stage.sim.advance("10m")
        await stage.sim.crash()
        await stage.initialize(task)
        assert (await stage.state("a")).pendingRetryUntil == at("2026-01-01 10:20:30")
        await stage.sim.advance("1h")
        return stage.told(task="a")[2:]

    assert play(body) == ["10:20:30 TaskRetryStarted a", "10:20:30 TaskRunCompleted a"]


def test_an_occurrence_missed_while_down_takes_the_place_of_a_waiting_retry() -> None:
    async def body(stage: Stage) -> list[str]:
        task = stage.task("a", "0,30 * * * *", "2h", fails=1)
        await stage.initialize(task)
        await stage.sim.advance("10m")
        await stage.restart(task, down="30m")
        return stage.told(task="a")[2:]

    assert play(body) == [
        "10:40:30 TaskRetryPreempted a",
        "10:40:30 TaskRunStarted a",
        "10:40:30 TaskRunCompleted a",
    ]


def test_a_failure_of_one_task_touches_no_other() -> None:
    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        bad = stage.task("bad", "* * * * *", "20s", fails=ALWAYS)
        await stage.initialize(bad, stage.task("good", "* * * * *", lasts="30s"))
        await stage.sim.advance("3m")
        return stage.times("good"), stage.told(task="good")[-2:]

    times, last = play(body, "2026-01-01 10:00:00")
    assert times == ["10:00:00", "10:01:00", "10:02:00", "10:03:00"]
    assert last == ["10:02:30 TaskRunCompleted good", "10:03:00 TaskRunStarted good"]
