"""Text of others that fills the server's table of locks, in which every session on the server has to find room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, minutely
from tests.store.joining import Worker, with_worker
from tests.store.running import MOST, Ground, introduced, new_ground, somebody
from tools.postgres import running_postgres

from horae.errors import InvalidInput, StoreError, TransactionExpired
from horae.store.catalog.catalog import Catalog

ALICE = somebody("alice")
KEPT = """DO $$ BEGIN
    FOR number IN 1..10000000 LOOP
        BEGIN {}; EXCEPTION WHEN OTHERS THEN EXIT; END;
    END LOOP;
    PERFORM pg_sleep(3600);
END $$"""
FILLS = {
    "advisory": KEPT.format("PERFORM pg_advisory_xact_lock(number)"),
    "tables": KEPT.format("EXECUTE format('CREATE TEMP TABLE made_%s (a int PRIMARY KEY)', number)"),
}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """A server of its own: on that of the others everybody would be without locks."""
    with running_postgres(18, settings={"max_connections": "40"}) as server:
        yield new_ground(server, is_superuser=False)


async def writes(store: Catalog) -> None:
    """As a node does all the time, whatever becomes of it."""
    while True:
        with suppress(StoreError):
            await store.define([minutely("a")])
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", FILLS)
def test_a_text_that_takes_nearly_all_locks_there_are_is_ended_and_others_go_on(ground: Ground, how: str) -> None:
    async def body(worker: Worker) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        await introduced(store, ALICE)
        async with asyncio.timeout(PATIENCE):
            writing = asyncio.create_task(writes(store))
            with pytest.raises(TransactionExpired, match=r"had taken [\d,]+ locks"):
                async with worker.joins() as joined:
                    await joined.run_text(FILLS[how], ALICE, MOST)
            writing.cancel()
            await asyncio.wait([writing])
            await store.define([minutely(how)])

    asyncio.run(with_worker(ground.emptied().place, body))


def test_a_select_that_takes_nearly_all_locks_there_are_is_ended(ground: Ground) -> None:
    """One that fills the table ends by itself; one that leaves room for a few stays."""
    place = ground.emptied().place
    [(room,)] = place.sql("SELECT current_setting('max_locks_per_transaction')::int * 40")
    taken = f"SELECT count(pg_advisory_xact_lock(n)) FROM generate_series(1, {room}) n"
    text = f"WITH a AS MATERIALIZED ({taken}) SELECT pg_sleep(3600) FROM a"

    async def body(worker: Worker) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        async with asyncio.timeout(PATIENCE):
            selecting = asyncio.create_task(store.driver.select(text, 10, 10 * PATIENCE, False, True))
            while place.sql(
                "SELECT count(*) >= %s FROM pg_locks WHERE locktype = 'advisory'".replace("%s", str(room))
            ) != [(True,)]:
                await asyncio.sleep(0.01)
            async with await psycopg.AsyncConnection.connect(place.target) as other:
                with pytest.raises(psycopg.errors.OutOfMemory):
                    await other.execute("SELECT count(pg_advisory_lock(-n)) FROM generate_series(1, 10000000) n")
                writing = asyncio.create_task(writes(store))
                with pytest.raises(InvalidInput, match=r"had taken [\d,]+ locks"):
                    await selecting
            writing.cancel()
            await asyncio.wait([writing])
            await store.define([minutely("another")])

    asyncio.run(with_worker(place, body))
