"""What a SQL job does happens exactly once: its text and its end are one commit, wherever its node is killed."""

from __future__ import annotations

import asyncio
import random

from tests.store.catalogs import Place
from tests.work.node import node
from tests.work.world import here, make, prepared, until

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

    async def counted() -> tuple[int, int]:
        """Completed runs, and those that are still to end."""
        runs = await app.runs(limit=1000)
        return sum(run.state == "COMPLETED" for run in runs), sum(run.completed_at is None for run in runs)

    async def body() -> None:
        await begin()
        for _ in range(KILLS):
            with node(place):
                await asyncio.sleep(chance.uniform(0.1, 0.5))  # the kill may come at any moment
            completed, _ = await counted()
            assert place.sql(here(place, "SELECT count(*), count(DISTINCT run) FROM {t}effects")) == [
                (completed, completed)
            ]
        with node(place):
            await until(lambda: ended(JOBS), 60)
        await app.close()

    async def ended(wanted: int) -> bool:
        completed, left = await counted()
        return completed == wanted and not left

    asyncio.run(body())
    assert place.sql(here(place, "SELECT count(*), count(DISTINCT run) FROM {t}effects")) == [(JOBS, JOBS)]
