"""Tasks that themselves say `continue` have their turn after a cancel or a timeout, within a grace they may set."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.engine.world import GUARD, attempts, clock, ended, only_report, only_run, simulate, tasks, until

from horae import Every, Horae, Retry
from horae.core.report.report import RunReport
from horae.testing.simulation import Simulation


def stopped(app: Horae, how: str) -> RunReport:
    """The report of the run of 01:00 that was cancelled at 01:05, or whose time was over then."""

    async def body(sim: Simulation) -> RunReport:
        await sim.advance("65m")
        if how == "cancel":
            await app.cancel((await only_run(app)).run_id)
        await sim.advance("30m")
        return await only_report(app)

    return simulate(app, body)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_clean_up_runs_after_the_others_were_stopped(how: str, mode: str) -> None:
    app, told = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), mode=mode, execution_timeout="5m" if how == "timeout" else None)

    @job.task
    async def work() -> None:
        try:
            await asyncio.sleep(3000)
        finally:
            told.append("stopped")

    @job.task
    async def never() -> None:
        await asyncio.sleep(3000)

    @job.task(failure="continue", cancel_grace="10m")
    async def cleanup() -> None:
        await asyncio.sleep(360)
        told.append("cleaned up")

    report = stopped(app, how)
    assert told == ["stopped", "cleaned up"]
    assert (report.outcome, report.run.reason) == ("CANCELLED", "cancelled" if how == "cancel" else "timeout")
    assert tasks(report)["cleanup"] == "SUCCESS"
    assert clock(report.run.completed_at) == ("1:11:00" if mode == "sequential" else "1:06:00")


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_clean_up_that_takes_longer_than_its_grace_is_stopped(how: str) -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), execution_timeout="5m" if how == "timeout" else None)

    @job.task
    async def work() -> None:
        await asyncio.sleep(3000)

    @job.task(failure="continue", cancel_grace="2m", retry=Retry(3, "1s"))
    async def cleanup() -> None:
        await asyncio.sleep(3000)

    report = stopped(app, how)
    assert (report.outcome, tasks(report)) == ("CANCELLED", {"work": "CANCELLED", "cleanup": "CANCELLED"})
    assert attempts(report.tasks[1]) == [("CANCELLED", "1:05:00")]
    assert clock(report.run.completed_at) == "1:07:00"


def test_a_clean_up_without_a_grace_of_its_own_has_that_of_its_job() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), cancel_grace="45s")

    @job.task
    async def work() -> None:
        await asyncio.sleep(3000)

    @job.task(failure="continue")
    async def cleanup() -> None:
        await asyncio.sleep(3000)

    assert clock(stopped(app, "cancel").run.completed_at) == "1:05:45"


def test_a_clean_up_that_fails_is_not_retried_and_leaves_the_run_cancelled() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), retry=Retry(3, "1s"))

    @job.task
    async def work() -> None:
        await asyncio.sleep(3000)

    @job.task(failure="continue")
    async def cleanup() -> None:
        raise ValueError("nothing to clean")

    report = stopped(app, "cancel")
    assert (report.outcome, len(report.tasks[1].attempts)) == ("CANCELLED", 1)
    assert report.tasks[1].attempts[0].error == "ValueError: nothing to clean"


def test_a_job_that_says_continue_as_a_whole_spares_none_of_its_tasks() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), failure="continue")

    @job.task
    async def work() -> None:
        await asyncio.sleep(3000)

    @job.task
    async def second() -> None: ...

    assert tasks(stopped(app, "cancel")) == {"work": "CANCELLED", "second": "SKIPPED"}


def test_a_sync_clean_up_in_a_thread_has_its_turn_too(tmp_path: Path) -> None:
    app, begun = Horae(f"sqlite:///{tmp_path / 'horae.db'}"), threading.Event()
    job = app.job("a", None)

    @job.task
    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    @job.task(failure="continue")
    def cleanup() -> str:
        return "clean"

    async def main() -> RunReport:
        async with asyncio.timeout(GUARD), app:
            run_id = await app.trigger("a")
            await until(begun.is_set)
            await app.cancel(run_id)
            return await ended(app, run_id)

    report = asyncio.run(main())
    assert (report.outcome, report.tasks[1].result) == ("CANCELLED", "clean")


def test_a_run_that_is_stopped_while_it_prepares_ends_without_its_attempts() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), mode="parallel")

    @app.on_start
    async def slow(run: object) -> None:
        await asyncio.sleep(3000)

    @job.task(failure="continue")
    async def cleanup() -> None: ...

    report = stopped(app, "cancel")
    assert (report.outcome, tasks(report)) == ("CANCELLED", {"cleanup": "CANCELLED"})
