"""Retries: at their exact times, without a slot while they wait, and whatever happens to the process meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.engine.world import after, attempts, clock, offsets, only_report, only_run, simulate, states

from horae import Every, Horae, Retry, Run
from horae.core.job.ids import attempt_id
from horae.core.job.policies import parse_retry
from horae.events import RunEnded, RunParked
from horae.testing.simulation import Simulation


def flaky(app: Horae, fails: int, retry: Retry, schedule: str = "1d") -> None:
    @app.job("flaky", Every(schedule), retry=retry)
    async def work(run: Run) -> None:
        if run.attempt <= fails:
            raise ValueError(f"try {run.attempt}")


def test_the_waits_grow_by_the_factor_and_the_run_ends_with_the_first_success() -> None:
    app = Horae("sqlite://")
    flaky(app, 3, Retry(3, "1m", factor=2.0))

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("25h")
        assert offsets(starts) == ["1 day, 0:00:00", "1 day, 0:01:00", "1 day, 0:03:00", "1 day, 0:07:00"]
        run = await only_run(app)
        assert (run.state, run.retry_count, run.fence) == ("COMPLETED", 3, 4)

    simulate(app, body)


def test_when_the_retries_are_used_up_the_run_fails_with_its_last_error() -> None:
    app = Horae("sqlite://")
    flaky(app, 9, Retry(2, "30s"))

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("25h")
        assert len(starts) == 3
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("FAILED", "ValueError: try 3 (after 3 attempts)")
        assert [each.error for each in report.tasks[0].attempts] == [f"ValueError: try {n}" for n in (1, 2, 3)]

    simulate(app, body)


def test_waits_never_exceed_max_interval() -> None:
    app = Horae("sqlite://")
    flaky(app, 4, Retry(4, "1m", factor=10.0, max_interval="5m"))

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("25h"))
        assert starts[1:] == ["1 day, 0:01:00", "1 day, 0:06:00", "1 day, 0:11:00", "1 day, 0:16:00"]

    simulate(app, body)


def test_jitter_spreads_the_wait_by_the_attempt_s_id_alone() -> None:
    app = Horae("sqlite://")
    retry = Retry(1, "10m", jitter=0.5)
    flaky(app, 1, retry)

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("25h")
        report = await only_report(app)
        wait = parse_retry(retry).delay(0, attempt_id(report.tasks[0].task_run_id, 1))
        assert wait != timedelta(minutes=10)
        assert abs(starts[1].time - starts[0].time - wait) < timedelta(milliseconds=2)

    simulate(app, body)


def test_a_run_that_waits_for_its_retry_is_pending_holds_no_slot_and_says_until_when() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=1)
    parked: list[RunParked] = []
    app.events.listen(parked.append, RunParked)
    flaky(app, 1, Retry(1, "30m"))

    @app.job("other", Every("24h10m"))
    async def other() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("24h5m")
        run = await only_run(app, "flaky")
        assert (run.state, run.waiting_for, clock(run.not_before)) == ("PENDING", "retry", "1 day, 0:30:00")
        assert not await app.is_running("flaky")
        assert offsets(await sim.advance("10m"), "other") == ["1 day, 0:10:00"]
        assert offsets(await sim.advance("1h"), "flaky") == ["1 day, 0:30:00"]

    simulate(app, body)
    assert [(each.job, clock(each.until)) for each in parked] == [("flaky", "1 day, 0:30:00")]


def test_a_crash_while_a_retry_waits_changes_nothing_about_it() -> None:
    app = Horae("sqlite://")
    flaky(app, 2, Retry(3, "10m", factor=2.0))

    async def body(sim: Simulation) -> None:
        await sim.advance("24h1m")
        await sim.crash()
        assert offsets(await sim.advance("15m")) == ["1 day, 0:10:00"]
        await sim.crash()
        await sim.crash()
        assert offsets(await sim.advance("30m")) == ["1 day, 0:30:00"]
        report = await only_report(app)
        assert attempts(report.tasks[0]) == [
            ("FAILED", "1 day, 0:00:00"),
            ("FAILED", "1 day, 0:10:00"),
            ("SUCCESS", "1 day, 0:30:00"),
        ]

    simulate(app, body)


def test_a_lost_try_is_made_up_for_at_once_and_takes_nothing_from_the_retries() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1d"), retry=Retry(1, "10m"))
    async def work(run: Run) -> None:
        await asyncio.sleep(300)
        if run.attempt == 2:
            raise ValueError("after the crash")

    async def body(sim: Simulation) -> None:
        await sim.advance("24h1m")
        await sim.crash()
        await sim.advance("1h")
        report = await only_report(app)
        assert [str(each.state) for each in report.tasks[0].attempts] == ["LOST", "FAILED", "SUCCESS"]
        begun = [each.started_at for each in report.tasks[0].attempts if each.started_at is not None]
        assert begun[1] - after("24h1m") < timedelta(seconds=10)
        assert begun[2] - begun[1] == timedelta(minutes=15)

    simulate(app, body)


def test_retries_without_end_go_on_until_the_next_slot_which_supersedes_them() -> None:
    app = Horae("sqlite://")
    flaky(app, 99, Retry(None, "20m"), "1h")

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("2h30m"))
        assert starts == ["1:00:00", "1:20:00", "1:40:00", "2:00:00", "2:20:00"]
        assert await states(app) == ["FAILED (superseded)", "PENDING"]

    simulate(app, body)


def test_a_waiting_retry_can_be_cancelled() -> None:
    app = Horae("sqlite://")
    flaky(app, 9, Retry(5, "1h"))

    async def body(sim: Simulation) -> None:
        await sim.advance("24h1m")
        assert await app.cancel((await only_run(app)).run_id) == "CANCELLED"
        assert await sim.advance("5h") == []
        report = await only_report(app)
        assert (report.outcome, report.tasks[0].state) == ("CANCELLED", "CANCELLED")

    simulate(app, body)


@pytest.mark.parametrize("slots", [1, 50])
def test_many_retries_due_at_one_time_all_start_then(slots: int) -> None:
    app = Horae("sqlite://", max_concurrent_jobs=slots)
    for index in range(20):

        @app.job(f"job-{index:02}", Every("1d"), retry=Retry(1, "10m"))
        async def work(run: Run) -> None:
            if run.attempt == 1:
                raise ValueError("once")

    async def body(sim: Simulation) -> None:
        await sim.advance("24h5m")
        assert offsets(await sim.advance("1h")) == ["1 day, 0:10:00"] * 20

    simulate(app, body)


def test_a_run_that_was_tried_again_lasts_from_its_first_start_to_its_end_everywhere() -> None:
    app = Horae("sqlite://")
    flaky(app, 2, Retry(2, "30s"))
    ended: list[RunEnded] = []
    app.events.listen(ended.append, RunEnded)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        run = await only_run(app)
        assert run.completed_at is not None
        assert run.started_at is not None
        lasted = (run.completed_at - run.started_at).total_seconds()
        assert [event.seconds for event in ended] == [pytest.approx(lasted, abs=0.01)]
        assert lasted >= 60
        assert 'scheduler_job_execution_duration_seconds_sum{job="flaky"} 60' in app.metrics.render()

    simulate(app, body)
