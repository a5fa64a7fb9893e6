"""A thread that outlives its attempt counts as under way for its job: no second copy starts beside it unasked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.engine import process_tasks
from tests.engine.world import GUARD, ended, expire, simulate, states, until

from horae import Every, Horae, Retry, Run
from horae.engine.engine import Engine
from horae.events import NodeExpelled
from horae.services.doctor.doctor import examine
from horae.testing.simulation import Simulation


class Deaf:
    """A sync task that ignores every stop: it works until it is let go, and counts how many copies work at once."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self.go_on = threading.Event()

    def work(self, run: Run) -> str:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.begun.append(f"{run.run_id} {run.attempt}")
        try:
            self.go_on.wait(GUARD)
        finally:
            with self._lock:
                self._now -= 1
        return "whole"


@pytest.fixture
def deaf() -> Any:
    task = Deaf()
    yield task
    task.go_on.set()


def make(tmp_path: Path, deaf: Deaf, **policies: Any) -> Horae:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", node="north")
    app.job("a", None, task_timeout="1h", cancel_grace="30ms", **policies)(deaf.work)
    return app


@asynccontextmanager
async def opened(app: Horae, deaf: Deaf) -> AsyncIterator[Engine]:
    """While it is open, the time of the first copy is over as soon as that has begun."""
    engine = await app.open()
    first = asyncio.create_task(out_of_time(engine, deaf))
    try:
        yield engine
    finally:
        first.cancel()
        deaf.go_on.set()
        await app.shut()


async def out_of_time(engine: Engine, deaf: Deaf) -> None:
    await until(lambda: bool(deaf.begun))
    expire(engine)


async def no_threads(app: Horae) -> None:
    async with asyncio.timeout(GUARD):
        while await threads(app):
            await asyncio.sleep(0.005)


async def threads(app: Horae) -> list[str]:
    return [each.task_name for each in await app.home.call(lambda kept: kept.threads())]


async def waiting(app: Horae, run_id: str) -> tuple[str | None, str]:
    (run,) = [run for run in await app.runs(job="a") if run.run_id == run_id]
    return run.waiting_for, run.waiting_detail or ""


def test_skip_holds_past_a_timeout_until_the_thread_ends(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf, overlap="skip")

    async def main() -> None:
        async with opened(app, deaf):
            first = await app.trigger("a")
            assert (await ended(app, first)).tasks[0].state == "TIMEOUT"
            for _ in range(3):
                report = await app.report(await app.trigger("a"))
                assert report.outcome == "SKIPPED"
                assert report.run.reason == f"thread of run {first} still working on node north"
            deaf.go_on.set()
            await no_threads(app)
            assert (await ended(app, await app.trigger("a"))).outcome == "COMPLETED"

    asyncio.run(main())
    assert (deaf.most, len(deaf.begun)) == (1, 2)


def test_a_retry_waits_for_the_thread_and_says_so(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf, overlap="skip", retry=Retry(1, "0s"))

    async def main() -> None:
        async with opened(app, deaf):
            run_id = await app.trigger("a")
            async with asyncio.timeout(GUARD):
                while not await threads(app):
                    await asyncio.sleep(0.005)
            reason, detail = await waiting(app, run_id)
            assert reason == "previous_run"
            assert f"thread of run {run_id} still working on node north" in detail
            deaf.go_on.set()
            report = await ended(app, run_id)
            assert [str(each.state) for each in report.tasks[0].attempts] == ["TIMEOUT", "SUCCESS"]

    asyncio.run(main())
    assert deaf.most == 1


