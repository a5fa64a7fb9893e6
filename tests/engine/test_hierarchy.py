"""Job, run, task run, attempt: how they are named, what a task is told, and what of it survives a crash."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.world import START, after, clock, oldest_first, only_report, only_run, simulate, tasks

from horae import Every, Horae, Retry, Run
from horae.core.job import ids
from horae.testing.simulation import Simulation


def test_every_id_is_derived_from_the_job_s_name_the_slot_the_task_and_the_number_of_the_try() -> None:
    app = Horae("sqlite://")
    seen: list[tuple[str, str, str]] = []

    @app.job("etl", Every("1h"), retry=Retry(1, "1m"))
    async def load(run: Run) -> None:
        seen.append((run.run_id, run.task_run_id, run.attempt_id))
        if run.attempt == 1:
            raise ValueError("once")

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        job = ids.job_uuid("etl")
        occurrence = ids.run_id(job, after("1h"))
        task_run = ids.task_run_id(occurrence, ids.task_uuid(job, "load"))
        tries = [ids.attempt_id(task_run, 1), ids.attempt_id(task_run, 2)]
        assert seen == [(occurrence, task_run, tries[0]), (occurrence, task_run, tries[1])]
        report = await only_report(app)
        assert report.run.run_id == occurrence
        assert [task.task_run_id for task in report.tasks] == [task_run]
        assert [each.attempt_id for each in report.tasks[0].attempts] == tries

    simulate(app, body)


def test_a_task_is_told_the_times_of_its_run_and_when_the_job_ran_before() -> None:
    app = Horae("sqlite://")
    seen: list[dict[str, Any]] = []

    @app.job("a", Every("1h"))
    async def work(run: Run) -> None:
        await asyncio.sleep(60)
        seen.append(
            {
                "scheduled": clock(run.scheduled_time),
                "chosen": clock(run.chosen_time),
                "started": clock(run.started_at),
                "last": clock(run.last_run_time),
            }
        )

    async def body(sim: Simulation) -> None:
        await sim.advance("2h30m")

    simulate(app, body)
    assert seen == [
        {"scheduled": "1:00:00", "chosen": "1:00:00", "started": "1:00:00", "last": None},
        {"scheduled": "2:00:00", "chosen": "2:00:00", "started": "2:00:00", "last": "1:00:00"},
    ]


def test_the_run_before_is_known_after_a_crash_too_and_a_triggered_run_counts() -> None:
    app = Horae("sqlite://")
    last: list[str | None] = []

    @app.job("a", Every("1h"))
    async def work(run: Run) -> None:
        last.append(clock(run.last_run_time))

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        await sim.crash()
        await sim.advance("30m")
        await app.trigger("a")
        await sim.advance("30m")

    simulate(app, body)
    assert last == [None, "1:00:00", "1:30:00"]


def test_settings_cascade_from_the_scheduler_to_the_job_to_the_task_and_the_task_can_read_them() -> None:
    app = Horae("sqlite://", defaults={"task_timeout": "9m", "retry": Retry(1, "1s"), "cancel_grace": "2s"})
    seen: dict[str, tuple[Any, ...]] = {}
    etl = app.job("etl", Every("1h"), retry=Retry(2, "2s"), execution_timeout="30m")

    @etl.task
    async def inherits(run: Run) -> None:
        config = run.config
        seen[run.task_name] = (config.retry.max_retries, config.task_timeout, config.execution_timeout)

    @etl.task(retry=Retry(10, "3s"), failure="continue", task_timeout=None)
    async def overrides(run: Run) -> None:
        config = run.config
        seen[run.task_name] = (config.retry.max_retries, config.task_timeout, config.failure, config.cancel_grace)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    simulate(app, body)
    assert seen == {
        "inherits": (2, timedelta(minutes=9), timedelta(minutes=30)),
        "overrides": (10, None, "continue", timedelta(seconds=2)),
    }


def test_later_tasks_read_what_earlier_ones_returned() -> None:
    app = Horae("sqlite://")
    etl = app.job("etl", Every("1h"))
    seen: list[Any] = []

    @etl.task
    def extract(run: Run) -> Any:
        seen.append(dict(run.results))
        return {"rows": 42}

    @etl.task
    async def transform(run: Run) -> Any:
        seen.append(dict(run.results))
        return [1, None, "ü"]

    @etl.task
    def load(run: Run) -> None:
        seen.append(dict(run.results))

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    simulate(app, body)
    assert seen == [{}, {"extract": {"rows": 42}}, {"extract": {"rows": 42}, "transform": [1, None, "ü"]}]


def test_after_a_crash_finished_tasks_are_not_repeated_and_their_results_are_still_there() -> None:
    app = Horae("sqlite://")
    etl = app.job("etl", Every("1d"))
    calls: list[str] = []
    seen: list[Any] = []

    @etl.task
    async def extract() -> Any:
        calls.append("extract")
        return {"rows": 42}

    @etl.task
    async def load(run: Run) -> None:
        calls.append(f"load {run.attempt}")
        seen.append(run.results["extract"])
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.jump("1d")
        await sim.advance("5m")
        await sim.crash()
        await sim.advance("30m")
        report = await only_report(app)
        assert report.outcome == "COMPLETED"
        assert [str(each.state) for each in report.tasks[1].attempts] == ["LOST", "SUCCESS"]
        assert (await only_run(app)).fence == 2

    simulate(app, body)
    assert calls == ["extract", "load 1", "load 2"]
    assert seen == [{"rows": 42}, {"rows": 42}]


def test_a_run_that_loses_its_worker_too_often_fails_instead_of_killing_them_all() -> None:
    app = Horae("sqlite://")

    @app.job("poison", Every("1d"), max_lost=2)
    async def work() -> None:
        await asyncio.sleep(3600 * 2)

    async def body(sim: Simulation) -> None:
        await sim.jump("1d")
        await sim.crash()
        await sim.advance("1m")
        await sim.crash()
        await sim.advance("10m")
        report = await only_report(app)
        assert (report.outcome, report.run.reason) == ("FAILED", "lost 2 times")

    simulate(app, body)


def test_under_at_most_once_a_lost_run_is_never_tried_again() -> None:
    app = Horae("sqlite://")
    calls: list[int] = []

    @app.job("pay", Every("1d"), delivery="at_most_once")
    async def work(run: Run) -> None:
        calls.append(run.attempt)
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.jump("1d")
        await sim.crash()
        await sim.advance("30m")
        assert (await only_run(app)).state == "FAILED_STALE"

    simulate(app, body)
    assert calls == [1]


@pytest.mark.parametrize("payload", [None, 7, "text", [1, {"a": None}], {"user": 42, "ü": [True, 1.5]}])
def test_a_job_s_payload_reaches_its_task_and_a_trigger_s_own_stands_in_its_place(payload: Any) -> None:
    app = Horae("sqlite://")
    seen: list[Any] = []

    @app.job("a", Every("1h"), payload={"of": "the job"})
    async def work(run: Run) -> None:
        seen.append(run.payload)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        await app.trigger("a", payload)
        await sim.advance("1m")

    simulate(app, body)
    assert seen == [{"of": "the job"}, {"of": "the job"} if payload is None else payload]


def test_a_task_without_an_argument_is_called_without_one_whether_sync_or_async() -> None:
    app = Horae("sqlite://")
    job = app.job("a", Every("1h"), mode="parallel")
    called: list[str] = []

    @job.task
    def plain() -> None:
        called.append("plain")

    @job.task
    async def coroutine() -> None:
        called.append("coroutine")

    @job.task(name="given")
    def named(run: Run) -> None:
        called.append(run.task_name)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert tasks(await only_report(app)) == {"plain": "SUCCESS", "coroutine": "SUCCESS", "given": "SUCCESS"}

    simulate(app, body)
    assert sorted(called) == ["coroutine", "given", "plain"]


def test_the_report_says_when_things_happened_and_how_long_they_took() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work() -> None:
        await asyncio.sleep(90)

    async def body(sim: Simulation) -> None:
        await sim.advance("59m")
        await sim.jump("61s")
        await sim.advance("10m")
        report = await only_report(app)
        assert (report.lag, report.duration) == (timedelta(seconds=1), timedelta(seconds=90))
        assert clock(report.run.started_at) == "1:00:01"
        assert (report.run.version, report.run.origin) == (1, "SCHEDULE")
        (run,) = await oldest_first(app)
        assert run.completed_at == START + timedelta(seconds=3691)

    simulate(app, body)
