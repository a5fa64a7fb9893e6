"""The views and triggers of an SQLite catalog in the SQLite that Python brings, which may be years older than ours."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.catalogs import Place, minutely, opened, sqlite_place

from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import Store


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = sqlite_place(tmp_path)

    async def body(store: Store) -> None:
        await store.define([minutely("a", Cron("@daily")), minutely("b", Cron("@daily"))])

    asyncio.run(opened(found, None, body))
    return found


@pytest.fixture
def client(place: Place) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS sys", (place.target,))
        yield connection


def test_no_view_or_trigger_asks_for_what_an_older_sqlite_lacks(client: sqlite3.Connection) -> None:
    texts = client.execute("SELECT name, sql FROM sys.sqlite_schema WHERE type IN ('view', 'trigger')").fetchall()
    assert len(texts) > 5
    assert [name for name, text in texts if "subsec" in text] == []


def test_every_view_can_be_read(client: sqlite3.Connection) -> None:
    names = [row[0] for row in client.execute("SELECT name FROM sys.sqlite_schema WHERE type = 'view'")]
    assert {"cb_schedules", "performance"} <= set(names)
    for name in names:
        assert client.execute(f"SELECT * FROM sys.{name}").fetchall() is not None
    figures = dict(client.execute("SELECT metric, value FROM sys.performance").fetchall())
    assert figures["scheduler_queue_depth"] == 0


def test_the_view_takes_insert_update_and_delete_with_the_time_it_is(place: Place, client: sqlite3.Connection) -> None:
    before = time.time_ns() // 1_000_000
    client.execute("INSERT INTO sys.cb_schedules (name, cron_spec) VALUES ('digest', '@hourly')")
    client.execute("UPDATE sys.cb_schedules SET enabled = false WHERE name = 'a'")
    client.execute("UPDATE sys.cb_schedules SET cron_spec = '@weekly' WHERE name = 'a'")
    client.execute("DELETE FROM sys.cb_schedules WHERE name = 'b'")
    after = time.time_ns() // 1_000_000
    for table, column in (("schedule_requests", "requested_at"), ("audit", "at")):
        times = [row[0] for row in client.execute(f"SELECT {column} FROM sys.{table} ORDER BY 1 DESC LIMIT 4")]
        assert all(before <= each <= after for each in times), table

    async def body(store: Store) -> None:
        await store.create_due_runs()
        a, digest = await store.jobs()
        assert (a.name, a.state, digest.name) == ("a", JobState.PAUSED, "digest")
        assert a.definition.spec.schedule == Cron("@weekly")

    asyncio.run(opened(place, None, body))
    assert [row[0] for row in client.execute("SELECT error FROM sys.schedule_requests")] == [None] * 4


def test_the_clock_of_the_triggers_is_exact_to_the_millisecond(client: sqlite3.Connection) -> None:
    ((text,),) = client.execute("SELECT sql FROM sys.sqlite_schema WHERE name = 'cb_schedules_delete'")
    now = "round((julianday('now') - 2440587.5) * 86400000)"
    assert now in text
    for milliseconds in (0, 1, 499, 500, 501, 998, 999):
        for second in ("1970-01-01 00:00:00", "2026-11-18 05:35:57", "2099-12-31 23:59:59"):
            moment = f"{second}.{milliseconds:03}"
            asked = f"SELECT CAST({now.replace('now', moment)} AS INTEGER), CAST(strftime('%s', '{second}') AS INTEGER)"
            ((found, whole),) = client.execute(asked)
            assert found == whole * 1000 + milliseconds


def test_the_guards_of_the_jobs_hold(client: sqlite3.Connection) -> None:
    for statement in (
        "DELETE FROM sys.jobs",
        "UPDATE sys.jobs SET state = 'PAUSED'",
        "UPDATE sys.jobs SET tags = '[]'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"sys\.jobs"):
            client.execute(statement)
