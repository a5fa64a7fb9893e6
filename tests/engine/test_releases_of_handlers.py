"""A release that renames a task's function while a run of the release before waits does not stop the job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import after, oldest_first, shown

from horae import Every, Horae, Queue, Retry, Run, Window
from horae.core.job.definition import JobSpec, TaskSpec
from horae.events import HandlerMissing
from horae.services.doctor.doctor import examine
from horae.services.explain.wait_facts import stuck_now
from horae.testing.simulation import Simulation


async def hand_back(app: Horae, **policies: Any) -> None:
    """The release before: it stops in the middle of the first run."""

    @app.job("nightly", Every("1h"), **policies)
    async def report(run: Run) -> None:
        await asyncio.sleep(1800)

    async with Simulation(app) as sim:
        await sim.advance("1h1m")


@pytest.mark.parametrize("overlap", ["skip", "allow", "coalesce", "replace", Queue()], ids=str)
@pytest.mark.parametrize("window", [None, Window.after("10m")], ids=["at its slot", "in a window"])
@pytest.mark.parametrize("retry", [Retry(0, "1m"), Retry(None, "1m")], ids=["once", "until the next"])
def test_the_job_goes_on_after_the_grace(tmp_path: Path, overlap: Any, window: Window | None, retry: Retry) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    policies = {"overlap": overlap, "window": window, "retry": retry}
    done: list[str] = []

    async def main() -> list[str]:
        await hand_back(Horae(url), **policies)
        app = Horae(url)

        @app.job("nightly", Every("1h"), **policies)
        async def renamed(run: Run) -> None:
            done.append(run.run_id)

        async with Simulation(app, start=after("1h2m")) as sim:
            await sim.advance("4h")
        return [shown(run) for run in await oldest_first(app)]

    states = asyncio.run(main())
    assert len(states) >= 4
    assert "PENDING" not in states[:-1]
    assert states[-2] == "COMPLETED"
    assert len(done) >= 3


def test_until_then_doctor_names_the_run_and_what_becomes_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"

    async def main() -> None:
        await hand_back(Horae(url))
        app = Horae(url)

        @app.job("nightly", Every("1h"))
        async def renamed() -> None: ...

        async with Simulation(app, start=after("1h2m")) as sim:
            await sim.advance("1m")
            assert sim.store is not None
            (found,) = (await examine(sim.store)).findings
            (run,) = await app.runs()
            assert (found.level, found.subject, run.waiting_for) == ("warning", "nightly", "handler")
            assert found.message.startswith(f"{run.run_id} of version 1 waits: no live node has the task")
            assert found.hint == "It goes on under version 2, or ends FAILED, once handler_grace is over."

    asyncio.run(main())


async def park(app: Horae, **policies: Any) -> None:
    """The release before: its first run waits for a retry."""

    @app.job("nightly", Every("1m"), retry=Retry(5, "2h"), **policies)
    async def report(run: Run) -> None:
        raise ValueError("no disk")

    async with Simulation(app) as sim:
        await sim.advance("65s")


@pytest.mark.parametrize("overlap", ["skip", "allow", "coalesce", "replace", Queue(3)], ids=str)
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_run_that_waits_for_a_retry_blocks_its_job_no_longer_than_the_grace(
    tmp_path: Path, overlap: Any, delivery: Any
) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    policies = {"overlap": overlap, "delivery": delivery}

    async def main() -> None:
        await park(Horae(url), **policies)
        app = Horae(url)

        @app.job("nightly", Every("1m"), retry=Retry(5, "2h"), **policies)
        async def renamed(run: Run) -> None: ...

        async with Simulation(app, start=after("70s"), settings={"sweep_every": 10.0}) as sim:
            await sim.advance("4m")
            parked = (await oldest_first(app))[0]
            # A newer run under replace has taken its place already.
            assert (parked.state, parked.version) == ("CANCELLED" if overlap == "replace" else "PENDING", 1)
            await sim.advance("3m")
            parked = (await oldest_first(app))[0]
            if overlap == "replace":
                return
            if delivery == "at_most_once":
                assert (parked.state, parked.reason) == ("FAILED", "handler gone")
                await sim.advance("3m")
                assert (await oldest_first(app))[-1].state == "COMPLETED"
            else:
                assert (parked.state, parked.version, parked.waiting_for) == ("PENDING", 2, "retry")
                await sim.advance("2h")
                assert (await oldest_first(app))[0].state == "COMPLETED"

    asyncio.run(main())


def test_until_then_every_surface_says_that_the_handler_of_a_retry_is_missing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"

    async def main() -> None:
        await park(Horae(url))
        app = Horae(url)
        told: list[HandlerMissing] = []
        app.events.listen(told.append, HandlerMissing)

        @app.job("nightly", Every("1m"), retry=Retry(5, "2h"))
        async def renamed(run: Run) -> None: ...

        async with Simulation(app, start=after("70s")) as sim:
            await sim.advance("2m")
            assert sim.store is not None
            run = (await oldest_first(app))[0]
            missing = 'no live node has the task "'
            assert run.waiting_for == "handler"
            detail = str(run.waiting_detail)
            assert detail.startswith(missing)
            assert "; it also waits for retry: retry 1 at 2026-01-01T02:01:00Z, after ValueError: no disk" in detail
            (found,) = [each for each in (await examine(sim.store)).findings if each.check == "tasks"]
            assert found.message.startswith(f"{run.run_id} of version 1 waits: {missing}")
            assert [each.run_id for each in await stuck_now(sim.store)] == [run.run_id]
            assert 'scheduler_runs_waiting{reason="handler"} 1' in await app.scrape()
            assert [each.job for each in told] == ["nightly"]

    asyncio.run(main())


def test_doctor_names_the_oldest_of_many_runs_of_one_version() -> None:
    app = Horae("sqlite://")

    @app.job("nightly", Every("1h"), overlap=Queue())
    async def present() -> None: ...

    async def main() -> None:
        async with Simulation(app) as sim:
            assert sim.store is not None
            spec = (await app.get_job("nightly")).definition.spec
            await sim.store.define([JobSpec("nightly", Every("1h"), (TaskSpec("old", "old"),), {"overlap": Queue()})])
            await sim.advance("3h1m")
            await sim.store.define([spec])
            oldest = (await oldest_first(app))[0]
            (found,) = [each for each in (await examine(sim.store)).findings if each.check == "tasks"]
            assert found.message == f'{oldest.run_id} and 2 more of version 2 wait: no live node has the task "old"'

    asyncio.run(main())
