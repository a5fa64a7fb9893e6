"""on_start and on_complete: called once, with the report; what goes wrong in them touches nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.world import only_run, simulate, tasks

from horae import Every, Horae, Retry, Run
from horae.core.report.report import RunReport
from horae.engine.hooks import HookRegistry
from horae.events import HookFailed
from horae.logs import JsonFormatter, TextFormatter
from horae.testing.simulation import Simulation


def test_sync_and_async_hooks_are_called_once_in_order_around_the_tasks() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    async def before(report: RunReport) -> None:
        told.append(f"start {report.outcome}")

    def done(report: RunReport) -> None:
        told.append(f"complete {report.outcome}")

    @app.on_start
    def app_before() -> None:
        told.append("app start")

    @app.on_complete
    async def app_done(report: RunReport) -> None:
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


def test_hooks_have_ids_of_their_own_whatever_their_jobs_are_called() -> None:
    hooks = HookRegistry()

    def hook(report: RunReport) -> None: ...

    for job in ("a", "a", "a#2", "a#2", "b@c", None, None):
        hooks.on_complete(hook, job)
    assert len(hooks.completing()) == 7


def test_on_complete_is_given_the_whole_report_whatever_the_outcome() -> None:
    app = Horae("sqlite://")
    told: list[RunReport] = []
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

    def bad(report: RunReport) -> None:
        raise RuntimeError(f"bad at {report.outcome}")

    async def bad_too(report: RunReport) -> None:
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
    assert all(type(each) is HookFailed for each in failed)
    assert [each[:3] for each in failed] == [
        ("a", "on_start", "RuntimeError: bad at RUNNING"),
        ("a", "on_complete", "RuntimeError: bad at COMPLETED"),
    ]
    assert told == ["other"]


@pytest.mark.parametrize("error", [SystemExit("out"), KeyboardInterrupt()])
def test_a_hook_that_wants_to_end_the_program_is_only_a_hook_that_fails(error: BaseException) -> None:
    app = Horae("sqlite://")
    failed: list[Any] = []
    app.on_error(failed.append)

    async def bad(report: RunReport) -> None:
        raise error

    @app.job("a", Every("1h"), on_start=bad, on_complete=bad)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        assert [str(run.state) for run in await app.runs()] == ["COMPLETED", "COMPLETED"]

    simulate(app, body)
    assert [each.hook for each in failed] == ["on_start", "on_complete"] * 2


def look_up(report: RunReport) -> None:
    raise AttributeError("no rows in the report") from ValueError("rows were never counted")


async def look_up_later(report: RunReport) -> None:
    look_up(report)


@pytest.mark.parametrize("hook", [look_up, look_up_later])
@pytest.mark.parametrize("which", ["on_start", "on_complete"])
def test_a_hook_that_fails_is_logged_with_its_name_and_where_it_failed(
    which: str, hook: Callable[[RunReport], Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = Horae("sqlite://")
    hooks: dict[str, Any] = {which: hook}

    @app.job("sup", Every("1h"), **hooks)
    async def work() -> None: ...

    async def body(sim: Simulation) -> str:
        await sim.advance("1h")
        return (await only_run(app)).run_id

    with caplog.at_level(logging.WARNING, "horae"):
        run_id = simulate(app, body)
    (record,) = caplog.records
    said = f"{which} of sup failed in {__name__}.{hook.__name__}: AttributeError: no rows in the report ({run_id})"
    assert (record.getMessage(), record.levelname) == (said, "WARNING")
    assert record.exc_info is not None
    assert record.exc_info[0] is AttributeError
    text, line = TextFormatter().format(record), json.loads(JsonFormatter().format(record))
    assert "\n    Traceback (most recent call last):" in text
    for where in (text, line["exception"]):
        assert "in look_up\n" in where
        assert "ValueError: rows were never counted" in where
        assert "/horae/engine/" not in where
    assert line["fields"] == {
        "job": "sup",
        "hook": which,
        "error": "AttributeError: no rows in the report",
        "function": f"{__name__}.{hook.__name__}",
        "run_id": run_id,
    }


def test_a_password_in_the_error_of_a_hook_is_taken_out_and_the_exception_is_kept_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Horae("sqlite://")

    def bad() -> None:
        raise RuntimeError("no way to postgresql://horae:geheim@db/shop")

    @app.job("a", Every("1h"), on_complete=bad)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    with caplog.at_level(logging.WARNING, "horae"):
        simulate(app, body)
    (record,) = caplog.records
    assert record.exc_info is None
    assert "RuntimeError" in (record.exc_text or "")
    told = f"{record.__dict__}{TextFormatter().format(record)}{JsonFormatter().format(record)}"
    assert "geheim" not in told
    assert "postgresql://horae:…@db/shop" in told


def test_a_hook_that_raises_stop_iteration_is_a_hook_that_fails_and_holds_nothing_up() -> None:
    app = Horae("sqlite://")
    failed: list[Any] = []
    app.on_error(failed.append)

    def bad() -> None:
        next(iter(()))

    @app.job("a", Every("1h"), on_start=bad)
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body)
    assert [each.error for each in failed] == ["RuntimeError: StopIteration: "]
    assert "in bad\n" in failed[0].traceback


def test_an_on_error_hook_that_fails_is_logged_under_its_own_name_with_where_it_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Horae("sqlite://")

    @app.on_error
    def tell(event: Any) -> None:
        raise RuntimeError("no way to postgresql://horae:geheim@db/shop")

    @app.job("a", Every("1h"))
    async def work() -> None:
        raise ValueError("bad")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    with caplog.at_level(logging.ERROR, "horae"):
        simulate(app, body)
    (record,) = [each for each in caplog.records if each.name == "horae"]
    assert record.getMessage().startswith(f"listener {tell.__module__}.{tell.__qualname__} failed at AttemptEnded")
    for text in (TextFormatter().format(record), JsonFormatter().format(record)):
        assert "in tell" in text
        assert "geheim" not in text
    assert record.exc_info is None


def test_the_first_task_waits_for_on_start_but_nothing_waits_for_on_complete() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(120)
        told.append("prepared")

    async def slow(report: RunReport) -> None:
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
    told: list[RunReport] = []

    @app.job("a", Every("1h"), on_complete=told.append)
    async def work() -> None:
        await asyncio.sleep(1000)

    async def body(sim: Simulation) -> None:
        await sim.advance("61m")
        await app.cancel((await only_run(app)).run_id)
        await sim.advance("1m")

    simulate(app, body)
    assert [(str(each.outcome), each.run.reason) for each in told] == [("CANCELLED", "cancelled")]
