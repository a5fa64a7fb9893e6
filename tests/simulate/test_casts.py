"""Who is rehearsed: jobs of a catalog with their past, of files, and of files over a catalog; nothing is touched."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.simulate.acting import START, part

from horae import Cron, Horae, Run
from horae.errors import NotFound
from horae.simulate.jobs import JobHistory, SimulatedJobs, jobs_of_catalog, jobs_of_targets
from horae.simulate.overlay import overlay
from horae.testing.simulation import Simulation

LIVED = datetime(2027, 2, 1, tzinfo=UTC)
FILE = """
[defaults]
overlap = "queue"

[pools]
narrow = 2

[jobs.hourly]
cron = "30 * * * *"
sql = "SELECT 1"

[jobs.fresh]
cron = "0 * * * *"
pool = "narrow"
command = "/bin/false"
"""


def lived(url: str) -> None:
    """A catalog with a day of history: `hourly` takes 90 s, `shaky` fails every second time after 30 s."""
    app = Horae(url, defaults={"misfire_grace": "5m"})
    app.pool("wide", 7)

    @app.job("hourly", Cron("0 * * * *"), pool="wide", deadline="10m")
    async def hourly() -> None:
        await asyncio.sleep(90)

    @app.job("shaky", Cron("0 * * * *"))
    async def shaky(run: Run) -> None:
        await asyncio.sleep(30)
        if run.scheduled_time.hour % 2:
            raise ValueError("every second time")

    async def day() -> None:
        async with Simulation(app, LIVED) as simulation:
            await simulation.advance("24h30m")
            await app.pause("shaky", LIVED + timedelta(days=2))
        await app.close()

    asyncio.run(day())


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lived") / "horae.db"
    lived(f"sqlite:///{path}")
    return path


def cast_of(path: Path) -> SimulatedJobs:
    async def asked() -> SimulatedJobs:
        app = Horae(f"sqlite:///{path}")
        try:
            return await app.serve(jobs_of_catalog)
        finally:
            await app.close()

    return asyncio.run(asked())


def rows(path: Path) -> list[Any]:
    """All that a catalog has, table by table."""
    with sqlite3.connect(path) as opened:
        return list(opened.iterdump())


def test_a_catalogs_jobs_come_with_their_past_their_pools_and_all_that_holds_for_them(catalog: Path) -> None:
    before = rows(catalog)
    cast = cast_of(catalog)
    parts = {each.name: each for each in cast.parts}
    assert cast.pools == {"wide": 7}
    assert cast.knows_pools
    assert parts["hourly"].past == JobHistory((90.0,) * 24, 24, 0)
    assert parts["hourly"].spec.settings["misfire_grace"] == timedelta(minutes=5)
    assert (parts["shaky"].past.ended, parts["shaky"].past.failed) == (24, 12)
    assert set(parts["shaky"].past.seconds) == {30.0}
    assert parts["shaky"].paused_until == LIVED + timedelta(days=2)
    assert rows(catalog) == before


def test_files_are_read_as_they_are_served_and_their_defaults_hold(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(FILE)
    cast = jobs_of_targets([str(file)])
    assert [each.name for each in cast.parts] == ["fresh", "hourly"]
    assert cast.pools == {"narrow": 2}
    assert {type(each.spec.settings["overlap"]).__name__ for each in cast.parts} == {"Queue"}


def test_a_file_laid_over_a_catalog_changes_its_jobs_keeps_their_past_and_adds_its_own(
    catalog: Path, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(FILE)
    cast = overlay(jobs_of_targets([str(file)]), cast_of(catalog), START)
    parts = {each.name: each for each in cast.parts}
    assert list(parts) == ["fresh", "hourly", "shaky"]
    assert str(parts["hourly"].spec.schedule) == "cron 30 * * * *"
    assert parts["hourly"].past.seconds == (90.0,) * 24
    assert parts["fresh"].past == JobHistory()
    assert cast.pools == {"narrow": 2, "wide": 7}


def test_some_jobs_are_chosen_by_name_and_bring_what_they_depend_on() -> None:
    cast = SimulatedJobs(
        (part("a"), part("b", depends_on=["a"]), part("etl-1", depends_on=["b"]), part("etl-2"), part("rest"))
    )
    assert [each.name for each in cast.only(["etl-*"]).parts] == ["a", "b", "etl-1", "etl-2"]
    with pytest.raises(NotFound, match="nobody"):
        cast.only(["rest", "nobody"])
