"""The board beside the engine: nobody waits for a long look, and whichever way runs are found, they are the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.store.catalogs import PATIENCE, Place, minutely, sqlite_place
from tests.store.databases import Databases

from horae.errors import HoraeError, StoreUnavailable
from horae.store.catalog import page_reads
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.protocols.reads import JobsQuery
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver
from horae.store.sqlite.read_connections import MOST_READERS, ReadConnections
from horae.testing.clock import ManualClock
from horae_store_tests.contract.page_reads import RunListContract

STATEMENTS = {
    "endless": "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n",
    "names": "SELECT job_name FROM sys.jobs ORDER BY job_name",
    "write": "DELETE FROM sys.jobs",
}


class Ways(RunListContract):
    """Which way runs are found depends on how many there are; here it does not."""

    @pytest.fixture(autouse=True, params=["MOST_LATEST", "MOST_RUNS_SCANNED"])
    def _way(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_reads, request.param, 0)


class TestWaysOnSqlite(Ways):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "horae.db"

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))


class TestWaysOnPostgres(Ways):
    @pytest.fixture(autouse=True)
    def _database(self, databases_18: Databases) -> None:
        self.url = databases_18.emptied()

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return sqlite_place(tmp_path)


def looked(place: Place, body: Any) -> None:
    """Runs `body` with an open store and looks of its own at the same file."""

    async def whole() -> None:
        store, looks = place.store(), ReadConnections(place.target, STATEMENTS, 30.0)
        await store.open()
        looks.open()
        try:
            await store.define([minutely("a")])
            await body(store, looks)
        finally:
            looks.close()
            await store.close()

    asyncio.run(whole())


async def asked(looks: ReadConnections, name: str) -> list[Any]:
    async with looks.transaction(0) as look:
        return await look.rows(name)


def test_verbs_go_on_while_somebody_looks_for_long(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        looking = asyncio.ensure_future(asked(looks, "endless"))
        for number in range(1, 20):
            await store.set_pool("p", number)
        assert await asked(looks, "names") == [("a",)]
        assert not looking.done()
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert await asked(looks, "names") == [("a",)]

    looked(place, body)


def test_a_look_is_one_snapshot_and_the_next_one_sees_what_was_written_since(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        async with looks.transaction(0) as look:
            before = await look.rows("names")
            await store.define([minutely("b")])
            assert await look.rows("names") == before == [("a",)]
        assert await asked(looks, "names") == [("a",), ("b",)]

    looked(place, body)


def test_whoever_comes_when_all_are_looking_waits_for_one_of_them(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        slow = [asyncio.ensure_future(asked(looks, "endless")) for _ in range(MOST_READERS)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(asked(looks, "names"))
        await store.set_pool("p", 1)
        assert not late.done()
        slow[0].cancel()
        assert await late == [("a",)]
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    looked(place, body)


def test_who_only_looks_cannot_write(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        with pytest.raises(HoraeError) as refused:
            await asked(looks, "write")
        assert isinstance(refused.value.__cause__, apsw.ReadOnlyError)
        assert await asked(looks, "names") == [("a",)]
        async with looks.transaction(0) as look:
            with pytest.raises(AssertionError):
                await look.batch([("write", [()])])

    looked(place, body)


def test_a_store_that_is_closed_while_somebody_looks_lets_them_finish(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        async with looks.transaction(0) as look:
            looks.close()
            assert await look.rows("names") == [("a",)]

    looked(place, body)


def test_the_board_of_a_store_that_is_not_open_says_so(place: Place) -> None:
    async def body() -> None:
        with pytest.raises(StoreUnavailable, match="not open"):
            await place.store().list_jobs(JobsQuery())

    asyncio.run(body())


def test_a_page_is_read_while_a_task_holds_the_only_connection_that_writes(place: Place) -> None:
    async def body(store: Catalog, looks: ReadConnections) -> None:
        async with store.driver.joined(PATIENCE):
            assert (await store.list_jobs(JobsQuery())).total == 1
            assert await store.session_user("0" * 64) is None

    looked(place, body)