def test_a_retry_beside_a_sibling_that_runs_waits_for_the_thread_too(tmp_path: Path, deaf: Deaf) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    job = app.job("a", None, mode="parallel", retry=Retry(1, "0s"), cancel_grace="30ms")
    sibling = threading.Event()

    @job.task(task_timeout="1h")
    def first(run: Run) -> str:
        return deaf.work(run)

    @job.task
    def second() -> None:
        sibling.wait(GUARD)

    async def main() -> None:
        async with opened(app, deaf) as engine:
            run_id = await app.trigger("a")
            await until(lambda: engine.ledger.leftovers == 1)
            async with asyncio.timeout(GUARD):
                while not await threads(app):
                    await asyncio.sleep(0.005)
            assert len(deaf.begun) == 1
            deaf.go_on.set()
            await until(lambda: len(deaf.begun) == 2)
            sibling.set()
            assert (await ended(app, run_id)).outcome == "COMPLETED"

    try:
        asyncio.run(main())
    finally:
        sibling.set()
    assert deaf.most == 1


def test_a_queued_run_starts_when_the_thread_has_ended(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf, overlap="queue")

    async def main() -> None:
        async with opened(app, deaf):
            await ended(app, await app.trigger("a"))
            second = await app.trigger("a")
            reason, detail = await waiting(app, second)
            assert (reason, "still working on node north" in detail) == ("previous_run", True)
            deaf.go_on.set()
            assert (await ended(app, second)).outcome == "COMPLETED"

    asyncio.run(main())
    assert deaf.most == 1


def test_replace_starts_beside_a_thread_that_does_not_stop(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf, overlap="replace")

    async def main() -> None:
        async with opened(app, deaf):
            await ended(app, await app.trigger("a"))
            await app.trigger("a")
            await until(lambda: len(deaf.begun) == 2)

    asyncio.run(main())
    assert deaf.most == 2


@pytest.mark.parametrize("how", ["cancel", "execution timeout"])
def test_a_thread_that_ignores_a_cancel_or_the_runs_timeout_counts_too(tmp_path: Path, deaf: Deaf, how: str) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    limit = "1h" if how == "execution timeout" else None
    app.job("a", None, overlap="skip", cancel_grace="30ms", execution_timeout=limit)(deaf.work)

    async def main() -> None:
        async with opened(app, deaf):
            first = await app.trigger("a")
            await until(lambda: len(deaf.begun) == 1)
            if how == "cancel":
                await app.cancel(first)
            assert (await ended(app, first)).outcome == "CANCELLED"
            report = await app.report(await app.trigger("a"))
            assert f"thread of run {first} still working" in (report.run.reason or "")

    asyncio.run(main())


def test_a_process_that_is_killed_leaves_no_thread_behind(tmp_path: Path) -> None:
    app, file = Horae(f"sqlite:///{tmp_path / 'horae.db'}"), tmp_path / "told"
    app.job("a", None, isolation="process", task_timeout="30ms", cancel_grace="30ms", payload={"file": str(file)})(
        process_tasks.hang
    )

    async def main() -> None:
        async with app:
            await ended(app, await app.trigger("a"))
            assert await threads(app) == []

    asyncio.run(main())


def test_a_node_that_stops_leaves_no_marker_and_its_run_goes_on_elsewhere(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf, retry=Retry(1, "0s"))

    async def first() -> str:
        engine = await app.open()
        run_id = await app.trigger("a")
        await out_of_time(engine, deaf)
        await until(lambda: engine.ledger.leftovers == 1)
        await app.shut()
        return run_id

    async def second(run_id: str) -> None:
        async with app:
            assert await threads(app) == []
            assert (await ended(app, run_id)).outcome == "COMPLETED"

    run_id = asyncio.run(first())
    deaf.go_on.set()
    asyncio.run(second(run_id))


