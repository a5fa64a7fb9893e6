"""task_timeout ends one try, execution_timeout the whole run; neither has anything to do with the schedule."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.engine.world import attempts, clock, only_report, only_run, simulate, tasks

from horae import Every, Horae, Retry, Run
from horae.events import RunAbandoned, RunFreed
from horae.testing.simulation import Simulation


def test_a_try_that_takes_longer_than_task_timeout_ends_timeout_and_is_retried() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), task_timeout="5m", retry=Retry(1, "1m"))
    async def work(run: Run) -> None:
        if run.attempt == 1:
            await asyncio.sleep(3000)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        report = await only_report(app)
        assert report.outcome == "COMPLETED"
        assert attempts(report.tasks[0]) == [("TIMEOUT", "1:00:00"), ("SUCCESS", "1:06:00")]
        assert clock(report.tasks[0].attempts[0].ended_at) == "1:05:00"
        assert "task_timeout" in (report.tasks[0].attempts[0].error or "")

    simulate(app, body)


def test_a_task_that_times_out_for_good_fails_its_run() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), task_timeout="5m")

    @job.task
    async def slow() -> None:
        await asyncio.sleep(3000)

    @job.task
    async def rest() -> None: ...

    @job.task(task_timeout=None, failure="continue")
    async def cleanup() -> None:
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        report = await only_report(app)
        assert (report.outcome, tasks(report)) == (
            "FAILED",
            {"slow": "TIMEOUT", "rest": "SKIPPED", "cleanup": "SUCCESS"},
        )

    simulate(app, body)


def test_a_task_that_ignores_its_cancellation_is_given_up_after_the_grace_and_holds_its_slot() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=1)
    told: list[RunAbandoned | RunFreed] = []
    app.events.listen(told.append, RunAbandoned, RunFreed)

    @app.job("deaf", Every("1d"), task_timeout="1m", cancel_grace="10s")
    async def deaf() -> None:
        ends = asyncio.get_running_loop().time() + 600
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    @app.job("other", Every("24h2m"))
    async def other() -> None: ...

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("25h")
        report = await only_report(app, "deaf")
        assert (report.outcome, clock(report.run.completed_at)) == ("FAILED", "1 day, 0:01:10")
        assert report.tasks[0].state == "TIMEOUT"
        assert [clock(each.time) for each in starts if each.job == "other"] == ["1 day, 0:10:00"]

    simulate(app, body)
    assert [type(each).__name__ for each in told] == ["RunAbandoned", "RunFreed"]


def test_a_run_that_takes_longer_than_execution_timeout_is_cancelled_for_that_reason() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1d"), execution_timeout="10m")

    @job.task
    async def first() -> None:
        await asyncio.sleep(400)

    @job.task
    async def second() -> None:
        await asyncio.sleep(400)

    @job.task(failure="continue")
    async def cleanup() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("CANCELLED", "timeout")
        assert tasks(report) == {"first": "SUCCESS", "second": "CANCELLED", "cleanup": "SUCCESS"}
        assert report.duration == timedelta(minutes=10)

    simulate(app, body)


def test_time_a_run_is_parked_for_a_retry_does_not_count_towards_its_execution_timeout() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1d"), execution_timeout="10m", retry=Retry(3, "1h"))
    async def work(run: Run) -> None:
        await asyncio.sleep(240)
        if run.attempt < 3:
            raise ValueError("again")

    async def body(sim: Simulation) -> None:
        await sim.advance("28h")
        report = await only_report(app)
        # 4 + 4 minutes are spent, so 2 are left for the third try, which needs 4.
        assert (report.outcome, report.run.reason) == ("CANCELLED", "timeout")
        assert attempts(report.tasks[0]) == [
            ("FAILED", "1 day, 0:00:00"),
            ("FAILED", "1 day, 1:04:00"),
            ("CANCELLED", "1 day, 2:08:00"),
        ]
        assert clock(report.run.completed_at) == "1 day, 2:10:00"

    simulate(app, body)


def test_what_a_run_spent_before_a_crash_counts_towards_its_execution_timeout() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1d"), execution_timeout="10m")
    async def work() -> None:
        await asyncio.sleep(480)

    async def body(sim: Simulation) -> None:
        await sim.advance("24h6m")
        await sim.crash()
        await sim.advance("1h")
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("CANCELLED", "timeout")
        assert report.duration is not None
        assert timedelta(minutes=10) <= report.duration < timedelta(minutes=10, seconds=10)

    simulate(app, body)


@pytest.mark.parametrize("schedule", ["1m", "1d"])
def test_the_schedule_says_nothing_about_how_long_a_run_may_take(schedule: str) -> None:
    app = Horae("sqlite://")

    @app.job("a", Every(schedule), execution_timeout="30m", overlap="skip")
    async def work() -> None:
        await asyncio.sleep(20 * 60)

    async def body(sim: Simulation) -> None:
        await sim.advance(schedule)
        await sim.advance("25m")
        completed = [run for run in await app.runs() if run.state == "COMPLETED"]
        assert len(completed) == 1

    simulate(app, body)


def test_without_an_execution_timeout_a_run_may_take_a_week() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("30d"), execution_timeout=None)
    async def work() -> None:
        await asyncio.sleep(7 * 86_400)

    async def body(sim: Simulation) -> None:
        await sim.advance("40d")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body)
