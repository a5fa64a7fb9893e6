"""A ticker that the test itself reads, beside the simulation: it never moves simulated time, and misses no moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae import Every, Horae, Once
from horae.app.ticker import Tick
from horae.errors import Conflict, HoraeError, JobNotFound
from horae.testing import Simulation

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_app(url: str = "sqlite://") -> Horae:
    app = Horae(url)

    @app.job("steady", Every("1h"))
    async def steady() -> None:
        await asyncio.sleep(60)

    return app


def clock(moment: datetime) -> str:
    return f"{moment:%H:%M}"


@asynccontextmanager
async def reading(app: Horae, hear: Callable[[Tick], Awaitable[Any]]) -> AsyncIterator[asyncio.Task[None]]:
    """A task of the test's loop that reads the ticker of the job."""

    async def read() -> None:
        async for tick in app.ticker("steady"):
            await hear(tick)

    task = asyncio.create_task(read())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_a_ticker_that_waits_does_not_move_time() -> None:
    app = make_app()

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                raise AssertionError(f"no time has passed, and it told {tick}")

            async with reading(app, hear) as task:
                # The ticker and these calls take turns: had it any way to move time, it would have used it.
                for _ in range(50):
                    assert await app.runs() == []
                    await asyncio.sleep(0)
                assert not task.done()
                assert sim.now == START
                assert await sim.advance("59m") == []
                assert sim.now == START + timedelta(minutes=59)

    asyncio.run(main())


@pytest.mark.parametrize("seed", [None, 7])
def test_every_slot_of_an_advance_is_told_at_its_own_time_before_advance_returns(seed: int | None) -> None:
    async def heard() -> list[tuple[int, str, str, str, str]]:
        app, told = make_app(), []

        async with Simulation(app, START, seed=seed) as sim:

            def teller(number: int) -> Callable[[Tick], Awaitable[None]]:
                async def hear(tick: Tick) -> None:
                    (run,) = await app.runs(limit=1)
                    assert run.run_id == tick.run_id
                    told.append((number, clock(tick.scheduled_time), clock(tick.now), clock(sim.now), str(run.state)))

                return hear

            async with reading(app, teller(1)), reading(app, teller(2)):
                starts = await sim.advance("3h")
                assert [clock(each.time) for each in starts] == ["01:00", "02:00", "03:00"]
                assert sim.now == START + timedelta(hours=3)
                return told

    times = ["01:00", "02:00", "03:00"]
    told = asyncio.run(heard())
    assert sorted(told) == [(number, time, time, time, "RUNNING") for number in (1, 2) for time in times]
    assert [asyncio.run(heard()) for _ in range(3)] == [told] * 3, "the same way every time"


def test_slots_that_a_jump_passes_are_told_late_and_all_of_them() -> None:
    app = make_app()
    told: list[tuple[str, str]] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append((clock(tick.scheduled_time), clock(tick.now)))

            async with reading(app, hear):
                await sim.jump("3h30m")
                assert told == [("01:00", "03:30"), ("02:00", "03:30"), ("03:00", "03:30")]
                await sim.jump(START + timedelta(hours=4))
                assert told[3:] == [("04:00", "04:00")]

    asyncio.run(main())


def test_slots_that_pass_while_the_clock_is_set_are_told_too() -> None:
    app = make_app()
    told: list[str] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append(clock(tick.scheduled_time))

            async with reading(app, hear):
                await sim.set_clock(START + timedelta(hours=2, minutes=30))
                await sim.advance("30m")

    asyncio.run(main())
    assert told == ["01:00", "02:00", "03:00"]


def test_what_the_reader_does_about_a_tick_happens_before_time_goes_on() -> None:
    app = make_app()
    told: list[str] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append(clock(tick.scheduled_time))
                if len(told) == 2:
                    await app.pause("steady")

            async with reading(app, hear):
                starts = await sim.advance("4h")
                assert [clock(each.time) for each in starts] == ["01:00", "02:00"]
                await app.resume("steady")
                await sim.advance("1h")

    asyncio.run(main())
    assert told == ["01:00", "02:00", "05:00"]


def test_a_reader_that_is_busy_holds_nothing_up_and_loses_no_slot() -> None:
    app = make_app()
    told: list[str] = []

    async def main() -> None:
        go_on = asyncio.Event()
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append(clock(tick.scheduled_time))
                await go_on.wait()

            async with reading(app, hear):
                assert len(await sim.advance("3h")) == 3
                assert told == ["01:00"]
                go_on.set()
                await sim.advance(0)
                assert told == ["01:00", "02:00", "03:00"]

    asyncio.run(main())


def test_a_reader_that_moves_time_itself_gets_its_turn_after_the_others() -> None:
    app = make_app()

    async def main() -> None:
        moved = asyncio.Event()
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                if not moved.is_set():
                    await sim.advance("10m")
                    moved.set()

            async with reading(app, hear):
                await sim.advance("2h")
                await moved.wait()
                assert sim.now == START + timedelta(hours=2, minutes=10)

    asyncio.run(main())


def test_a_task_that_asks_the_app_without_end_does_not_stop_time() -> None:
    app = make_app()

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def ask_until_there_is_a_run() -> None:
                while not await app.runs():
                    pass

            asking = asyncio.create_task(ask_until_there_is_a_run())
            await sim.advance("1h")
            await asking

    asyncio.run(main())


def test_a_reader_that_is_cancelled_leaves_the_simulation_as_it_was() -> None:
    app = make_app()
    told: list[str] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append(clock(tick.scheduled_time))

            async with reading(app, hear):
                await sim.advance("1h")
            assert sim.now == START + timedelta(hours=1)
            assert len(await sim.advance("2h")) == 2
            async with reading(app, hear) as task:
                task.cancel()  # before it has begun
            assert sim.now == START + timedelta(hours=3)

    asyncio.run(main())
    assert told == ["01:00"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_ticker_ends_with_the_simulation(fails: bool) -> None:
    app = make_app()

    async def main() -> list[str]:
        async def read() -> list[str]:
            return [clock(tick.scheduled_time) async for tick in app.ticker("steady")]

        with suppress(HoraeError):
            async with Simulation(app, START) as sim:
                task = asyncio.create_task(read())
                await sim.advance("2h")
                if fails:
                    await app.get_job("nobody")
        return await asyncio.wait_for(task, 60)

    assert asyncio.run(main()) == ["01:00", "02:00"]


def test_a_ticker_goes_on_after_a_crash(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path / 'horae.db'}")
    told: list[str] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:

            async def hear(tick: Tick) -> None:
                told.append(clock(tick.scheduled_time))

            async with reading(app, hear):
                await sim.advance("90m")
                await sim.crash()
                await sim.advance("90m")

    asyncio.run(main())
    assert told == ["01:00", "02:00", "03:00"]


def test_a_ticker_of_a_job_that_does_not_exist_says_so() -> None:
    app = make_app()

    async def main() -> None:
        async with Simulation(app, START):
            with pytest.raises(JobNotFound):
                async for _ in app.ticker("nobody"):
                    pass

    asyncio.run(main())


def test_a_simulated_task_cannot_move_the_time_it_runs_in() -> None:
    app = Horae("sqlite://")
    refused: list[str] = []

    async def main() -> None:
        async with Simulation(app, START) as sim:
            simulation.append(sim)
            await sim.advance("1h")

    simulation: list[Simulation] = []

    @app.job("mover", Once(START + timedelta(minutes=1)))
    async def mover() -> None:
        try:
            await simulation[0].advance("1h")
        except Conflict as error:
            refused.append(str(error))

    asyncio.run(main())
    assert len(refused) == 1
