"""Stopping: what runs may finish, then it is cancelled, then the engine goes without it; nothing is lost by that."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import ended

from horae import Horae, Run
from horae.events import EngineStopped


def make(tmp_path: Path, **options: Any) -> Horae:
    return Horae(f"sqlite:///{tmp_path / 'horae.db'}", **options)


async def started(app: Horae, run_id: str) -> None:
    async with asyncio.timeout(20):
        while (await app.report(run_id)).outcome != "RUNNING":
            await asyncio.sleep(0.005)


def outcome_after(app: Horae, run_id: str) -> Any:
    async def look() -> Any:
        try:
            return await app.report(run_id)
        finally:
            await app.close()

    return asyncio.run(look())


def test_drain_lets_what_runs_finish_and_starts_nothing_new(tmp_path: Path) -> None:
    app, done = make(tmp_path), list[str]()

    @app.job("a", None, overlap="queue")
    async def work(run: Run) -> None:
        await asyncio.sleep(0.2)
        done.append(run.run_id)

    async def main() -> tuple[str, str]:
        async with app:
            first, second = await app.trigger("a"), await app.trigger("a")
            await started(app, first)
        return first, second

    first, second = asyncio.run(main())
    assert done == [first]
    assert outcome_after(app, first).outcome == "COMPLETED"
    assert outcome_after(app, second).outcome == "PENDING"


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_what_does_not_finish_within_the_grace_is_cancelled_and_goes_back(tmp_path: Path, delivery: str) -> None:
    app, told = make(tmp_path, grace_period="100ms"), list[str]()
    stopped: list[EngineStopped] = []
    app.events.listen(stopped.append, EngineStopped)

    @app.job("a", None, delivery=delivery)
    async def work(run: Run) -> None:
        told.append(f"begun {run.attempt}")
        if run.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            await started(app, run_id)
        return run_id

    run_id = asyncio.run(main())
    assert told == ["begun 1", "cancelled"]
    assert [each.released for each in stopped] == [1]
    report = outcome_after(app, run_id)
    if delivery == "at_most_once":
        assert (report.outcome, report.run.reason) == ("CANCELLED", "released")
        return
    assert report.outcome == "PENDING"

    async def again() -> None:
        async with app:
            report = await ended(app, run_id)
            assert report.outcome == "COMPLETED"
            assert [str(each.state) for each in report.tasks[0].attempts] == ["CANCELLED", "SUCCESS"]

    asyncio.run(again())


def test_shutdown_cancel_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    app = make(tmp_path, grace_period="30s", shutdown="cancel")

    @app.job("a", None)
    async def work() -> None:
        await asyncio.sleep(60)

    async def main() -> tuple[str, float]:
        async with app:
            run_id = await app.trigger("a")
            await started(app, run_id)
            begun = time.monotonic()
        return run_id, time.monotonic() - begun

    run_id, took = asyncio.run(main())
    assert took < 5
    assert outcome_after(app, run_id).outcome == "PENDING"


def test_a_task_that_is_done_with_its_work_when_it_is_cancelled_at_shutdown_counts_as_done(tmp_path: Path) -> None:
    app = make(tmp_path, grace_period="100ms")

    @app.job("a", None)
    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "finished just now"
        return "never"

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            await started(app, run_id)
        return run_id

    assert outcome_after(app, asyncio.run(main())).outcome == "COMPLETED"


def test_force_goes_without_a_thread_that_does_not_stop_and_its_run_goes_back(tmp_path: Path) -> None:
    app = make(tmp_path, grace_period="30s")
    release = threading.Event()

    @app.job("deaf", None)
    def deaf() -> None:
        release.wait(30)

    async def main() -> tuple[str, float]:
        engine = await app.open()
        run_id = await app.trigger("deaf")
        await started(app, run_id)
        begun = time.monotonic()
        stopping = asyncio.create_task(app.shut())
        await asyncio.sleep(0.05)
        engine.force()
        await stopping
        return run_id, time.monotonic() - begun

    run_id, took = asyncio.run(main())
    release.set()
    assert took < 5
    assert outcome_after(app, run_id).outcome == "PENDING"


def test_a_run_that_waits_for_a_retry_is_left_as_it_is(tmp_path: Path) -> None:
    app = make(tmp_path, defaults={"retry": {"max_retries": 1, "interval": "1h"}})

    @app.job("a", None)
    async def work() -> None:
        raise ValueError("once")

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            async with asyncio.timeout(20):
                while not (await app.report(run_id)).tasks or (await app.report(run_id)).outcome != "PENDING":
                    await asyncio.sleep(0.005)
        return run_id

    report = outcome_after(app, asyncio.run(main()))
    assert report.outcome == "PENDING"
    assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED"]


def test_hooks_of_runs_that_end_at_the_last_moment_are_still_called(tmp_path: Path) -> None:
    app, told = make(tmp_path), list[str]()

    @app.on_complete
    async def told_late(report: Any) -> None:
        await asyncio.sleep(0.05)
        told.append(str(report.outcome))

    @app.job("a", None)
    async def work() -> None:
        await asyncio.sleep(0.1)

    async def main() -> None:
        async with app:
            await started(app, await app.trigger("a"))

    asyncio.run(main())
    assert told == ["COMPLETED"]
