"""What a SQL job does happens exactly once: its text and its end are one commit, wherever its node is killed."""

from __future__ import annotations

import asyncio
import random

from tests.store.catalogs import Place
from tests.work.node import node
from tests.work.world import PATIENCE, here, make, prepared, until

JOBS = 30
KILLS = 4
EFFECT = "INSERT INTO {t}effects VALUES (current_setting('horae.job_run_uuid'))"
WORK = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000) SELECT count(*) FROM n"


def test_a_killed_node_leaves_as_many_effects_as_completed_runs(place: Place) -> None:
    prepared(place, "CREATE TABLE {t}effects (run TEXT)")
    app = make(place)
    chance = random.Random(6)
    text = here(place, f"{EFFECT}; {WORK}").replace("'", "''")

    async def begin() -> None:
        for number in range(JOBS):
            await app.sql(
                f"CREATE JOB effect-{number} SCHEDULE = NONE MAX_LOST = NONE AS '{text}'; EXECUTE JOB effect-{number}"
            )

    def counted() -> tuple[int, ...]:
        """Completed runs, those that are still to end, effects, and runs that have one: all at the same moment, since
        a server may still be at work on what a killed node had asked for."""
        (found,) = place.sql(
            here(
                place,
                "SELECT (SELECT count(*) FROM sys.job_runs WHERE state = 'COMPLETED'),"
                " (SELECT count(*) FROM sys.job_runs WHERE completed_at IS NULL),"
                " count(*), count(DISTINCT run) FROM {t}effects",
            )
        )
        return found

    async def body() -> None:
        await begin()
        for _ in range(KILLS):
            with node(place):
                await asyncio.sleep(chance.uniform(0.1, 0.5))  # the kill may come at any moment
            completed, _, effects, runs = counted()
            assert (effects, runs) == (completed, completed)
        with node(place):
            await until(lambda: counted()[:2] == (JOBS, 0), 2 * PATIENCE)
        await app.close()

    asyncio.run(body())
    assert counted() == (JOBS, 0, JOBS, JOBS)
