"""The tasks of one run: in order or together, and what the failure of one does to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.world import attempts, offsets, only_report, simulate, tasks

from horae import Every, Horae, Retry, Run
from horae.core.report.report import RunReport
from horae.testing.simulation import Simulation


def working(seconds: float, log: list[str], name: str) -> Callable[[], Any]:
    async def work() -> None:
        log.append(f"+{name}")
        await asyncio.sleep(seconds)
        log.append(f"-{name}")

    return work


def failing(seconds: float = 0.0) -> Callable[[], Any]:
    async def work() -> None:
        await asyncio.sleep(seconds)
        raise ValueError("broken")

    return work


def outcome(app: Horae, advance: str = "90m") -> RunReport:
    async def body(sim: Simulation) -> RunReport:
        await sim.advance(advance)
        return await only_report(app)

    return simulate(app, body)


def test_sequential_tasks_run_one_after_the_other_in_the_order_they_were_written() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"))
    for name in ("z", "m", "a"):
        job.task(name=name)(working(60, log, name))
    report = outcome(app)
    assert log == ["+z", "-z", "+m", "-m", "+a", "-a"]
    assert [attempts(task)[0][1] for task in report.tasks] == ["1:00:00", "1:01:00", "1:02:00"]


def test_parallel_tasks_run_together_and_the_run_ends_with_the_last() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), mode="parallel")
    for seconds, name in ((180, "slow"), (60, "quick"), (120, "middle")):
        job.task(name=name)(working(seconds, log, name))
    report = outcome(app)
    assert sorted(log[:3]) == ["+middle", "+quick", "+slow"]
    assert log[3:] == ["-quick", "-middle", "-slow"]
    assert report.duration is not None
    assert report.duration.total_seconds() == 180


def test_fail_fast_cancels_what_runs_beside_and_skips_what_has_not_started() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), mode="parallel", failure="fail_fast")
    job.task(name="bad")(failing(60))
    job.task(name="long")(working(3000, log, "long"))
    report = outcome(app)
    assert report.outcome == "FAILED"
    assert tasks(report) == {"bad": "FAILED", "long": "CANCELLED"}
    assert log == ["+long"]
    assert report.duration is not None
    assert report.duration.total_seconds() == 60


def test_the_report_names_the_task_whose_failure_stopped_one_that_was_running() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), mode="parallel")
    job.task(name="bad")(failing(60))
    job.task(name="long")(working(3000, log, "long"))
    assert [task.cancelled_by for task in outcome(app).tasks] == [None, "bad"]


def test_in_a_sequence_fail_fast_skips_the_rest() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"))
    job.task(name="first")(working(1, log, "first"))
    job.task(name="bad")(failing())
    job.task(name="rest")(working(1, log, "rest"))
    assert tasks(outcome(app)) == {"first": "SUCCESS", "bad": "FAILED", "rest": "SKIPPED"}
    assert log == ["+first", "-first"]


def test_continue_runs_everything_and_the_run_completes_with_errors() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), failure="continue")
    job.task(name="bad")(failing())
    job.task(name="rest")(working(1, log, "rest"))
    report = outcome(app)
    assert (report.outcome, tasks(report)) == ("COMPLETED_WITH_ERRORS", {"bad": "FAILED", "rest": "SUCCESS"})
    assert log == ["+rest", "-rest"]


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_task_set_to_continue_always_gets_its_turn(mode: str) -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), mode=mode)
    job.task(name="bad")(failing(5))
    job.task(name="rest")(working(60, log, "rest"))
    job.task(name="cleanup", failure="continue")(working(60, log, "cleanup"))
    report = outcome(app)
    assert report.outcome == "FAILED"
    assert tasks(report)["cleanup"] == "SUCCESS"
    assert tasks(report)["rest"] == ("SKIPPED" if mode == "sequential" else "CANCELLED")
    assert "-cleanup" in log
    assert "-rest" not in log


def test_a_cleanup_that_fails_too_leaves_the_run_failed_by_the_other() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"))
    job.task(name="bad")(failing())
    job.task(name="cleanup", failure="continue")(failing())
    report = outcome(app)
    assert (report.outcome, report.failed_tasks) == ("FAILED", ("bad", "cleanup"))


def test_cancelling_the_run_gives_a_cleanup_its_turn() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"))
    job.task(name="long")(working(600, log, "long"))
    job.task(name="cleanup", failure="continue")(working(1, log, "cleanup"))

    async def body(sim: Simulation) -> RunReport:
        await sim.advance("61m")
        (run,) = await app.runs()
        await app.cancel(run.run_id)
        await sim.advance("1m")
        return await only_report(app)

    report = simulate(app, body)
    assert (report.outcome, tasks(report)) == ("CANCELLED", {"long": "CANCELLED", "cleanup": "SUCCESS"})
    assert log == ["+long", "+cleanup", "-cleanup"]


def test_under_retry_on_failure_no_sibling_starts_while_a_task_is_retrying() -> None:
    app = Horae("sqlite://")
    calls: list[str] = []
    job = app.job("a", Every("1h"), failure="retry_on_failure", retry=Retry(2, "5m"))

    @job.task
    async def flaky(run: Run) -> None:
        calls.append(f"flaky {run.attempt}")
        if run.attempt < 3:
            raise ValueError("not yet")

    @job.task
    async def later() -> None:
        calls.append("later")

    report = outcome(app)
    assert calls == ["flaky 1", "flaky 2", "flaky 3", "later"]
    assert report.outcome == "COMPLETED"
    assert attempts(report.tasks[1]) == [("SUCCESS", "1:10:00")]


def test_retry_on_failure_ends_as_fail_fast_does_once_the_retries_are_used_up() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("1h"), failure="retry_on_failure", retry=Retry(1, "5m"))
    job.task(name="bad")(failing())
    job.task(name="rest")(working(1, log, "rest"))
    report = outcome(app)
    assert (report.outcome, tasks(report)) == ("FAILED", {"bad": "FAILED", "rest": "SKIPPED"})
    assert report.run.reason == "ValueError: broken (after 2 attempts)"
    assert log == []


def test_in_parallel_one_task_retries_at_its_time_while_another_goes_on_working() -> None:
    app, log = Horae("sqlite://"), list[str]()
    job = app.job("a", Every("2h"), mode="parallel", failure="continue")
    job.task(name="long")(working(1800, log, "long"))

    @job.task(retry=Retry(3, "1m", factor=2.0))
    async def flaky(run: Run) -> None:
        if run.attempt < 4:
            raise ValueError("not yet")

    report = outcome(app, "3h")
    assert report.outcome == "COMPLETED"
    assert attempts(report.tasks[1]) == [
        ("FAILED", "2:00:00"),
        ("FAILED", "2:01:00"),
        ("FAILED", "2:03:00"),
        ("SUCCESS", "2:07:00"),
    ]


def test_different_jobs_at_the_same_time_run_beside_each_other() -> None:
    app, log = Horae("sqlite://"), list[str]()
    for name in ("one", "two", "three"):
        app.job(name, Every("1h"))(working(60, log, name))

    async def body(sim: Simulation) -> list[str]:
        return offsets(await sim.advance("61m"))

    assert simulate(app, body) == ["1:00:00"] * 3
    assert [each[0] for each in log] == ["+", "+", "+", "-", "-", "-"]
