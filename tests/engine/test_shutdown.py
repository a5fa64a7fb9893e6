"""Stopping: what runs may finish, then it is cancelled, then the engine goes without it; nothing is lost by that."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import GUARD, ended, until

from horae import Horae, Run
from horae.app.stores import make_store
from horae.events import Draining, EngineStopped, RunParked


def make(tmp_path: Path, **options: Any) -> Horae:
    return Horae(f"sqlite:///{tmp_path / 'horae.db'}", **options)


async def stopping(app: Horae) -> asyncio.Task[None]:
    """The app's shutdown, begun: it takes on nothing new any more."""
    engine = app.engine
    assert engine is not None
    task = asyncio.create_task(app.shut())
    await until(lambda: engine.claimer.draining)
    return task


def outcome_after(app: Horae, run_id: str) -> Any:
    async def look() -> Any:
        try:
            return await app.report(run_id)
        finally:
            await app.close()

    return asyncio.run(look())


def test_drain_lets_what_runs_finish_and_starts_nothing_new(tmp_path: Path) -> None:
    app, done = make(tmp_path), list[str]()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job("a", None, overlap="queue")
    async def work(run: Run) -> None:
        begun.set()
        await go_on.wait()
        done.append(run.run_id)

    told: list[Draining] = []
    app.events.listen(told.append, Draining)

    async def main() -> tuple[str, str]:
        await app.open()
        first, second = await app.trigger("a"), await app.trigger("a")
        await begun.wait()
        shutdown = await stopping(app)
        go_on.set()
        await shutdown
        return first, second

    first, second = asyncio.run(main())
    assert done == [first]
    assert [(each.count, each.runs, each.seconds) for each in told] == [(1, f"a ({first})", 30.0)], "what it waits for"
    assert outcome_after(app, first).outcome == "COMPLETED"
    assert outcome_after(app, second).outcome == "PENDING"


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_what_does_not_finish_within_the_grace_is_cancelled_and_goes_back(tmp_path: Path, delivery: str) -> None:
    app, told = make(tmp_path, grace_period="100ms"), list[str]()
    stopped: list[EngineStopped] = []
    app.events.listen(stopped.append, EngineStopped)
    begun = asyncio.Event()

    @app.job("a", None, delivery=delivery)
    async def work(run: Run) -> None:
        told.append(f"begun {run.attempt}")
        begun.set()
        if run.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("cancelled")
                raise

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            await begun.wait()
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
    app = make(tmp_path, grace_period="1h", shutdown="cancel")
    begun = asyncio.Event()

    @app.job("a", None)
    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> str:
        async with asyncio.timeout(GUARD), app:
            run_id = await app.trigger("a")
            await begun.wait()
        return run_id

    assert outcome_after(app, asyncio.run(main())).outcome == "PENDING"


def test_a_task_that_is_done_with_its_work_when_it_is_cancelled_at_shutdown_counts_as_done(tmp_path: Path) -> None:
    app, begun = make(tmp_path, grace_period="100ms"), asyncio.Event()

    @app.job("a", None)
    async def work(run: Run) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            run.done()
            return "finished just now"
        return "never"

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            await begun.wait()
        return run_id

    assert outcome_after(app, asyncio.run(main())).outcome == "COMPLETED"


def test_force_goes_without_a_thread_that_does_not_stop_and_its_run_goes_back(tmp_path: Path) -> None:
    app = make(tmp_path, grace_period="1h")
    begun, release = threading.Event(), threading.Event()

    @app.job("deaf", None)
    def deaf() -> None:
        begun.set()
        release.wait()

    async def main() -> str:
        engine = await app.open()
        run_id = await app.trigger("deaf")
        await until(begun.is_set)
        shutdown = await stopping(app)
        assert not shutdown.done()
        engine.force()
        async with asyncio.timeout(GUARD):
            await shutdown
        return run_id

    try:
        run_id = asyncio.run(main())
        assert threads_after(app) == [(run_id, "ALIVE")], "it counts until its process is gone"
    finally:
        release.set()
    assert outcome_after(app, run_id).outcome == "PENDING"


def threads_after(app: Horae) -> list[tuple[str, str]]:
    """The runs that threads work on as the catalog has it, and the state of all nodes there."""

    async def main() -> list[tuple[str, str]]:
        store = make_store(app.url)
        await store.open()
        try:
            [node] = await store.nodes()
            return [(thread.run_id, str(node.state)) for thread in await store.threads()]
        finally:
            await store.close()

    return asyncio.run(main())


def test_a_run_that_waits_for_a_retry_is_left_as_it_is(tmp_path: Path) -> None:
    app, parked = make(tmp_path, defaults={"retry": {"max_retries": 1, "interval": "1h"}}), asyncio.Event()
    app.events.listen(lambda event: parked.set(), RunParked)

    @app.job("a", None)
    async def work() -> None:
        raise ValueError("once")

    async def main() -> str:
        async with app:
            run_id = await app.trigger("a")
            async with asyncio.timeout(GUARD):
                await parked.wait()
        return run_id

    report = outcome_after(app, asyncio.run(main()))
    assert report.outcome == "PENDING"
    assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED"]


def test_hooks_of_runs_that_end_at_the_last_moment_are_still_called(tmp_path: Path) -> None:
    app, told = make(tmp_path), list[str]()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.on_complete
    async def told_late(report: Any) -> None:
        await asyncio.sleep(0.05)
        told.append(str(report.outcome))

    @app.job("a", None)
    async def work() -> None:
        begun.set()
        await go_on.wait()

    async def main() -> None:
        await app.open()
        await app.trigger("a")
        await begun.wait()
        shutdown = await stopping(app)
        go_on.set()
        await shutdown

    asyncio.run(main())
    assert told == ["COMPLETED"]
