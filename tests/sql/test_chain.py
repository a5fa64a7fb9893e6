"""extract 01:00 -> transform 02:00 -> load 03:00, as SQL jobs over ten days, some of which go wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.engine.world import oldest_first, shown
from tests.store.catalogs import Place

from horae import Horae
from horae.testing.simulation import Simulation

START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 10
TABLES = ("source", "staged", "ready", "target")
CALM = {"heartbeat": "20s", "take_over_after": "5m", "sweep_every": "5m", "reap_every": "5m"}
"""There is one node, and nothing goes wrong with it: its keeper need not be as busy as on a day of real life."""

CHAIN = """
CREATE JOB extract SCHEDULE = CRON '0 1 * * *' RETRY = NONE
  AS 'INSERT INTO {staged} (day) SELECT day FROM {source}';
CREATE JOB transform SCHEDULE = CRON '0 2 * * *' DEPENDS ON extract RETRY = NONE
  AS 'INSERT INTO {ready} (day) SELECT day FROM {staged} WHERE day NOT IN (SELECT day FROM {ready})';
CREATE JOB load SCHEDULE = CRON '0 3 * * *' DEPENDS ON transform RETRY = NONE
  AS 'INSERT INTO {target} (day) SELECT day FROM {ready} WHERE day NOT IN (SELECT day FROM {target})'
"""


def tables(place: Place) -> dict[str, str]:
    """On SQLite the users' tables live in the catalog's file, which is attached as sys."""
    return {name: f"sys.{name}" if place.kind == "sqlite" else name for name in TABLES}


class Plant:
    """The chain under way, with a door for whoever breaks things between its hours."""

    def __init__(self, place: Place, app: Horae, sim: Simulation) -> None:
        self.place, self.app, self.sim = place, app, sim
        self.names = tables(place)

    def build(self) -> None:
        for name in TABLES:
            self.do(f"DROP TABLE IF EXISTS {{{name}}}")
            self.do(f"CREATE TABLE {{{name}}} (day INTEGER PRIMARY KEY)")

    def do(self, text: str) -> list[tuple[Any, ...]]:
        return self.place.sql(text.format(**self.names))

    async def day(self, number: int, broken: str | None) -> None:
        """One day. `broken` is the table that is not there when its job needs it, and is back in the evening."""
        self.do(f"DELETE FROM {{source}}; INSERT INTO {{source}} (day) VALUES ({number})")
        if broken is not None:
            self.do(f"ALTER TABLE {{{broken}}} RENAME TO away")
        await self.sim.advance("12h")
        if broken is not None:
            away = "sys.away" if self.place.kind == "sqlite" else "away"
            self.do(f"ALTER TABLE {away} RENAME TO {broken}")
        await self.sim.advance("12h")

    async def outcomes(self, job: str) -> list[str]:
        return [shown(run) for run in await oldest_first(self.app, job)]


async def lived(place: Place, broken: dict[int, str]) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """How each run of ten days ended, and which days' rows each table has afterwards."""
    app = Horae(place.url, settings=CALM)
    async with Simulation(app, start=START) as sim:
        plant = Plant(place, app, sim)
        plant.build()
        await app.sql(CHAIN.format(**plant.names))
        for number in range(1, DAYS + 1):
            await plant.day(number, broken.get(number))
        # What still waits on the last day ends with the next day's slots.
        plant.do("DELETE FROM {source}")
        await sim.advance("4h")
        ends = {job: (await plant.outcomes(job))[:DAYS] for job in ("extract", "transform", "load")}
    rows = {name: [row[0] for row in plant.do(f"SELECT day FROM {{{name}}} ORDER BY day")] for name in TABLES}
    return ends, rows


def test_on_good_days_everything_runs_in_order_and_every_row_arrives(place: Place) -> None:
    ends, rows = asyncio.run(lived(place, {}))
    assert ends == {job: ["COMPLETED"] * DAYS for job in ("extract", "transform", "load")}
    assert rows["target"] == list(range(1, DAYS + 1))


def test_what_fails_stops_what_depends_on_it_that_day_and_that_day_only(place: Place) -> None:
    ends, rows = asyncio.run(lived(place, {2: "source", 3: "source", 5: "ready", 7: "target", 10: "staged"}))
    skipped = "SKIPPED (dependencies)"
    done = "COMPLETED"
    assert ends["extract"] == [done, "FAILED", "FAILED", *[done] * 6, "FAILED"]
    assert ends["transform"] == [done, skipped, skipped, done, "FAILED", *[done] * 4, skipped]
    assert ends["load"] == [done, skipped, skipped, done, skipped, done, "FAILED", done, done, skipped]
    # What came while transform or load were broken is taken along by the next good day; what was not extracted is not.
    assert rows["staged"] == rows["ready"] == rows["target"] == [1, 4, 5, 6, 7, 8, 9]


def test_a_retry_that_succeeds_in_time_lets_the_chain_go_on_that_day(place: Place) -> None:
    async def body() -> list[list[str]]:
        app = Horae(place.url, settings=CALM)
        async with Simulation(app, start=START) as sim:
            plant = Plant(place, app, sim)
            plant.build()
            text = CHAIN.format(**plant.names)
            await app.sql(text.replace("RETRY = NONE", "MAX_RETRIES = 2 RETRY_BACKOFF = 1h RETRY_FACTOR = 2", 1))
            plant.do("INSERT INTO {source} (day) VALUES (1)")
            plant.do("ALTER TABLE {source} RENAME TO away")
            await sim.advance("2h30m")
            away = "sys.away" if place.kind == "sqlite" else "away"
            plant.do(f"ALTER TABLE {away} RENAME TO source")
            found = [await plant.outcomes(job) for job in ("extract", "transform", "load")]
            await sim.advance("2h")
            return [*found, *[await plant.outcomes(job) for job in ("extract", "transform", "load")]]

    found = asyncio.run(body())
    assert [each[0].split(" ")[0] for each in found[:2]] == ["PENDING", "PENDING"]
    assert found[3:] == [["COMPLETED"]] * 3
    assert place.sql(f"SELECT day FROM {tables(place)['target']}") == [(1,)]


@pytest.mark.parametrize("manual", ["transform", "load"])
def test_a_run_that_somebody_asks_for_waits_for_nothing(place: Place, manual: str) -> None:
    async def body() -> list[str]:
        app = Horae(place.url, settings=CALM)
        async with Simulation(app, start=START) as sim:
            plant = Plant(place, app, sim)
            plant.build()
            await app.sql(CHAIN.format(**plant.names) + f"; EXECUTE JOB {manual}")
            await sim.advance("1m")
            return await plant.outcomes(manual)

    assert asyncio.run(body()) == ["COMPLETED"]


def test_the_days_are_whole(place: Place) -> None:
    """The simulation itself: three days are three slots, at their own hours."""

    async def body() -> list[datetime]:
        app = Horae(place.url, settings=CALM)
        async with Simulation(app, start=START) as sim:
            await app.sql("CREATE JOB a SCHEDULE = CRON '0 1 * * *' AS 'SELECT 1'")
            starts = await sim.advance(timedelta(days=3))
            return [each.time for each in starts]

    assert asyncio.run(body()) == [START + timedelta(days=day, hours=1) for day in range(3)]
