"""Locks that job text takes on PostgreSQL, and requests that wait: neither holds up who defines, joins or works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place, minutely
from tests.store.databases import Databases
from tests.store.joining import Worker, with_worker
from tests.store.running import MOST, introduced, somebody

from horae.errors import StatementFailed
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import MOST_REQUESTS
from horae.store.protocols.store import from_outside
from horae.store.schema import migrate

ALICE = somebody("alice")
NAMES = ("dependencies", "migration", "roles", "node_names", "cb_schedules")
TAKEN = "; ".join(
    [f"SELECT pg_advisory_xact_lock(hashtext('horae.{name}'))" for name in NAMES]
    + [
        "SELECT pg_advisory_xact_lock(hashtext('horae.cb_schedules'), hashtext('x'))",
        "SELECT pg_advisory_xact_lock(hashtextextended('horae declares declarative', 0))",
    ]
)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
NEEDS_A = replace(minutely("c"), depends_on=("a",))


async def defines(place: Place, store: Catalog) -> None:
    await store.define([NEEDS_A])


async def joins(place: Place, store: Catalog) -> None:
    await store.join(uuid4(), name="another")


async def creates(place: Place, store: Catalog) -> None:
    await store.create_user("bob")


async def migrates(place: Place, store: Catalog) -> None:
    await migrate(store.driver)


async def asks_the_view(place: Place, store: Catalog) -> None:
    async with await psycopg.AsyncConnection.connect(place.target) as other:
        await other.execute("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('x', '* * * * *')")


@pytest.mark.parametrize("verb", [defines, joins, creates, migrates, asks_the_view], ids=lambda verb: verb.__name__)
def test_an_advisory_lock_that_job_text_holds_is_in_nobodys_way(
    databases_18: Databases, verb: Callable[[Place, Catalog], Awaitable[None]]
) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(worker: Worker) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        await introduced(store, ALICE)
        async with worker.joins() as joined:
            await joined.run_text(TAKEN, ALICE, MOST)
            async with asyncio.timeout(PATIENCE):
                await verb(place, store)

    asyncio.run(with_worker(place, body))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO sys.locks VALUES ('dependencies')",
        "SELECT * FROM sys.locks FOR UPDATE",
        "LOCK TABLE sys.locks IN ACCESS SHARE MODE",
        "LOCK TABLE sys.schema_migrations IN ROW SHARE MODE",
        "SELECT sys.lock_schedule('x')",
    ],
)
def test_the_locks_of_the_catalog_are_out_of_reach_for_job_text(databases_18: Databases, text: str) -> None:
    async def body(worker: Worker) -> None:
        await introduced(worker.store, ALICE)
        async with worker.joins() as joined:
            with pytest.raises(StatementFailed, match="permission denied"):
                await joined.run_text(text, ALICE, MOST)

    asyncio.run(with_worker(Place("postgres", databases_18.emptied()), body))


def test_two_who_ask_for_one_new_schedule_make_one(databases_18: Databases) -> None:
    """The second waits for the first, whose row of the lock is gone by the time it may go on."""
    place = Place("postgres", databases_18.emptied())
    asked = "INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('x', '* * * * *')"

    async def main() -> None:
        async with (
            await psycopg.AsyncConnection.connect(place.target) as one,
            await psycopg.AsyncConnection.connect(place.target) as other,
        ):
            assert (await one.execute(asked)).rowcount == 1
            second = asyncio.create_task(other.execute(asked))
            await until_waiting(place, 1)
            await one.commit()
            assert (await second).rowcount == 0

    asyncio.run(main())
    assert place.sql("SELECT count(*) FROM sys.schedule_requests") == [(1,)]
    assert place.sql("SELECT count(*) FROM sys.locks") == [(0,)]


def test_requests_that_wait_for_a_lock_leave_the_engine_its_connections(databases_18: Databases) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(worker: Worker) -> None:
        store = worker.store
        async with await psycopg.AsyncConnection.connect(place.target) as other:
            await other.execute("INSERT INTO sys.locks VALUES ('dependencies')")
            token = from_outside.set(True)
            asked = [asyncio.create_task(store.define([NEEDS_A])) for _ in range(MOST_REQUESTS + 2)]
            from_outside.reset(token)
            await until_waiting(place, MOST_REQUESTS)
            async with asyncio.timeout(PATIENCE):
                await store.heartbeat(worker.node, {}, None)
            await other.rollback()
        await asyncio.gather(*asked)

    asyncio.run(with_worker(place, body))


async def until_waiting(place: Place, sessions: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while place.sql(WAITING) != [(sessions,)]:
            await asyncio.sleep(0.01)
