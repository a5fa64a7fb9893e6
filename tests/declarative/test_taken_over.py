"""A catalog that another scheduler, with other registrations, has begun on: the last one that began counts."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from tests.declarative.stage import Stage, play

from horae.core.declarative import declared_spec
from horae.core.job.definition import JobSpec
from horae.core.schedule.schedules import Cron


def registered_elsewhere(name: str) -> JobSpec:
    return declared_spec(name, Cron("* * * * *", dialect="posix", fold="both"), timedelta(0))


async def begin_elsewhere(stage: Stage, *names: str) -> None:
    """What the initialize() of another process writes."""
    await stage.scheduler.app.home.call(lambda store: store.declare([registered_elsewhere(name) for name in names]))


def test_a_scheduler_that_meets_a_task_it_was_not_given_hands_it_back_and_starts_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(stage: Stage) -> tuple[list[str], list[tuple[str, str, int]]]:
        await stage.initialize(stage.task("a", "* * * * *"))
        await begin_elsewhere(stage, "a", "b")
        await stage.sim.advance("5m")
        runs = await stage.scheduler.app.runs(job="declarative:b")
        waiting = [(str(run.state), run.waiting_for or "", run.retry_count) for run in runs if run.state == "PENDING"]
        return stage.times("a"), waiting

    with caplog.at_level(logging.WARNING, "horae.declarative"):
        times, waiting = play(body)
    assert times == ["10:00:30"]
    assert waiting == [("PENDING", "", 0)]
    assert caplog.text.count("another scheduler has registered other tasks") == 1


def test_a_scheduler_whose_tasks_were_taken_out_lets_them_sleep() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "* * * * *"), stage.task("b", "* * * * *"))
        await begin_elsewhere(stage, "a")
        await stage.sim.advance("2m")
        return [f"{name} {time:%H:%M}" for name, time in stage.calls]

    assert sorted(play(body)) == ["a 10:00", "a 10:01", "a 10:02", "b 10:00"]


def test_initializing_again_makes_the_own_registrations_count_again() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", "* * * * *"))
        await begin_elsewhere(stage, "b")
        await stage.sim.advance("2m")
        await stage.restart(stage.task("a", "* * * * *"))
        await stage.sim.advance("1m")
        return stage.times("a")

    assert play(body) == ["10:00:30", "10:02:30", "10:03:00"]
