"""A release that renames a task's function while a run of the release before waits does not stop the job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import after, oldest_first, shown

from horae import Every, Horae, Queue, Retry, Run, Window
from horae.control.doctor import examine
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