def test_a_node_that_was_taken_for_dead_and_lives_keeps_its_threads_from_a_second_copy(
    tmp_path: Path, deaf: Deaf
) -> None:
    settings = {"heartbeat": "50ms", "take_over_after": "1h"}
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", node="north", settings=settings)
    app.job("a", None, overlap="skip", cancel_grace="30ms")(deaf.work)
    expelled: list[str] = []
    app.events.listen(lambda event: expelled.append(event.node), NodeExpelled)

    async def taken_for_dead(node: str) -> None:
        """Another node, wrong about it, is faster than the next heartbeat."""

        async def bury(kept: Any) -> int | None:
            (record,) = [each for each in await kept.nodes() if each.node == node]
            taken: int | None = await kept.take_over(uuid4(), UUID(node), record.counter)
            return taken

        async with asyncio.timeout(GUARD):
            while await app.home.call(bury) is None:
                await asyncio.sleep(0)

    async def main() -> None:
        async with opened(app, deaf) as engine:
            run_id = await app.trigger("a")
            await until(lambda: bool(deaf.begun))
            before = str(engine.node)
            await taken_for_dead(before)
            await until(lambda: expelled == [before] and str(engine.node) != before)
            async with asyncio.timeout(GUARD):
                while not await threads(app):
                    await asyncio.sleep(0.005)
            reason, detail = await waiting(app, run_id)
            assert (reason, len(deaf.begun)) == ("previous_run", 1)
            assert f"thread of run {run_id} still working on node north" in detail
            deaf.go_on.set()
            assert (await ended(app, run_id)).outcome == "COMPLETED"
            await no_threads(app)

    asyncio.run(main())
    assert (deaf.most, len(deaf.begun)) == (1, 2)


@pytest.mark.parametrize("limit", ["pool", "max_concurrent"])
def test_a_run_that_finds_no_room_because_of_a_thread_says_so(tmp_path: Path, deaf: Deaf, limit: str) -> None:
    policies: dict[str, Any] = {"pool": "one"} if limit == "pool" else {"max_concurrent": 1}
    app = make(tmp_path, deaf, overlap="allow", **policies)
    app.pool("one", 1)

    async def main() -> None:
        async with opened(app, deaf):
            first = await app.trigger("a")
            await ended(app, first)
            second = await app.trigger("a")
            reason, detail = await waiting(app, second)
            assert reason == ("pool" if limit == "pool" else "capacity")
            assert f"thread of run {first} still working on node north" in detail
            deaf.go_on.set()
            assert (await ended(app, second)).outcome == "COMPLETED"

    asyncio.run(main())
    assert deaf.most == 1


def test_doctor_names_the_thread_and_suggests_a_process(tmp_path: Path, deaf: Deaf) -> None:
    app = make(tmp_path, deaf)

    async def main() -> None:
        async with opened(app, deaf):
            run_id = await app.trigger("a")
            await ended(app, run_id)
            found = await app.home.call(examine)
            (finding,) = [each for each in found.findings if each.check == "running"]
            assert (finding.level, finding.subject) == ("warning", "a")
            assert run_id in finding.message
            assert "node north" in finding.message
            assert 'isolation="process"' in finding.hint

    asyncio.run(main())


def test_on_simulated_time_slots_are_skipped_for_as_long_as_a_deaf_task_works() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1m"), task_timeout="10s", cancel_grace="5s", execution_timeout=None)
    async def work(run: Run) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + (200 if run.scheduled_time.minute == 1 else 1)
        while (left := ends - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def body(sim: Simulation) -> None:
        await sim.advance("6m")
        told = await states(app)
        assert [each.partition(" ")[0] for each in told] == [
            "FAILED",
            "SKIPPED",
            "SKIPPED",
            "SKIPPED",
            "COMPLETED",
            "RUNNING",
        ]
        assert all("still working" in each for each in told[1:4])

    simulate(app, body)


def test_a_crash_ends_the_threads_of_its_node() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1m"), task_timeout="10s", cancel_grace="5s")
    async def work(run: Run) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + (200 if run.scheduled_time.minute == 1 else 1)
        while (left := ends - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def body(sim: Simulation) -> None:
        await sim.advance("1m30s")
        await sim.crash()
        await sim.advance("2m")
        assert (await states(app))[-1] == "COMPLETED"
        await sim.advance("2m")  # what is left of the task in this process ends

    simulate(app, body)
