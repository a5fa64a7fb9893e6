"""A user with far more due than there are places does not keep others from theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import START, simulate
from tests.store.catalogs import Place, sqlite_place

from horae import Horae, Run
from horae.core.access import Grant, Privilege
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.interval import Every
from horae.testing.clock import ManualClock
from horae.testing.simulation import Simulation

JOBS = 20
SECONDS = 12


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Any = request.getfixturevalue("databases_18")
    return Place("postgres", databases.emptied())


def defined(place: Place, owners: dict[str, int]) -> None:
    """So many jobs of each owner, due every second."""

    async def main() -> None:
        store = place.store(ManualClock(START))
        await store.open()
        try:
            for owner, count in owners.items():
                if owner != "local":
                    await store.create_user(owner)
                    await store.grant([Grant(Privilege.CREATE_JOB)], [owner])
                specs = [
                    JobSpec(f"{owner}-{number}", Every("1s"), (TaskSpec("t", "busy"),), owner=owner)
                    for number in range(count)
                ]
                await store.define(specs, by=owner)
        finally:
            await store.close()

    asyncio.run(main())


def test_runs_of_a_user_that_last_leave_places_to_others_and_go_on_as_places_are_free(place: Place) -> None:
    defined(place, {"ann": JOBS, "local": 1})
    app = Horae(place.url, max_concurrent_jobs=10)
    under_way = [0]

    @app.task("busy")
    async def busy(run: Run) -> None:
        if run.job_name == "local-0":
            return
        under_way[0] += 1
        assert under_way[0] <= 9
        await asyncio.sleep(3.5)
        under_way[0] -= 1

    async def body(sim: Simulation) -> None:
        starts = await sim.advance(f"{SECONDS}s")
        waits = [(each.time - START).total_seconds() % 1 for each in starts if each.job == "local-0"]
        assert (len(waits), max(waits)) == (SECONDS, 0)
        # Nine at a time, as soon as those before have ended.
        assert len([each for each in starts if each.job != "local-0"]) == 9 * 4

    simulate(app, body)


def test_many_jobs_of_a_user_do_not_make_an_administrators_job_skip_or_wait(place: Place) -> None:
    defined(place, {"ann": JOBS, "local": 1})
    app = Horae(place.url, max_concurrent_jobs=4)

    @app.task("busy")
    async def busy() -> None:
        await asyncio.sleep(0.9)

    async def body(sim: Simulation) -> None:
        starts = await sim.advance(f"{SECONDS}s")
        waits = [(each.time - START).total_seconds() % 1 for each in starts if each.job == "local-0"]
        runs = await app.runs(job="local-0", limit=1000)
        assert Counter(str(run.state) for run in runs) == {"COMPLETED": SECONDS - 1, "RUNNING": 1}
        assert max(waits) == 0
        # What it leaves is the other's: four places, a second each.
        others = [each for each in starts if each.job != "local-0"]
        assert len(others) >= 3 * (SECONDS - 1)

    simulate(app, body)
