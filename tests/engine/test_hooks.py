"""on_start and on_complete: called once, with the report; what goes wrong in them touches nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.world import only_run, simulate, tasks

from horae import Every, Horae, Retry, Run
from horae.core.report import Report
from horae.events import HookFailed
from horae.testing.simulation import Simulation


def test_sync_and_async_hooks_are_called_once_in_order_around_the_tasks() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    async def before(report: Report) -> None:
        told.append(f"start {report.outcome}")

    def done(report: Report) -> None:
        told.append(f"complete {report.outcome}")

    @app.on_start
    def app_before() -> None:
        told.append("app start")

    @app.on_complete
    async def app_done(report: Report) -> None:
        told.append(f"app complete {report.run.job_name}")

    @app.job("a", Every("1h"), retry=Retry(1, "1m"), on_start=before, on_complete=done)
    async def work(run: Run) -> None:
        told.append(f"try {run.attempt}")
        if run.attempt == 1:
            raise ValueError("once")

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")

    simulate(app, body)
    assert told == ["start RUNNING", "app start", "try 1", "try 2", "complete COMPLETED", "app complete a"]


def test_on_complete_is_given_the_whole_report_whatever_the_outcome() -> None:
    app = Horae("sqlite://")
    told: list[Report] = []
    etl = app.job("etl", Every("1h"), on_complete=told.append)

    @etl.task(retry=Retry(1, "30s"))
    def extract() -> None:
        raise ValueError("no source")

    @etl.task
    def load() -> None:
        raise AssertionError("never reached")

    @etl.task(failure="continue")
    def cleanup() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")

    simulate(app, body)
    (report,) = told
    assert (report.outcome, report.run.failure, report.run.mode) == ("FAILED", "fail_fast", "sequential")
    assert tasks(report) == {"extract": "FAILED", "load": "SKIPPED", "cleanup": "SUCCESS"}
    assert [each.error for each in report.tasks[0].attempts] == ["ValueError: no source"] * 2
    assert (report.tasks[1].cancelled_by, report.failed_tasks) == ("extract", ("extract",))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_hook_that_fails_is_announced_and_the_run_and_other_hooks_go_on(asynchronous: bool) -> None:
    app = Horae("sqlite://")
    failed: list[Any] = []
    told: list[str] = []
    app.on_error(failed.append)

    def bad(report: Report) -> None:
        raise RuntimeError(f"bad at {report.outcome}")

    async def bad_too(report: Report) -> None:
        bad(report)

    hook = bad_too if asynchronous else bad

    @app.on_complete
    def other() -> None:
        told.append("other")

    @app.job("a", Every("1h"), on_start=hook, on_complete=hook)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body)
    assert failed == [
        HookFailed("a", "on_start", "RuntimeError: bad at RUNNING"),
        HookFailed("a", "on_complete", "RuntimeError: bad at COMPLETED"),
    ]
    assert told == ["other"]


@pytest.mark.parametrize("error", [SystemExit("out"), KeyboardInterrupt()])
def test_a_hook_that_wants_to_end_the_program_is_only_a_hook_that_fails(error: BaseException) -> None:
    app = Horae("sqlite://")
    failed: list[Any] = []
    app.on_error(failed.append)

    async def bad(report: Report) -> None:
        raise error

    @app.job("a", Every("1h"), on_start=bad, on_complete=bad)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert [str(run.state) for run in await app.runs()] == ["COMPLETED", "COMPLETED"]

    simulate(app, body)
    assert [each.hook for each in failed] == ["on_start", "on_complete"] * 2


def test_the_first_task_waits_for_on_start_but_nothing_waits_for_on_complete() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(120)
        told.append("prepared")

    async def slow(report: Report) -> None:
        await asyncio.sleep(7200)
        told.append("told")

    @app.job("a", Every("1h"), on_start=prepare, on_complete=slow)
    async def work(run: Run) -> None:
        told.append(f"work at {run.scheduled_time:%H}")

    async def body(sim: Simulation) -> None:
        await sim.advance("2h30m")

    simulate(app, body)
    assert told[:4] == ["prepared", "work at 01", "prepared", "work at 02"]


def test_on_complete_is_called_for_a_run_that_was_cancelled_while_it_ran() -> None:
    app = Horae("sqlite://")
    told: list[Report] = []

    @app.job("a", Every("1h"), on_complete=told.append)
    async def work() -> None:
        await asyncio.sleep(1000)

    async def body(sim: Simulation) -> None:
        await sim.advance("61m")
        await app.cancel((await only_run(app)).run_id)
        await sim.advance("1m")

    simulate(app, body)
    assert [(str(each.outcome), each.run.reason) for each in told] == [("CANCELLED", "cancelled")]
