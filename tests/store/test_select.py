"""SELECT over the catalog, on both kinds of store: it shows what may be seen, and cannot write, whatever it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from tests.store.catalogs import PATIENCE, Place, minutely, opened

from horae.errors import InvalidInput
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver

HIDDEN_TEXTS = [
    "SELECT password_hash FROM sys.users",
    "SELECT * FROM sys.users",
    "SELECT count(*) FROM sys.users WHERE password_hash LIKE 'a%'",
    "SELECT user_name FROM sys.users ORDER BY password_hash",
    "SELECT max(password_hash) OVER () FROM sys.users",
    "SELECT 1 FROM sys.users JOIN sys.tokens USING (user_uuid)",
    "SELECT 1 FROM sys.users NATURAL JOIN sys.tokens",
    "SELECT 1 FROM sys.users JOIN (SELECT 'guess' AS password_hash) AS guessed USING (password_hash)",
    "SELECT * FROM sys.tokens",
    "SELECT count(*) FROM sys.sessions",
    "SELECT body FROM sys.kept_answers",
    "SELECT secret_value FROM sys.job_secrets",
    "SELECT secret_name FROM sys.secrets",
    "WITH seen AS (SELECT * FROM sys.secrets) SELECT count(*) FROM seen",
    "SELECT (SELECT max(token_hash) FROM sys.tokens)",
]
WRITING_TEXTS = [
    "INSERT INTO sys.pools VALUES ('x', 1, 1)",
    "UPDATE sys.users SET is_admin = is_admin",
    "DELETE FROM sys.audit",
    "DROP TABLE sys.audit",
    "CREATE TABLE sys.mine (a INTEGER)",
    "BEGIN",
    "COMMIT",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM sys.audit",
    "PRAGMA user_version",
    "ATTACH 'x' AS y",
    "VACUUM",
    "SET ROLE NONE",
    "COPY sys.users TO STDOUT",
    "DO 'BEGIN END'",
    "CALL anything()",
    "TABLE sys.jobs",
    "",
    "-- SELECT 1",
    "/* SELECT 1 */ DELETE FROM sys.audit",
    "SELECT 1; SELECT 2",
    "SELECT 1; DELETE FROM sys.audit",
    "SELECT 1 /* ; */ ; -- and\n DELETE FROM sys.audit",
    "SELECT 1;;DROP TABLE sys.audit",
    "WITH gone AS (SELECT 1) DELETE FROM sys.audit",
    "WITH made AS (SELECT 1) INSERT INTO sys.pools VALUES ('x', 1, 1)",
    "WITH gone AS (DELETE FROM sys.audit RETURNING 1) SELECT * FROM gone",
    "WITH made AS (INSERT INTO sys.pools VALUES ('x', 1, 1) RETURNING 1) SELECT 1",
    "WITH done AS (UPDATE sys.pools SET max_running = 9 RETURNING 1) SELECT count(*) FROM done",
    "SELECT * INTO mine FROM sys.jobs",
    "SELECT * FROM sys.jobs FOR UPDATE",
    "SELECT '\0'",
    "SELECT '\ud800'",
]


def runs(place: Place, body: Callable[[Store], Awaitable[None]]) -> None:
    async def whole(store: Store) -> None:
        await store.define([minutely("a"), minutely("b")])
        await store.set_pool("p", 1)
        await body(store)

    asyncio.run(opened(place, None, whole))


def counted(place: Place) -> list[tuple[object, ...]]:
    return place.sql(
        "SELECT (SELECT count(*) FROM sys.jobs), (SELECT count(*) FROM sys.audit), (SELECT count(*) FROM sys.pools),"
        " (SELECT max(max_running) FROM sys.pools), (SELECT count(*) FROM sys.users)"
    )


async def selected(store: Store, sql: str, most: int = 100, seconds: float = PATIENCE) -> list[tuple[object, ...]]:
    assert isinstance(store, Catalog)
    rows = await store.driver.select(sql, most, seconds)
    json.dumps(rows)
    return rows


async def under_way(place: Place) -> None:
    """Waits until the server works on a SELECT: told to stop before, it would not hear it. SQLite begins at once."""
    seen = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
        " AND query LIKE 'SELECT kept%horae_run%' AND pid <> pg_backend_pid()"
    )
    await asyncio.sleep(0)
    while place.kind == "postgres" and (await asyncio.to_thread(place.sql, seen))[0][0] == 0:
        pass


def test_what_may_be_seen_is_shown(place: Place) -> None:
    async def body(store: Store) -> None:
        rows = await selected(store, "SELECT job_name, state, next_run_time FROM sys.jobs ORDER BY next_run_time")
        assert sorted(row[:2] for row in rows) == [("a", "ENABLED"), ("b", "ENABLED")]
        assert all(isinstance(row[2], int) for row in rows)
        jobs = await selected(store, "SELECT job_uuid FROM jobs")
        assert await selected(store, f"SELECT * FROM sys.job_runs WHERE job_uuid = '{jobs[0][0]}'") == []
        assert len(await selected(store, "  -- both\n SELECT name, enabled FROM sys.cb_schedules;")) == 2
        assert {row[0] for row in await selected(store, "SELECT * FROM sys.performance")} >= {"scheduler_queue_depth"}
        assert await selected(store, "SELECT user_name FROM sys.users") == [("local",)]
        assert await selected(store, "WITH n AS (SELECT count(*) AS c FROM sys.jobs) SELECT c FROM n") == [(2,)]
        joined = "SELECT count(*) FROM sys.jobs JOIN sys.job_versions USING (job_uuid) NATURAL JOIN sys.job_tasks"
        assert await selected(store, joined) == [(2,)]
        assert await selected(store, "VALUES (1, 'a'), (2, 'b')") == [(1, "a"), (2, "b")]

    runs(place, body)


def test_rows_come_with_their_columns_and_no_more_than_were_asked_for(place: Place) -> None:
    async def body(store: Store) -> None:
        assert isinstance(store, Catalog)
        rows = await store.driver.select("SELECT job_name AS n, 1 AS n FROM sys.jobs ORDER BY 1", 1, PATIENCE)
        assert (rows, rows.columns, rows.rowcount, rows.cut) == ([("a", 1)], ("n", "n"), 1, True)
        rows = await store.driver.select("SELECT job_name FROM sys.jobs", 2, PATIENCE)
        assert (len(rows), rows.cut) == (2, False)
        rows = await store.driver.select("SELECT job_name, state FROM sys.jobs WHERE job_name = 'z'", 2, PATIENCE)
        assert (rows, rows.columns, rows.cut) == ([], ("job_name", "state"), False)

    runs(place, body)


def test_what_is_hidden_cannot_be_read_in_any_way(place: Place) -> None:
    async def body(store: Store) -> None:
        for text in HIDDEN_TEXTS:
            with pytest.raises(InvalidInput) as refused:
                await selected(store, text)
            assert "cannot be read" in f"{refused.value.message} {refused.value.hint}", text

    runs(place, body)


def test_whatever_is_more_than_one_select_is_refused_and_nothing_is_written(place: Place) -> None:
    async def body(store: Store) -> None:
        before = counted(place)
        for text in WRITING_TEXTS:
            with pytest.raises(InvalidInput):
                await selected(store, text)
            assert counted(place) == before, text
        assert len(await selected(store, "SELECT 1 FROM sys.jobs")) == 2

    runs(place, body)


def test_the_database_says_what_it_does_not_understand(place: Place) -> None:
    async def body(store: Store) -> None:
        for text, told in (("SELECT nothing FROM sys.jobs", "nothing"), ("SELECT FROM WHERE", "syntax error")):
            with pytest.raises(InvalidInput, match=told):
                await selected(store, text)

    runs(place, body)


def test_a_select_without_end_is_stopped(place: Place) -> None:
    endless = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"

    async def body(store: Store) -> None:
        with pytest.raises(InvalidInput, match=r"longer than 0\.2 s"):
            await selected(store, endless, seconds=0.2)
        assert await selected(store, "SELECT 1") == [(1,)]

    runs(place, body)


def test_verbs_go_on_while_a_select_takes_its_time(place: Place) -> None:
    slow = "WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"

    async def body(store: Store) -> None:
        reading = asyncio.ensure_future(selected(store, slow))
        await under_way(place)
        await store.set_pool("p", 2)
        assert not reading.done()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await selected(store, "SELECT max_running FROM sys.pools") == [(2,)]

    runs(place, body)


def test_a_catalog_in_memory_is_guarded_on_its_one_connection() -> None:
    async def body() -> None:
        store = Catalog(SqliteDriver(":memory:"))
        await store.open()
        try:
            await store.define([minutely("a")])
            assert await store.select("SELECT job_name FROM sys.jobs", own=True) == [("a",)]
            for text in [*HIDDEN_TEXTS, *WRITING_TEXTS]:
                with pytest.raises(InvalidInput):
                    await store.select(text, own=True)
            await store.define([minutely("b")])
            assert await store.select("SELECT count(*) FROM sys.jobs", own=True) == [(2,)]
        finally:
            await store.close()

    asyncio.run(body())
