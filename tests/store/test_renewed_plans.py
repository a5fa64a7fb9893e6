"""Plans that PostgreSQL keeps from when a table was empty: while a connection is young they are made anew."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, minutely
from tests.store.databases import Databases

from horae.core.run.lifecycle import AttemptState
from horae.errors import StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.postgres import pool
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.pool import FIRST_RENEWAL, LAST_RENEWAL, PostgresConnection
from horae.store.protocols.store import AttemptEnd, Capacity, Settlement
from horae.testing.clock import ManualClock

JOBS = 200
MINUTES = 100


@pytest.fixture
def url(databases_18: Databases) -> str:
    """A new one: in a database that others have used, the server plans by what it learnt of their rows."""
    return databases_18.fresh()


class Watch:
    """Time as connections see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(pool, "monotonic", lambda: self.seconds)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_a_settlement_in_a_new_catalog_does_not_read_all_the_runs_there_are_by_then(url: str, watch: Watch) -> None:
    async def body() -> None:
        clock = ManualClock()
        store = Catalog(PostgresDriver(url, clock=clock, connections=1))
        await store.open()
        still(url)
        node = uuid4()
        await store.join(node)
        await store.define([minutely(f"job-{number}") for number in range(JOBS)])
        for _ in range(MINUTES):
            clock.advance("1m")
            watch.seconds += 0.1
            claims = (await store.create_due_runs(JOBS, Capacity(str(node), JOBS))).claims
            assert len(claims) == JOBS
            ends = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
            await store.settle(node, [Settlement(each.run_id, each.run_no, each.fence, ends) for each in claims])
        await store.close()

    before = read(url)
    asyncio.run(body())
    looked_at = read(url) - before
    # Each has to be looked up once; where all that there are by then are read every time, it is sixty times as many.
    assert looked_at < 10 * JOBS * MINUTES, looked_at


def still(url: str) -> None:
    """Keeps the server from looking at these tables by itself, which it does midway on a slow machine."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("job_runs", "task_runs", "task_attempts"):
            connection.execute(f"ALTER TABLE sys.{table} SET (autovacuum_enabled = off)".encode())


def read(url: str) -> int:
    """Entries of the tasks' index that were read; a server tells when those who read are gone."""
    gone = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(gone).fetchone() != (True,):
            pass
        told = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'task_runs_pkey'"
        return int((connection.execute(told).fetchone() or (0,))[0])


def test_the_server_plans_anew_less_and_less_often_and_then_no_more(
    url: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals: list[float] = []
    execute = PostgresConnection.execute

    async def counted(self: PostgresConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if query == "DISCARD PLANS":
            renewals.append(watch.seconds)
        return await execute(self, query, *arguments, **more)

    monkeypatch.setattr(PostgresConnection, "execute", counted)

    async def body() -> None:
        driver = PostgresDriver(url, connections=1)
        await driver.open()
        for second in range(int(4 * LAST_RENEWAL)):
            watch.seconds = 1000.0 + second
            async with driver.transaction():
                pass
        await driver.close()

    asyncio.run(body())
    assert renewals == [1000.0 + after for after in (1, 3, 7, 15, 31, 63, 127)]


def test_a_connection_that_breaks_just_then_is_replaced(
    url: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = PostgresConnection.execute

    async def broken(self: PostgresConnection, query: Any, *arguments: Any, **more: Any) -> Any:
        if query == "DISCARD PLANS":
            self.pgconn.finish()
        return await execute(self, query, *arguments, **more)

    monkeypatch.setattr(PostgresConnection, "execute", broken)

    async def body() -> None:
        driver = PostgresDriver(url, connections=1, patience=PATIENCE)
        await driver.open()
        watch.seconds += FIRST_RENEWAL
        with pytest.raises(StoreUnavailable):
            async with driver.transaction():
                pass
        async with driver.transaction() as transaction:
            assert transaction.now > 0
        await driver.close()

    asyncio.run(body())
