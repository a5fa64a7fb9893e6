"""PostgreSQL: a pipeline that broke off leaves its connection as good as new."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from tests.store.catalogs import Place, minutely
from tests.store.databases import Databases

from horae.core.run.lifecycle import JobState
from horae.errors import JobNotFound
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import Capacity
from horae.testing.clock import ManualClock

BACK = "UPDATE sys.jobs SET planned_until = planned_until - 60000 WHERE job_name = 'job-3'"
DONE = "UPDATE sys.job_runs SET state = 'COMPLETED', completed_at = 1 WHERE state = 'RUNNING'"


def test_statements_first_prepared_in_a_pipeline_that_broke_off_work_afterwards(databases_18: Databases) -> None:
    place, clock = Place("postgres", databases_18.emptied()), ManualClock()

    async def body() -> None:
        store = Catalog(PostgresDriver(place.target, clock=clock.now, connections=2))
        await store.open()
        node = uuid4()
        await store.join(node)
        await store.define([minutely(f"job-{number}") for number in range(20)])
        # The only connection so far is busy, so what follows is all that the other one has ever seen.
        assert store.driver._pool.get_stats()["pool_size"] == 1  # type: ignore[attr-defined] # of PostgreSQL's driver
        async with store.driver.transaction():
            with pytest.raises(JobNotFound):
                await store.set_state("nobody", JobState.PAUSED)
            await _plan_over_taken_keys(store, Capacity(str(node), 1000))
        await store.close()

    async def _plan_over_taken_keys(store: Catalog, capacity: Capacity) -> None:
        clock.advance("1m")
        assert (await store.create_due_runs(500, capacity)).born == 20
        for _ in range(3):
            place.sql(DONE)
            place.sql(BACK)
            clock.advance("1m")
            # The key of the slot that is planned again is taken: the pipeline breaks, the pass is made once more.
            assert (await store.create_due_runs(500, capacity)).born == 20

    asyncio.run(body())
