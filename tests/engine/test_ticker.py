"""A job's ticker: its methods are the catalog's, and it ticks at every slot."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.engine.world import after, clock, simulate

from horae import Cron, Every, Horae, Once
from horae.app.ticker import Tick
from horae.core.job import ids
from horae.errors import JobNotFound
from horae.testing.simulation import Simulation


def ticking(rhythm: str = "1h") -> Horae:
    app = Horae("sqlite://")

    @app.job("steady", Every(rhythm))
    async def work() -> None:
        await asyncio.sleep(60)

    return app


def test_the_methods_start_stop_pause_and_resume_the_schedule_in_the_catalog() -> None:
    app = ticking()

    async def body(sim: Simulation) -> None:
        ticker = app.ticker("steady")

        async def standing() -> tuple[bool, bool, bool]:
            return await ticker.is_active(), await ticker.is_paused(), await ticker.is_enabled()

        assert await standing() == (True, False, True)
        await ticker.pause(note="wait")
        assert await standing() == (True, True, False)
        await ticker.resume()
        assert await standing() == (True, False, True)
        await ticker.stop()
        assert await standing() == (False, False, False)
        assert await sim.advance("2h") == []
        await ticker.start()
        assert await standing() == (True, False, True)
        assert [clock(each.time) for each in await sim.advance("1h")] == ["3:00:00"]

    simulate(app, body)


def test_it_says_when_the_next_run_is_whether_one_is_under_way_and_which_slots_lie_between() -> None:
    app = ticking()

    async def body(sim: Simulation) -> None:
        ticker = app.ticker("steady")
        assert clock(await ticker.next_run()) == "1:00:00"
        assert not await ticker.is_running()
        await sim.advance("60m30s")
        assert await ticker.is_running()
        slots = await ticker.occurrences_between(after("1h"), after("4h"))
        assert [clock(slot) for slot in slots] == ["2:00:00", "3:00:00", "4:00:00"]

    simulate(app, body)


def test_a_schedule_is_active_between_its_start_and_its_end() -> None:
    app = Horae("sqlite://")

    @app.job("office", Cron("0 * * * *", start=after("2h"), end=after("4h")))
    async def work() -> None: ...

    @app.job("once", Once(after("3h")))
    async def once() -> None: ...

    async def body(sim: Simulation) -> None:
        ticker, single = app.ticker("office"), app.ticker("once")
        assert not await ticker.is_active()
        await sim.advance("2h")
        assert await ticker.is_active()
        assert await single.is_active()
        await sim.advance("2h30m")
        assert not await ticker.is_active()
        assert not await single.is_active()
        assert await ticker.next_run() is None

    simulate(app, body)


async def listen(app: Horae, count: int, ticks: list[Tick], name: str = "steady") -> None:
    async for tick in app.ticker(name):
        ticks.append(tick)
        if len(ticks) == count:
            return


def test_it_ticks_at_every_slot_with_the_run_s_id_and_when_the_job_ran_before() -> None:
    app = ticking("5m")
    ticks: list[Tick] = []

    @app.job("listener", Once(after("1m")), execution_timeout=None)
    async def listener() -> None:
        await listen(app, 3, ticks)

    async def body(sim: Simulation) -> None:
        await sim.advance("20m")

    simulate(app, body)
    assert [clock(tick.scheduled_time) for tick in ticks] == ["0:05:00", "0:10:00", "0:15:00"]
    assert all(tick.now - tick.scheduled_time < timedelta(seconds=1) for tick in ticks)
    assert [clock(tick.last_run_time) for tick in ticks[1:]] == ["0:05:00", "0:10:00"]
    job = ids.job_uuid("steady")
    assert [tick.run_id for tick in ticks] == [ids.run_id(job, tick.scheduled_time) for tick in ticks]


def test_it_is_silent_while_the_job_is_paused() -> None:
    app = ticking("5m")
    ticks: list[Tick] = []

    @app.job("listener", Once(after("1m")), execution_timeout=None)
    async def listener() -> None:
        await listen(app, 2, ticks)

    async def body(sim: Simulation) -> None:
        await sim.advance("7m")
        await app.pause("steady")
        await sim.advance("10m")
        await app.resume("steady")
        await sim.advance("5m")

    simulate(app, body)
    assert [clock(tick.scheduled_time) for tick in ticks] == ["0:05:00", "0:20:00"]


def test_it_ends_with_its_schedule() -> None:
    app = Horae("sqlite://")
    ticks: list[Tick] = []

    @app.job("short", Every("5m", start=after("5m"), end=after("10m")))
    async def work() -> None: ...

    @app.job("listener", Once(after("1m")), execution_timeout=None)
    async def listener() -> str:
        await listen(app, 99, ticks, "short")
        return "over"

    async def body(sim: Simulation) -> None:
        await sim.advance("20m")
        (run,) = await app.runs("listener")
        assert run.state == "COMPLETED"

    simulate(app, body)
    assert [clock(tick.scheduled_time) for tick in ticks] == ["0:05:00", "0:10:00"]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_ticker_of_a_job_that_does_not_exist_or_is_dropped_ends_or_says_so(dropped: bool) -> None:
    app = ticking("5m")
    ended: list[str] = []

    @app.job("listener", Once(after("1m")), execution_timeout=None)
    async def listener() -> None:
        try:
            await listen(app, 99, [], "steady" if dropped else "nobody")
        except JobNotFound:
            ended.append("not found")
        else:
            ended.append("ended")

    async def body(sim: Simulation) -> None:
        await sim.advance("7m")
        if dropped:
            await app.drop("steady")
        await sim.advance("7m")

    simulate(app, body)
    assert ended == ["ended" if dropped else "not found"]
