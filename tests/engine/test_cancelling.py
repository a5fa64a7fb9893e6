"""Cancelling: tasks in the loop, in a thread, runs that wait, and what ignores it."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from tests.engine.world import GUARD, attempts, clock, ended, only_report, only_run, simulate, states, tasks

from horae import Every, Horae, Run, Window
from horae.core.job import ids
from horae.errors import InvalidIdentifier, RunNotFound
from horae.events import RunAbandoned
from horae.testing.simulation import Simulation


def test_an_async_task_is_cancelled_where_it_waits_and_may_clean_up() -> None:
    app = Horae("sqlite://")
    told: list[str] = []

    @app.job("a", Every("1h"))
    async def work(run: Run) -> None:
        try:
            await asyncio.sleep(3000)
        except asyncio.CancelledError:
            told.append(f"cancelled {run.cancelled}")
            await asyncio.sleep(5)
            told.append("cleaned up")
            raise

    async def body(sim: Simulation) -> None:
        await sim.advance("65m")
        run = await only_run(app)
        assert await app.cancel(run.run_id) == "RUNNING"
        await sim.advance("1m")
        report = await only_report(app)
        assert (report.outcome, report.run.reason, report.run.cancelled_by) == ("CANCELLED", "cancelled", "local")
        assert (tasks(report), clock(report.run.completed_at)) == ({"work": "CANCELLED"}, "1:05:05")

    simulate(app, body)
    assert told == ["cancelled True", "cleaned up"]


def test_a_task_that_finishes_although_it_was_asked_to_stop_and_says_so_has_finished() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work(run: Run) -> str:
        try:
            await asyncio.sleep(3000)
        except asyncio.CancelledError:
            run.done()
            return "done all the same"
        return "undisturbed"

    async def body(sim: Simulation) -> None:
        await sim.advance("65m")
        await app.cancel((await only_run(app)).run_id)
        await sim.advance("1m")
        report = await only_report(app)
        assert (report.outcome, tasks(report)) == ("COMPLETED", {"work": "SUCCESS"})

    simulate(app, body)


def test_a_task_that_answers_its_cancellation_by_an_error_is_cancelled_and_not_retried() -> None:
    app = Horae("sqlite://", defaults={"retry": {"max_retries": 3, "interval": "1s"}})

    @app.job("a", Every("1h"))
    async def work() -> None:
        try:
            await asyncio.sleep(3000)
        except asyncio.CancelledError:
            raise ValueError("could not roll back") from None

    async def body(sim: Simulation) -> None:
        await sim.advance("65m")
        await app.cancel((await only_run(app)).run_id)
        await sim.advance("1m")
        report = await only_report(app)
        assert (report.outcome, len(report.tasks[0].attempts)) == ("CANCELLED", 1)
        assert report.tasks[0].attempts[0].error == "ValueError: could not roll back"

    simulate(app, body)


def test_a_sync_task_sees_run_cancelled_in_its_thread(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    started, seen = threading.Event(), list[bool]()

    @app.job("a", None)
    def work(run: Run) -> None:
        seen.append(run.cancelled)
        started.set()
        ends = time.monotonic() + GUARD
        while time.monotonic() < ends:
            if run.cancelled:
                seen.append(True)
                raise InterruptedError("asked to stop")
            time.sleep(0.01)

    async def main() -> None:
        async with app:
            run_id = await app.trigger("a")
            assert await asyncio.to_thread(started.wait, GUARD)
            assert await app.cancel(run_id) == "RUNNING"
            assert (await ended(app, run_id)).outcome == "CANCELLED"

    asyncio.run(main())
    assert seen == [False, True]


def test_a_run_that_has_not_started_is_cancelled_at_once_and_never_starts() -> None:
    app = Horae("sqlite://")

    @app.job("windowed", Every("1d"), window=Window.around("4h"))
    async def work() -> None: ...

    @app.job("blocked", Every("1d"), overlap="queue")
    async def blocked() -> None:
        await asyncio.sleep(100)

    async def body(sim: Simulation) -> None:
        await sim.advance("22h1m")
        waiting = await only_run(app, "windowed")
        assert (waiting.state, waiting.waiting_for) == ("PENDING", "window")
        assert await app.cancel(waiting.run_id) == "CANCELLED"
        first, second = await app.trigger("blocked"), await app.trigger("blocked")
        await sim.advance("10s")
        assert await app.cancel(second) == "CANCELLED"
        starts = await sim.advance("10h")
        assert [each.job for each in starts] == ["blocked"]
        assert await states(app, "windowed") == ["CANCELLED (cancelled)"]
        assert (await app.report(first)).outcome == "COMPLETED"

    simulate(app, body)


def test_cancelling_what_has_ended_changes_nothing_and_says_how_it_ended() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        run = await only_run(app)
        assert await app.cancel(run.run_id) == "COMPLETED"
        assert await only_run(app) == run

    simulate(app, body)


def test_a_task_that_ignores_everything_is_given_up_after_its_grace_and_the_run_ends_cancelled() -> None:
    app = Horae("sqlite://")
    abandoned: list[RunAbandoned] = []
    app.events.listen(abandoned.append, RunAbandoned)

    @app.job("deaf", Every("1d"), cancel_grace="20s")
    async def deaf() -> None:
        ends = asyncio.get_running_loop().time() + 900
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def body(sim: Simulation) -> None:
        await sim.advance("24h1m")
        await app.cancel((await only_run(app)).run_id)
        await sim.advance("5m")
        report = await only_report(app)
        assert (report.outcome, clock(report.run.completed_at)) == ("CANCELLED", "1 day, 0:01:20")
        assert attempts(report.tasks[0])[0][0] == "CANCELLED"
        await sim.advance("1h")

    simulate(app, body)
    assert [each.task for each in abandoned] == ["deaf"]


def test_a_cancelled_run_is_not_taken_up_again_after_a_crash() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1d"))
    async def work() -> None:
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.advance("24h1m")
        await app.cancel((await only_run(app)).run_id)
        await sim.crash()
        assert await sim.advance("1h") == []
        assert await states(app) == ["CANCELLED (cancelled)"]

    simulate(app, body)


def test_a_task_cancelled_by_nobody_has_failed() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work() -> None:
        raise asyncio.CancelledError

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        assert report.outcome == "FAILED"
        assert "by nobody" in (report.tasks[0].attempts[0].error or "")

    simulate(app, body)


def test_an_id_of_another_kind_or_of_no_run_is_refused() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        unknown = ids.run_id(ids.job_uuid("nobody"), sim.now)
        with pytest.raises(RunNotFound):
            await app.cancel(unknown)
        with pytest.raises(InvalidIdentifier, match="is a task run id"):
            await app.cancel(report.tasks[0].task_run_id)
        with pytest.raises(InvalidIdentifier, match="is a run id"):
            await app.output(report.run.run_id)

    simulate(app, body)
