"""Waiting for PostgreSQL: the loop is asked where the socket has nothing to give, and gets its turn all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from socket import socket, socketpair
from time import monotonic
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.waiting import Ready, Wait
from tests.store.databases import Databases

from horae.store.postgres import pool
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.keepalive import ConnectionTrust
from horae.store.postgres.pool import AT_ONCE, PostgresConnection, _promptly

Work = Generator[Wait, Ready | int, list[int]]


@pytest.fixture
def ends() -> Iterator[tuple[socket, socket]]:
    ours, theirs = socketpair()
    with ours, theirs:
        yield ours, theirs


def asking(*wanted: Wait) -> Work:
    """Waits for each of these, and answers what it was told."""
    told: list[int] = []
    for each in wanted:
        answer = yield each
        told.append(int(answer))
    return told


def followed(work: Work, *answers: int) -> tuple[list[Wait], list[int]]:
    """What reached the loop, which gives these answers; and what the work came to."""
    asked: list[Wait] = []
    try:
        asked.append(next(work))
        for answer in answers:
            asked += [work.send(answer)]
    except StopIteration as ended:
        return asked, ended.value
    raise AssertionError(f"still waits, for {asked[-1]!r}")


def test_a_socket_that_is_ready_is_not_waited_for(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    theirs.send(b"answer")
    work = _promptly(asking(Wait.W, Wait.R, Wait.RW), ours.fileno())
    assert followed(work) == ([], [Ready.W, Ready.R, Ready.RW])


def test_a_socket_that_is_not_ready_is_left_to_the_loop_and_so_is_what_the_loop_says(
    ends: tuple[socket, socket],
) -> None:
    ours, _ = ends
    work = _promptly(asking(Wait.R, Wait.RW, Wait.R), ours.fileno())
    # Nothing has come, but it can be written to.
    assert followed(work, int(Ready.R), int(Ready.NONE)) == ([Wait.R, Wait.R], [Ready.R, Ready.W, Ready.NONE])


def test_a_connection_that_broke_is_told_at_once(ends: tuple[socket, socket]) -> None:
    ours, theirs = ends
    theirs.close()
    assert followed(_promptly(asking(Wait.R), ours.fileno())) == ([], [Ready.R])


def test_others_have_the_loop_now_and_then_however_much_there_is_to_read(ends: tuple[socket, socket]) -> None:
    ours, _ = ends
    work = _promptly(asking(*[Wait.W] * (2 * AT_ONCE + 2)), ours.fileno())
    asked, told = followed(work, int(Ready.W), int(Ready.W))
    assert asked == [Wait.W, Wait.W]
    assert told == [Ready.W] * (2 * AT_ONCE + 2)


def test_what_goes_wrong_while_it_waits_is_raised(ends: tuple[socket, socket]) -> None:
    def failing() -> Work:
        yield Wait.W
        raise ConnectionError("the server hung up")

    with pytest.raises(ConnectionError, match="hung up"):
        next(_promptly(failing(), ends[0].fileno()))


@pytest.fixture
def url(databases_18: Databases) -> str:
    return databases_18.emptied()


def test_the_connections_of_a_store_wait_that_way(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    ready = pool._ready

    def counted(*arguments: Any) -> int:
        found.append(ready(*arguments))
        return found[-1]

    monkeypatch.setattr(pool, "_ready", counted)

    async def body() -> None:
        driver = PostgresDriver(url)
        await driver.open()
        async with driver.transaction() as transaction, transaction.connection.pipeline():
            cursors = [await transaction.connection.execute("SELECT %s::bigint", (number,)) for number in range(50)]
            assert [await cursor.fetchone() for cursor in cursors] == [(number,) for number in range(50)]
        await driver.close()

    asyncio.run(body())
    assert len(found) >= 50


async def sleeps(url: str, backend: int) -> None:
    """Waits until the server has begun a statement that sleeps: told to stop before, it would not hear it."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    async with await AsyncConnection.connect(url, autocommit=True) as watcher:
        while await (await watcher.execute(text, (backend,))).fetchone() != (1,):
            await asyncio.sleep(0.001)


def test_a_statement_that_nobody_waits_for_any_more_is_cancelled_and_its_connection_still_good(url: str) -> None:
    async def body() -> None:
        connection = await PostgresConnection.connect(url, autocommit=True)
        try:
            asked = asyncio.ensure_future(connection.execute("SELECT pg_sleep(600)"))
            await sleeps(url, connection.info.backend_pid)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            cursor = await connection.execute("SELECT 7")
            assert await cursor.fetchone() == (7,)
        finally:
            await connection.close()

    asyncio.run(body())


def test_a_statement_cancelled_after_a_long_silence_has_time_to_end_and_its_connection_is_still_good(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    monkeypatch.setattr(pool, "monotonic", lambda: monotonic() + ahead)
    monkeypatch.setattr(pool, "CANCELLED", 60.0)

    async def body() -> None:
        nonlocal ahead
        connection = await PostgresConnection.connect(url, autocommit=True)
        try:
            connection.answer_limit = float("inf")
            asked = asyncio.ensure_future(connection.execute("SELECT pg_sleep(600)"))
            await sleeps(url, connection.info.backend_pid)
            ahead = 1000.0
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            cursor = await connection.execute("SELECT 7")
            assert await cursor.fetchone() == (7,)
        finally:
            await connection.close()

    asyncio.run(body())


def test_a_statement_that_goes_on_though_it_is_cancelled_ends_as_cancelled_and_casts_no_doubt_on_its_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = (
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(600);"
        " EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0); END; END LOOP; END $$"
    )
    monkeypatch.setattr(pool, "CANCELLED", 0.05)

    async def body() -> None:
        connection = await PostgresConnection.connect(url, autocommit=True)
        backend = connection.info.backend_pid
        trust = connection.trust = ConnectionTrust()
        try:
            asked = asyncio.ensure_future(connection.execute(deaf))
            await sleeps(url, backend)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert connection.closed
            assert trust.doubted_at == float("-inf")
        finally:
            await connection.close()
            async with await AsyncConnection.connect(url, autocommit=True) as other:
                await other.execute("SELECT pg_terminate_backend(%s)", (backend,))

    asyncio.run(body())
