"""Claims on PostgreSQL pass by the runs that another transaction holds, and wait for none of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.store.databases import Databases

from horae.core.job.definition import JobSpec, TaskSpec
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import Admission, Capacity, Origin
from horae.testing.clock import ManualClock

GUARD = 60.0
"""Real seconds after which a claim waits for a lock, however slow the machine is."""


ONE, TWO = (TaskSpec("one"),), (TaskSpec("one"), TaskSpec("two"))


@pytest.mark.parametrize(
    ("tasks", "limits"),
    [(ONE, {}), (TWO, {}), (ONE, {"max_concurrent": 5})],
    ids=["in one statement", "with several tasks", "within limits"],
)
def test_a_claim_takes_what_no_other_transaction_holds_and_waits_for_nothing(
    databases_18: Databases, tasks: tuple[TaskSpec, ...], limits: dict[str, Any]
) -> None:
    url = databases_18.emptied()

    async def main() -> None:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        store, node = Catalog(PostgresDriver(url, clock=clock.now, connections=2)), uuid4()
        await store.open()
        await store.join(node)
        await store.define([JobSpec("a", None, tasks, {"overlap": "allow", **limits})])
        await store.admit([Admission("a", Origin.TRIGGER, "local", key=str(each)) for each in range(3)])
        capacity = Capacity(str(node), 3)
        async with await psycopg.AsyncConnection.connect(url) as other:
            held = await (await other.execute("SELECT min(run_no) FROM sys.job_runs")).fetchone()
            assert held is not None
            await other.execute("SELECT 1 FROM sys.job_runs WHERE run_no = %s FOR UPDATE", held)
            async with asyncio.timeout(GUARD):
                beside = await store.claim_runs(capacity)
            await other.rollback()
        after = await store.claim_runs(capacity)
        assert [len(beside.claims), [claim.run_no for claim in after.claims]] == [2, [held[0]]]
        await store.close()

    asyncio.run(main())


def test_serving_owners_holds_the_rows_of_those_who_are_served_and_no_others(databases_18: Databases) -> None:
    url = databases_18.emptied()
    owners = [str(UUID(int=number)) for number in range(1, 41)]

    async def main() -> None:
        store = Catalog(PostgresDriver(url, connections=2))
        await store.open()
        async with store.driver.transaction() as work:
            await work.many("upsert_shares", [(owner, True, True) for owner in owners])
        for served in (owners[:1], owners[3:5], owners[::8], owners[:20]):
            async with store.driver.transaction() as stopped:
                await stopped.many("serve_shares", [(owner, 5, 5, 1) for owner in served])
                async with store.driver.transaction() as other:
                    free = {row[0] for row in await other.rows("lock_shares", owners=owners)}
            assert free == set(owners) - set(served)
        await store.close()

    asyncio.run(main())
