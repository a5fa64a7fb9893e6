"""SELECTs on SQLite that try to write or to look elsewhere: refused by a guard, on a connection that could not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest
from tests.store.catalogs import PATIENCE, Place, minutely, opened, sqlite_place

from horae.errors import InvalidInput, StoreError
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store
from horae.store.sqlite.text.authorizer import ReadGuard
from horae.store.sqlite.text.sql_text import select_from_file


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "a folder ? with # signs %20"
    folder.mkdir()
    return sqlite_place(folder)


async def selected(store: Store, sql: str, seconds: float = PATIENCE) -> list[tuple[object, ...]]:
    assert isinstance(store, Catalog)
    return await store.driver.select(sql, 100, seconds)


REFUSED = [
    "SELECT * FROM mine",
    "SELECT * FROM main.sqlite_master",
    "SELECT * FROM pragma_user_version",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_journal_mode('delete')",
    "SELECT * FROM pragma_wal_checkpoint",
    "SELECT * FROM dbstat",
    "SELECT load_extension('x')",
    "SELECT readfile('/etc/hostname')",
    "SELECT writefile('/tmp/x', 'y')",
    "SELECT fts3_tokenizer('x')",
    "SELECT zeroblob(1000000000)",
    "SELECT seq FROM sys.sqlite_sequence",
    "SELECT job_name()",
    "SELECT ?",
]


def test_what_would_reach_further_is_refused(place: Place) -> None:
    async def body(store: Store) -> None:
        place.sql("CREATE TABLE sys.mine (a INTEGER)")
        for text in REFUSED:
            with pytest.raises(InvalidInput):
                await selected(store, text)

    asyncio.run(opened(place, None, body))


def test_selects_that_take_long_wait_for_each_other_and_nobody_else_for_them(place: Place) -> None:
    endless = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"

    async def body(store: Store) -> None:
        assert isinstance(store, Catalog)
        slow = [asyncio.ensure_future(selected(store, endless, 10 * PATIENCE)) for _ in range(40)]
        async with asyncio.timeout(PATIENCE):
            assert not await store.has_credentials()
            assert await asyncio.to_thread(int) == 0
        assert not any(each.done() for each in slow)
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert await selected(store, "SELECT 1") == [(1,)]

    asyncio.run(opened(place, None, body))


def test_what_columns_and_tables_there_are_may_be_asked(place: Place) -> None:
    async def body(store: Store) -> None:
        names = await selected(store, "SELECT name FROM pragma_table_info('users')")
        assert ("password_hash",) in names
        tables = await selected(store, "SELECT name FROM sys.sqlite_schema WHERE type = 'table'")
        assert ("job_runs",) in tables
        assert await selected(store, "SELECT value FROM json_each('[7]')") == [(7,)]

    asyncio.run(opened(place, None, body))


def test_the_connection_itself_takes_no_writes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were there a hole in the guard."""
    monkeypatch.setattr(ReadGuard, "__call__", lambda *_: apsw.SQLITE_OK)

    async def body(store: Store) -> None:
        await store.define([minutely("a")])
        for text in (
            "WITH gone AS (SELECT 1) DELETE FROM sys.audit",
            "WITH made AS (SELECT 1) INSERT INTO sys.pools VALUES ('x', 1, 1)",
        ):
            with pytest.raises((InvalidInput, StoreError)):
                await selected(store, text)

    asyncio.run(opened(place, None, body))
    assert place.sql("SELECT count(*) > 0 FROM sys.audit") == [(1,)]
    assert place.sql("SELECT count(*) FROM sys.pools") == [(0,)]


def test_a_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    with pytest.raises(StoreError):
        select_from_file(str(missing), "SELECT 1", 1, 1.0, lambda: False)
    assert not missing.exists()


def test_whoever_reads_sees_what_was_committed_and_holds_nobody_up(place: Place) -> None:
    async def body(store: Store) -> None:
        assert isinstance(store, Catalog)
        async with store.driver.transaction() as transaction:
            await transaction.rows("upsert_pool", pool="p", limit=3)
            assert await selected(store, "SELECT * FROM sys.pools") == []
        assert await selected(store, "SELECT max_running FROM sys.pools") == [(3,)]

    asyncio.run(opened(place, None, body))
