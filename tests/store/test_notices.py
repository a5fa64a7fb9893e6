"""Notices that anybody who may run SQL sends: a node neither stands still for them nor keeps them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.store.databases import Databases
from tests.store.test_silent_servers import PATIENCE, holders, until

from horae.store.catalog.catalog import Catalog
from horae.store.postgres import listen_connection
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.listen_connection import Listener, NoticeCounter
from horae.store.postgres.pool import AnswerTooLarge, PostgresConnection

MANY = 40_000
"""Notices of a flood, of 17 bytes or more each."""


@pytest.fixture
def small_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MANY are is a flood, however slow the server is to send it and however often that is counted."""
    monkeypatch.setattr(listen_connection, "MOST_AT_ONCE", MANY)
    monkeypatch.setattr(listen_connection, "MOST_A_SECOND", 0)


def on_store(url: str, body: Callable[[Catalog], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Catalog(PostgresDriver(url, patience=PATIENCE))
        await store.open()
        try:
            await asyncio.wait_for(body(store), 2 * PATIENCE)
        finally:
            await store.close()

    asyncio.run(main())


def flood(databases: Databases, url: str, many: int) -> None:
    """Returns when they are committed. The loop stands still meanwhile: all of them wait for it."""
    databases.server.execute(
        f"SELECT count(pg_notify('horae', i::text)) FROM generate_series(1, {many}) i",
        str(conninfo_to_dict(url)["dbname"]),
    )


@pytest.mark.usefixtures("small_floods")
@pytest.mark.parametrize("is_probed", [True, False], ids=["before the answer to a probe", "while nothing is asked"])
def test_a_flood_of_notices_ends_the_listening_connection_with_a_warning_and_the_node_looks_instead(
    databases_18: Databases,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_probed: bool,
) -> None:
    url, node, listened = databases_18.emptied(), uuid4(), list[bool]()
    monkeypatch.setattr(listen_connection, "POLL_SECONDS", 0.05)
    begin = Listener._begin_to_listen

    async def begins(listener: Listener, connection: PostgresConnection) -> bool:
        listened.append(await begin(listener, connection))
        return listened[-1]

    monkeypatch.setattr(Listener, "_begin_to_listen", begins)

    async def body(store: Catalog) -> None:
        await store.join(node)
        (before,) = holders(databases_18, url, node)
        assert listened == [True]
        flood(databases_18, url, MANY)
        if is_probed:
            store.driver.keep_locks()

        async def is_replaced() -> bool:
            return len(listened) > 1 and holders(databases_18, url, node) not in ([], [before])

        await until(is_replaced)
        assert set(listened[1:]) == {False}
        (said,) = [each for each in caplog.records if each.name == "horae.store"]
        assert said.levelno == logging.WARNING
        assert "by NOTIFY or pg_notify" in said.getMessage()
        seen = await store.changed(0)
        for _ in range(3):
            seen = await store.changed(seen)
        # A minute later.
        listener = store.driver._listener  # type: ignore[attr-defined]
        listener._unheard_until = float("-inf")

        async def listens() -> bool:
            return listened[-1]

        await until(listens)
        assert len([each for each in caplog.records if each.name == "horae.store"]) == 1

    on_store(url, body)


def test_notices_below_a_flood_are_read_in_pieces_between_which_the_loop_has_its_turn(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = databases_18.emptied()
    turns, of_pieces = 0, list[int]()
    count = NoticeCounter.count

    def counts(notices: NoticeCounter, number: int) -> None:
        of_pieces.append(turns)
        count(notices, number)

    async def body(store: Catalog) -> None:
        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        monkeypatch.setattr(NoticeCounter, "count", counts)
        flood(databases_18, url, MANY)

        async def is_read() -> bool:
            return len(of_pieces) >= 17 * MANY // listen_connection.PIECE

        await until(is_read)
        turning.cancel()

    on_store(url, body)
    assert len(of_pieces) == len(set(of_pieces))


def test_room_for_notices_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(listen_connection, "monotonic", lambda: now)
    monkeypatch.setattr(listen_connection, "ioctl", lambda number, what, into: into.__setitem__(0, 10**6))
    notices = NoticeCounter()
    a_second = listen_connection.MOST_A_SECOND // listen_connection.PIECE
    for _ in range(1000):
        for _ in range(a_second):
            notices.count(0)
        now += 1.0
    for _ in range(listen_connection.MOST_AT_ONCE // listen_connection.PIECE):
        notices.count(0)
    with pytest.raises(AnswerTooLarge):
        notices.count(0)
