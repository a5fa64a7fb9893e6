"""What comes over the network of a text's answer on PostgreSQL: never more than its limit, whatever the text makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.store.catalogs import PATIENCE, Place
from tests.store.databases import Databases
from tests.store.joining import Worker, with_worker
from tests.store.running import LOCAL, MOST, introduced, new_ground, somebody
from tests.store.swallowing import SwallowingProxy
from tools.postgres import PostgresServer

from horae.errors import InvalidInput, StatementFailed
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.pool import MOST_NOTICE_BYTES, PostgresConnection
from horae.store.postgres.text import sql_text
from horae.store.postgres.text.named_connection import PostgresTarget
from horae.store.protocols.people import Identity
from horae.store.records import Rows, SettlementVerdict

LARGE = 4_000_000
HUGE = 2 * MOST_NOTICE_BYTES
ROOM = 400_000
"""Bytes for all that a store says and hears beside one answer."""
RAISES = """DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = repeat('m', {size}),
DETAIL = repeat('d', {size}), HINT = repeat('h', {size}); END $$"""
NOTICES = "LISTEN mine; SELECT count(pg_notify('mine', repeat('x', 100) || i)) FROM generate_series(1, 50000) i"
ALICE = somebody("alice")


@pytest.mark.parametrize("who", [ALICE, LOCAL], ids=lambda who: who.name)
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f"SELECT repeat('x', {LARGE}) AS a, 1 AS a", ("a", "a")),
        (f"SELECT 1 AS first; SELECT repeat('x', {LARGE}) AS b FROM generate_series(1, 3)", ("b",)),
    ],
)
def test_the_first_row_of_a_job_s_answer_is_sent_only_where_it_fits(
    databases_18: Databases, who: Identity, text: str, columns: tuple[str, ...]
) -> None:
    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        async with worker.joins() as joined:
            await joined.run_text("SELECT 1", who, MOST)
            before = proxy.received
            rows = await joined.run_text(text, who, MOST)
            assert (rows, rows.columns, rows.cut) == ([], columns, True)
            assert proxy.received - before < ROOM

    _through_a_proxy(databases_18, body)


@pytest.mark.parametrize("code", ["P0001", "query_canceled", "assert_failure"])
def test_what_a_text_raises_is_cut_before_it_is_sent(databases_18: Databases, code: str) -> None:
    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        async with worker.joins() as joined:
            await joined.run_text("SELECT 1", ALICE, MOST)
            before = proxy.received
            with pytest.raises(StatementFailed) as caught:
                await joined.run_text(RAISES.format(code=code, size=LARGE), ALICE, MOST)
            said = caught.value.message
            assert (len(said), said[:3], said[-3:]) == (20_004, "mmm", "ddd")
            assert proxy.received - before < ROOM

    _through_a_proxy(databases_18, body)


@pytest.mark.parametrize(
    "text",
    [
        f"DO $$ BEGIN RAISE INFO '%', repeat('x', {HUGE}); END $$",
        f"SET client_min_messages = notice; DO $$ BEGIN RAISE NOTICE '%', repeat('x', {HUGE}); END $$",
        f"DO $$ BEGIN EXECUTE 'SELECT ' || repeat('x ', {HUGE // 2}); END $$",
        f"DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = 'a', COLUMN = repeat('x', {HUGE}); END $$",
    ],
    ids=["info", "notice", "statement", "column"],
)
def test_what_a_text_says_beside_its_answer_ends_it_where_it_is_too_much(databases_18: Databases, text: str) -> None:
    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        before = proxy.received
        with pytest.raises(StatementFailed, match="too much beside its rows"):
            async with worker.joins() as joined:
                await joined.run_text(text, ALICE, MOST)
        assert proxy.received - before < 1.5 * MOST_NOTICE_BYTES
        async with worker.joins() as joined:
            assert await joined.run_text("SELECT 1", ALICE, MOST) == [(1,)]

    _through_a_proxy(databases_18, body)


def test_notices_that_nobody_reads_are_not_sent(databases_18: Databases) -> None:
    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        before = proxy.received
        async with worker.joins() as joined:
            await joined.run_text(f"DO $$ BEGIN RAISE WARNING '%', repeat('x', {LARGE}); END $$", ALICE, MOST)
        assert proxy.received - before < ROOM

    _through_a_proxy(databases_18, body)


@pytest.mark.parametrize(
    "text", [f"SELECT 1; SELECT repeat('x', {HUGE})", f"SELECT repeat('x', {HUGE})"], ids=["several", "one"]
)
def test_an_answer_on_a_named_connection_is_read_only_as_far_as_it_may_be(databases_18: Databases, text: str) -> None:
    url = databases_18.emptied()

    async def main() -> int:
        async with SwallowingProxy(url) as proxy:
            with pytest.raises(StatementFailed, match=r"too much at once.* one row of the answer or beside its rows"):
                await PostgresTarget("warehouse", proxy.url).run_text(text, Identity("ann"), MOST)
            return proxy.received

    assert asyncio.run(main()) < 1.5 * MOST_NOTICE_BYTES


MANY = f"INSERT INTO kept SELECT n FROM generate_series(1, 40) n RETURNING n, repeat('x', {MOST_NOTICE_BYTES // 20})"
"""Answers twice as much as may come at once."""


def with_a_table(databases: Databases) -> Place:
    place = Place("postgres", databases.server.create_database())
    place.sql("CREATE TABLE kept (n int)")
    return place


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (MANY, 40),
        (f"DELETE FROM kept; {MANY}", 40),
        (f"WITH made AS ({MANY}) SELECT * FROM made", 40),
        (f"{MANY}; UPDATE kept SET n = 0; SELECT n, repeat('x', {MOST_NOTICE_BYTES // 20}) FROM kept", 80),
    ],
    ids=["one", "the last of several", "with", "the first of several"],
)
def test_a_statement_on_a_named_connection_may_write_and_answer_more_than_is_kept(
    databases_18: Databases, text: str, changed: int
) -> None:
    place = with_a_table(databases_18)
    rows = asyncio.run(PostgresTarget("warehouse", place.url).run_text(text, Identity("ann"), MOST))
    assert (rows, rows.cut, rows.columns) == ([], True, ("n", "repeat"))
    assert rows.rowcount == changed
    assert place.sql("SELECT count(*) FROM kept") == [(40,)]


def test_an_answer_in_many_small_rows_on_a_named_connection_is_kept_as_far_as_there_is_room(
    databases_18: Databases,
) -> None:
    place = with_a_table(databases_18)
    text = "SELECT FROM generate_series(1, 3); INSERT INTO kept SELECT generate_series(1, 200000) RETURNING n; COMMIT"
    rows = asyncio.run(PostgresTarget("warehouse", place.url).run_text(text, Identity("ann"), 100))
    assert (rows[:2], rows.cut, rows.rowcount) == ([(1,), (2,)], True, 200_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1; SELECT 1/0", "division by zero"),
        ("COPY kept FROM STDIN", "COPY FROM STDIN"),
        ("SELECT 1; COPY kept TO STDOUT", "COPY TO STDOUT"),
    ],
)
def test_what_cannot_be_done_on_a_named_connection_is_said_in_the_server_s_words_or_ours(
    databases_18: Databases, text: str, said: str
) -> None:
    place = with_a_table(databases_18)
    with pytest.raises(StatementFailed, match=said):
        asyncio.run(PostgresTarget("warehouse", place.url).run_text(text, Identity("ann"), MOST))


def test_a_text_without_a_statement_does_nothing_on_a_named_connection(databases_18: Databases) -> None:
    rows = asyncio.run(
        PostgresTarget("warehouse", databases_18.emptied()).run_text("-- nothing", Identity("ann"), MOST)
    )
    assert (rows, rows.rowcount) == ([], -1)


@pytest.mark.parametrize("viewer", [False, True])
def test_the_first_row_of_a_select_is_sent_only_where_it_fits(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch, viewer: bool
) -> None:
    monkeypatch.setattr(sql_text, "LARGEST_SELECT", MOST)

    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        store = worker.store
        assert isinstance(store, Catalog)
        await store.driver.select("SELECT 1 AS a", 10, PATIENCE, False, viewer)
        before = proxy.received
        rows = await store.driver.select(f"SELECT repeat('x', {LARGE}) AS a", 10, PATIENCE, False, viewer)
        assert (rows, rows.columns, rows.cut) == ([], ("a",), True)
        assert proxy.received - before < ROOM
        with suppress(InvalidInput):
            await store.driver.select(f"SELECT repeat('x', {LARGE})::int", 10, PATIENCE, False, viewer)
        assert proxy.received - before < ROOM

    _through_a_proxy(databases_18, body)


def test_a_login_that_may_not_create_roles_is_sent_no_more_either(
    postgres_18: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.store.postgres.text.plain_select.LARGEST_SELECT", MOST)
    ground = new_ground(postgres_18, is_superuser=False)
    ground.as_superuser(f"ALTER ROLE {ground.database} NOCREATEROLE")

    async def main() -> tuple[Rows, int]:
        async with SwallowingProxy(ground.url) as proxy:
            store = Place("postgres", proxy.url).store()
            await store.open()
            try:
                await store.select("SELECT 1 AS a", own=True)
                before = proxy.received
                text = f"SELECT n, repeat('x', {LARGE} * (n % 2)) AS a FROM generate_series(2, 5) n"
                return await store.select(text, own=True), proxy.received - before
            finally:
                await store.close()

    rows, received = asyncio.run(main())
    assert (rows, rows.columns, rows.cut) == ([(2, "")], ("n", "a"), True)
    assert received < ROOM


def _through_a_proxy(databases: Databases, body: Callable[[Worker, SwallowingProxy], Awaitable[None]]) -> None:
    """Runs `body(worker, proxy)` with a claimed run, on a catalog that is reached through a proxy that counts."""

    url = databases.emptied()

    async def main() -> None:
        async with SwallowingProxy(url) as proxy:

            async def whole(worker: Worker) -> None:
                await introduced(worker.store, ALICE)
                await body(worker, proxy)

            await with_worker(Place("postgres", proxy.url), whole, tasks=("one", "two"))

    asyncio.run(main())


@pytest.mark.parametrize("who", [ALICE, LOCAL], ids=lambda who: who.name)
def test_a_text_that_listens_has_no_notices_sent_to_its_node(databases_18: Databases, who: Identity) -> None:
    async def body(worker: Worker, proxy: SwallowingProxy) -> None:
        async with worker.joins() as joined:
            await joined.run_text("SELECT 1", who, MOST)
            before = proxy.received
            await joined.run_text(NOTICES, who, MOST)
            assert (await joined.settle(worker.word(0))).verdict is SettlementVerdict.SETTLED
        async with worker.joins() as joined:
            await joined.run_text("SELECT 1", who, MOST)
        assert proxy.received - before < ROOM

    _through_a_proxy(databases_18, body)


def test_notices_to_a_text_on_another_connection_are_not_kept(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, made = databases_18.emptied(), list[PostgresConnection]()
    begin = PostgresConnection.__init__

    def begins(connection: PostgresConnection, *arguments: Any, **more: Any) -> None:
        begin(connection, *arguments, **more)
        made.append(connection)

    monkeypatch.setattr(PostgresConnection, "__init__", begins)
    asyncio.run(PostgresTarget("other", url).run_text(NOTICES.replace("50000", "1000"), Identity("ann"), MOST))
    [connection] = made
    assert not connection._notifies_backlog
