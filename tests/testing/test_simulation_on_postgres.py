"""Simulated time and a server that answers when it likes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.store.databases import Databases

from horae import Every, Horae
from horae.declarative import Scheduler, read_state
from horae.testing import Simulation
from horae.testing.virtual_loop import VirtualLoop

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def impatient(simulation: Simulation) -> Simulation:
    """Time moves as soon as nothing is ready, unless it is held: no answer of a server comes early enough."""
    simulation._loop.patience = 0.0
    return simulation


def test_time_stands_still_while_the_server_answers(databases_18: Databases) -> None:
    app = Horae(databases_18.emptied())

    @app.job("hourly", Every("1h"))
    def hourly() -> None: ...

    async def main() -> None:
        async with impatient(Simulation(app, START)) as sim:
            await sim.advance(0)
            for _ in range(10):
                run = await app.trigger("hourly")
                assert sim.now == START
                await app.jobs()
                await app.get_job("hourly")
                await app.report(run.run_id)
                await app.sql("SELECT job_name, state FROM sys.jobs")
                await app.versions("hourly")
                await app.pause("hourly")
                await app.resume("hourly")
                assert sim.now == START
                await sim.advance(0)
                assert (await app.report(run.run_id)).run.state == "COMPLETED"
            assert sim.now == START
            assert [each.time for each in await sim.advance("2h")] == [START.replace(hour=11), START.replace(hour=12)]

    asyncio.run(main())


def test_what_keeps_connections_makes_no_moments_of_its_own(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[int] = []
    collect = VirtualLoop._collect_due

    def noted(loop: VirtualLoop) -> None:
        moments.append(loop.ticks)
        collect(loop)

    monkeypatch.setattr(VirtualLoop, "_collect_due", noted)
    app = Horae(databases_18.emptied())

    async def main() -> None:
        async with Simulation(app, START) as sim:
            await app.sql("CREATE JOB hourly SCHEDULE = EVERY 1h AS 'SELECT 1'")
            assert len(await app.jobs()) == 1
            assert len(await sim.advance("3h")) == 3

    asyncio.run(main())
    # A pool looks after its connections every minute by the real clock, which would be moments that no other run has.
    assert len(moments) >= 3
    assert [each for each in moments if each % 1000] == []


def test_time_stands_still_while_the_server_takes_registrations_up(databases_18: Databases) -> None:
    scheduler = Scheduler(databases_18.emptied(), tz="UTC")

    async def nothing() -> None: ...

    async def main() -> None:
        async with impatient(Simulation(scheduler, START)) as sim:
            for number in range(10):
                await scheduler.initialize([(f"task {number}", "0 * * * *", nothing, timedelta(0))])
                await read_state(scheduler)
                assert sim.now == START
                await sim.advance(0)
                assert (await read_state(scheduler))[f"task {number}"].lastAttemptAt == START
                await scheduler.stop()
            assert sim.now == START

    asyncio.run(main())
