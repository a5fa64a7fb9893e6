"""What `make test` shows on PostgreSQL 16: each migration and each view, once. `make torture` runs the rest there."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from tests.store.catalogs import Place, minutely, opened
from tests.store.databases import Databases

from horae.core.run.lifecycle import AttemptState, JobState, RunState
from horae.store.protocols.store import Store
from horae.store.records import AttemptEnd, Capacity, Settlement
from horae.store.schema import migrate, migrations
from horae.testing.clock import ManualClock

NODE = UUID("00000000-0000-4000-8000-000000000001")


@pytest.fixture
def empty(databases_16: Databases) -> Place:
    """A place without a catalog."""
    return Place("postgres", databases_16.server.create_database())


def test_each_migration_runs_by_itself_and_the_catalog_they_make_runs_a_job(empty: Place) -> None:
    known = migrations("postgres")

    async def stepwise() -> list[list[str]]:
        driver = empty.store().driver
        await driver.open()
        try:
            steps = [known[: count + 1] for count in range(len(known))]
            return [[each.name for each in await migrate(driver, known=step)] for step in steps]
        finally:
            await driver.close()

    assert asyncio.run(stepwise()) == [[each.name] for each in known]

    async def one_run(store: Store) -> None:
        await store.join(NODE)
        await store.define([minutely()])
        clock.advance("1m")
        (claim,) = (await store.create_due_runs(start=Capacity(str(NODE), 1))).claims
        end = AttemptEnd(0, 1, AttemptState.SUCCESS)
        (settled,) = await store.settle(NODE, [Settlement(claim.run_id, claim.run_no, claim.fence, (end,))])
        assert settled.state is RunState.COMPLETED

    clock = ManualClock()
    asyncio.run(opened(empty, clock, one_run))


def test_each_view_answers_and_takes_what_it_may(databases_16: Databases) -> None:
    place = Place("postgres", databases_16.emptied())
    views = {row[0] for row in place.sql("SELECT viewname FROM pg_views WHERE schemaname = 'sys'")}
    assert views == {"cb_schedules", "performance"}, "show the new view here too"

    async def body(store: Store) -> None:
        await store.define([minutely()])
        assert place.sql("SELECT name, cron_spec, enabled FROM sys.cb_schedules") == [("a", "* * * * *", True)]
        place.sql("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'")
        await store.create_due_runs()
        assert [job.state for job in await store.jobs()] == [JobState.PAUSED]
        paused = "SELECT value FROM sys.performance WHERE metric = 'scheduler_jobs_paused_total'"
        assert place.sql(paused) == [(1.0,)]

    asyncio.run(opened(place, ManualClock(), body))
