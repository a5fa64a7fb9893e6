"""Nodes that go: one after the other without anybody noticing, at once when told twice, and without a word."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.store.databases import Databases
from tests.torture.engine_catalog import Evidence, active, connected, prepare
from tests.torture.engine_checker import Checker, Journal, read_log, report
from tests.torture.engine_crew import PATIENCE, Node, end, start_node
from tests.torture.engine_operator import disable_all

from horae import Horae, HoraeError
from horae.core.node_liveness import SILENCE
from horae.errors import StoreUnavailable

ENDLESS = "tests.torture.engine_scenes:endless"
TOO_LONG = f"{PATIENCE + 60:.0f}s"
"""A grace period that nobody waits for."""
STEADY = "tests.torture.engine_scenes:steady"
RELUCTANT = "tests.torture.engine_scenes:reluctantly"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'horae.db'}"
    databases: Databases = request.getfixturevalue("databases_18")
    return databases.fresh()


class Scene:
    """A few nodes on one catalog, and an app to operate it."""

    def __init__(self, url: str, folder: Path, jobs: str, **environment: str) -> None:
        self.url = url
        self.folder = folder
        self.log = folder / "effects.log"
        self.environment = {"HORAE_TORTURE_JOBS": jobs, **environment}
        self.nodes: list[Node] = []
        self.app = Horae(url)

    async def __aenter__(self) -> Scene:
        await self.app.jobs()
        prepare(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        end(self.nodes)
        with suppress(HoraeError):
            await self.app.close()

    async def start(self) -> Node:
        node = start_node(self.url, self.folder, **self.environment)
        self.nodes.append(node)
        await self.until(lambda: node.ready, lambda: node.said)
        return node

    async def until(self, done: Callable[[], bool], otherwise: Callable[[], object]) -> None:
        ends = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < ends, str(otherwise())[-3000:]
            await asyncio.sleep(0.05)

    async def gone(self, node: Node) -> None:
        await self.until(lambda: not node.runs, lambda: node.said)
        assert node.process.returncode == 0, node.said

    async def trigger_all(self) -> int:
        jobs = await self.app.jobs()
        for job in jobs:
            await self.app.trigger(job.name)
        await self.until(lambda: len(read_log(self.log)[0]) == len(jobs), lambda: read_log(self.log))
        return len(jobs)


def test_nodes_that_are_replaced_one_after_the_other_lose_double_and_leave_nothing(url: str, tmp_path: Path) -> None:
    journal = Journal()

    async def scenario() -> None:
        async with Scene(url, tmp_path, STEADY, HORAE_TORTURE_GRACE=TOO_LONG) as scene:
            places = [await scene.start(), await scene.start()]
            for turn in range(4):
                await asyncio.sleep(0.7)
                leaving, places[turn % 2] = places[turn % 2], await scene.start()
                leaving.signal(signal.SIGTERM)
                await scene.gone(leaving)
            await disable_all(scene.app, [job.name for job in await scene.app.jobs()], journal)
            await scene.until(lambda: not active(url), lambda: active(url))
            for node in places:
                node.signal(signal.SIGTERM)
            for node in places:
                await scene.gone(node)

    asyncio.run(scenario())
    evidence = Evidence(url)
    problems = Checker(evidence, tmp_path / "effects.log", journal).check()
    assert not problems, report(problems)
    assert len(evidence.runs) > 300, "hardly anything ran, so hardly anything was shown"
    assert Counter(row.state for row in evidence.attempts.values()).keys() == {"SUCCESS"}
    assert {task.attempts for task in evidence.tasks.values()} == {1}


def test_a_second_signal_ends_a_node_that_is_waiting_for_its_tasks(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Scene(url, tmp_path, ENDLESS, HORAE_TORTURE_GRACE=TOO_LONG) as scene:
            node = await scene.start()
            await scene.trigger_all()
            node.signal(signal.SIGTERM)
            await asyncio.sleep(1.5)
            assert node.runs, f"it did not wait for its tasks: {node.said}"
            node.signal(signal.SIGTERM)
            await scene.gone(node)

    asyncio.run(scenario())
    with connected(url) as run:
        runs = Counter(
            run("SELECT j.job_name LIKE '%most%', r.state FROM sys.job_runs r JOIN sys.jobs j USING (job_uuid)")
        )
        attempts = Counter(run("SELECT state FROM sys.task_attempts"))
        nodes = run("SELECT state FROM sys.nodes")
    assert runs == {(False, "PENDING"): 8, (True, "CANCELLED"): 4}
    assert attempts == {("CANCELLED",): 12}
    # Its threads worked until its process ended, which only another node can see: it takes over by the lock.
    assert nodes == [("ALIVE",)]


def test_a_task_that_ends_well_after_its_run_was_handed_back_has_neither_succeeded_nor_written(
    url: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Scene(url, tmp_path, RELUCTANT, HORAE_TORTURE_GRACE="200ms") as scene:
            node = await scene.start()
            await scene.trigger_all()
            node.signal(signal.SIGTERM)
            await scene.gone(node)

    asyncio.run(scenario())
    evidence = Evidence(url)
    assert [run.state for run in evidence.runs.values()] == ["PENDING"]
    assert [row.state for row in evidence.attempts.values()] == ["CANCELLED"]
    assert evidence.effects == []


def test_the_runs_of_a_node_that_was_killed_are_started_again_within_seconds(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        # The engine's own rhythms, not those of a torture.
        async with Scene(url, tmp_path, ENDLESS, HORAE_TORTURE_SETTINGS=json.dumps({"tee": False})) as scene:
            first = await scene.start()
            await scene.trigger_all()
            await scene.start()
            first.signal(signal.SIGKILL)

            def again() -> bool:
                return sum(attempt == 2 for _, _, attempt in read_log(scene.log)[0]) == 8

            await scene.until(again, lambda: active(url))

    asyncio.run(scenario())
    with connected(url) as run:
        runs = Counter(
            run("SELECT j.job_name LIKE '%most%', r.state FROM sys.job_runs r JOIN sys.jobs j USING (job_uuid)")
        )
        attempts = Counter(run("SELECT attempt_no, state, fence FROM sys.task_attempts"))
        silent = run(
            "SELECT max(a.ended_at) - max(n.heartbeat_at) FROM sys.task_attempts a JOIN sys.nodes n USING (node_uuid)"
            " WHERE a.state = 'LOST'"
        )
    assert runs == {(False, "RUNNING"): 8, (True, "FAILED_STALE"): 4}
    assert attempts == {(1, "LOST", 1): 12, (2, "RUNNING", 2): 8}
    starts, _ = read_log(tmp_path / "effects.log")
    assert max(len(lines) for lines in starts.values()) == 1
    # It was missed by its lock, which takes some ten seconds at most: for its silence alone it is given thirty.
    assert silent[0][0] < SILENCE * 1000


def test_a_store_that_breaks_off_at_the_very_moment_a_node_leaves_does_not_keep_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", settings={"sweep_every": "10ms"})
        app.home.settle_here()
        at_work = asyncio.Event()

        async def sweep(limit: int = 500, **given: Any) -> int:
            """As a driver does that is cancelled, cancels its statement, and finds the connection gone."""
            at_work.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise StoreUnavailable("the server closed the connection unexpectedly") from None
            return 0

        setattr(await app.home.store(), "sweep", sweep)  # noqa: B010 - mypy refuses to assign to a method
        async with asyncio.timeout(PATIENCE), app:
            await at_work.wait()

    asyncio.run(scenario())
