"""Clocks that are wrong: what is due is the catalog's clock's to say, and who is dead is no wall clock's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from tests.store.databases import Databases
from tests.torture.crew import PATIENCE, SETTINGS, define, due_jobs, start_worker
from tests.torture.drivers import opened
from tests.torture.evidence import Snapshot, query

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.node_liveness import RECONNECTION, SILENCE, NodeObservation, ObserverMemory, observe
from horae.core.schedule.schedules import Once
from horae.store.catalog.catalog import Catalog
from horae.testing.clock import ManualClock

SKEW = 3600
SKEWED = """
import datetime, os, time
offset = int(os.environ["HORAE_TORTURE_SKEW"])
real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime
time.time = lambda: real_time() + offset
time.time_ns = lambda: real_time_ns() + offset * 10**9

class Skewed(real_datetime):
    @classmethod
    def now(cls, tz=None):
        return real_datetime.now(tz) + datetime.timedelta(seconds=offset)

    @classmethod
    def utcnow(cls):
        return real_datetime.utcnow() + datetime.timedelta(seconds=offset)

datetime.datetime = Skewed
"""
"""A sitecustomize: Python runs it before anything of ours is imported."""


def test_workers_whose_clocks_are_an_hour_apart_run_what_the_servers_clock_says(
    databases_18: Databases, tmp_path: Path
) -> None:
    url = databases_18.emptied()
    due = due_jobs(40, "due")
    in_half_an_hour = datetime.now(UTC) + timedelta(seconds=SKEW / 2)
    ahead = [JobSpec(f"ahead{index}", Once(in_half_an_hour), (TaskSpec("t"),), SETTINGS) for index in range(20)]
    asyncio.run(define(url, [*due, *ahead]))
    folder = tmp_path / "skewed"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SKEWED)
    began = time.time()
    members = [
        start_worker(url, tmp_path, PYTHONPATH=str(folder), HORAE_TORTURE_SKEW=str(skew), HORAE_TORTURE_SLOTS="2")
        for skew in (0, SKEW, -SKEW)
    ]
    try:
        for member in members:
            assert member.process.wait(PATIENCE) == 0, member.errors()
    finally:
        for member in members:
            member.process.kill()
            member.process.wait(PATIENCE)
    ended = time.time()
    clocks = [float(line[1]) for member in members for line in member.lines() if line[0] == "CLOCK"]
    assert [round((clock - began) / SKEW) for clock in clocks] == [0, 1, -1], "the clocks were not wrong after all"
    Snapshot(url).check()
    ran = query(
        url,
        "SELECT j.job_name, r.state, r.created_at, r.started_at, r.completed_at"
        " FROM sys.job_runs r JOIN sys.jobs j ON j.job_uuid = r.job_uuid",
    )
    assert sorted(row[0] for row in ran) == sorted(spec.name for spec in due)
    assert {row[1] for row in ran} == {"COMPLETED"}
    # Servers and tests share a machine; a second covers the rounding.
    times = [moment for row in ran for moment in row[2:]]
    assert (began - 1) * 1000 <= min(times) <= max(times) <= (ended + 1) * 1000
    beats = [moment for (moment,) in query(url, "SELECT heartbeat_at FROM sys.nodes")]
    assert (began - 1) * 1000 <= min(beats) <= max(beats) <= (ended + 1) * 1000


async def sights(store: Catalog) -> list[NodeObservation]:
    return [NodeObservation(node.node, node.counter, node.lock_free) for node in await store.nodes()]


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
@pytest.mark.parametrize("jump", [timedelta(hours=2), timedelta(hours=-2)])
def test_a_catalogs_clock_that_jumps_declares_nobody_dead_who_still_counts(
    jump: timedelta, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    databases: Databases | None = request.getfixturevalue("databases_18") if where == "postgres" else None
    url = str(tmp_path / "horae.db") if databases is None else databases.emptied()

    async def scenario() -> None:
        clock = ManualClock(datetime.now(UTC))
        alive, silent = uuid4(), uuid4()
        memory = ObserverMemory()
        async with opened(url, clock=clock.now) as store, opened(url, clock=clock.now) as observer:
            await store.join(alive)
            await store.join(silent)
            # The observer's own time goes on by five seconds a look; the catalog's jumps in the middle.
            for look in range(12):
                if look == 3:
                    clock.set(clock.now() + jump)
                assert not (await store.heartbeat(alive, {})).expelled
                memory, dead = observe(memory, await sights(observer), look * 5.0, released=RECONNECTION)
                expected = [(str(silent), 0)] if look * 5.0 >= SILENCE else []
                assert list(dead) == expected, f"at look {look}"
            # Judged dead by a counter that has moved since, a node stays alive.
            assert await observer.take_over(uuid4(), alive, 5) is None
            assert not (await store.heartbeat(alive, {})).expelled

    asyncio.run(scenario())
