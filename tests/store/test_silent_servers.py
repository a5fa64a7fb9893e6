"""PostgreSQL that vanishes without a word: no packet says that a connection is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from tests.store.databases import Databases
from tests.store.swallowing import SwallowingProxy

from horae.core.node_liveness import SILENCE
from horae.errors import NotACatalog, StoreError, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.postgres import listen_connection
from horae.store.postgres.driver import PostgresDriver, _configure
from horae.store.postgres.keepalive import KEPT_ALIVE, ConnectionTrust, kept_alive
from horae.store.postgres.listen_connection import lock_key
from horae.store.postgres.pool import LONGEST_PAUSE, PostgresConnection, _Attempt
from horae.store.postgres.text.named_connection import PostgresTarget
from horae.store.protocols.people import Identity

PATIENCE = 60.0
BRIEF = 0.5


def on_proxy(databases: Databases, body: Callable[[SwallowingProxy, Catalog], Awaitable[None]]) -> None:
    url = databases.emptied()

    async def main() -> None:
        async with SwallowingProxy(url) as proxy:

            def limit(trust: ConnectionTrust) -> float:
                # Brief only while nothing can come: an answer that is on its way may take as long as it takes.
                return BRIEF if proxy.is_swallowing else PATIENCE

            patched.setattr(ConnectionTrust, "limit", property(limit))
            store = Catalog(PostgresDriver(proxy.url, patience=PATIENCE))
            await store.open()
            try:
                await asyncio.wait_for(body(proxy, store), 2 * PATIENCE)
            finally:
                await store.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listen_connection, "PROBE", BRIEF)
        asyncio.run(main())


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    while not await found():
        await asyncio.sleep(0.02)


async def told(store: Catalog, seen: int) -> None:
    """Hears of changes until that fails."""
    while True:
        seen = await store.changed(seen)


def holders(databases: Databases, url: str, node: UUID) -> list[int]:
    """The server's processes that hold a node's lock."""
    rows = databases.server.execute(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
        f" AND ((classid::bigint << 32) | objid::bigint) = {lock_key(node)}",
        str(conninfo_to_dict(url)["dbname"]),
    )
    return [int(row[0]) for row in rows]


def test_a_verb_whose_packets_are_swallowed_gives_up_and_the_next_has_another_connection(
    databases_18: Databases,
) -> None:
    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        await store.now()
        proxy.swallow(new=False)
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.totals()
        proxy.is_swallowing = False
        await store.totals()

    on_proxy(databases_18, body)


def test_connections_last_heard_before_one_went_unanswered_are_replaced_and_not_waited_for(
    databases_18: Databases,
) -> None:
    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        async with store.driver.transaction(), store.driver.transaction(), store.driver.transaction():
            pass
        proxy.swallow(new=False)
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.totals()
        proxy.is_swallowing = False
        for _ in range(8):
            await store.totals()

    on_proxy(databases_18, body)


def test_a_commit_whose_packets_are_swallowed_leaves_its_outcome_unknown(databases_18: Databases) -> None:
    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        with pytest.raises(StoreUnavailable) as caught:
            async with store.driver.transaction():
                proxy.swallow(new=False)
        assert caught.value.outcome_unknown

    on_proxy(databases_18, body)


def test_a_listener_that_is_half_open_is_replaced_at_a_heartbeat_and_has_its_lock_again(
    databases_18: Databases,
) -> None:
    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        node, url = uuid4(), proxy.direct
        await store.join(node)
        (before,) = holders(databases_18, url, node)
        proxy.swallow(new=False)
        assert holders(databases_18, url, node) == [before], "the server knows nothing of it"

        async def beat() -> bool:
            try:
                return not (await store.heartbeat(node, {})).expelled
            except StoreUnavailable:
                return False

        async def replaced() -> bool:
            await until(beat)
            held = holders(databases_18, url, node)
            return bool(held) and held != [before]

        await until(replaced)
        proxy.is_swallowing = False
        seen = await store.changed(0)
        assert await store.changed(seen, 0) == seen
        async with store.driver.transaction() as transaction:
            transaction.wake()
        assert await store.changed(seen, PATIENCE) > seen

    on_proxy(databases_18, body)


def test_a_node_that_only_hears_nothing_keeps_its_lock_until_it_has_another_connection(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")

    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        node, url = uuid4(), proxy.direct
        await store.join(node)
        (before,) = holders(databases_18, url, node)
        proxy.swallow(new=True, answers_only=True)
        opened = proxy.opened
        store.driver.keep_locks()

        async def gives_up() -> bool:
            # The pool connects for nobody meanwhile: these are the listening connection's tries.
            return proxy.opened > opened + 1

        await until(gives_up)
        assert holders(databases_18, url, node) == [before]
        proxy.pass_on()

        async def replaced() -> bool:
            held = holders(databases_18, url, node)
            return bool(held) and held != [before]

        await until(replaced)

    on_proxy(databases_18, body)


def sessions(databases: Databases, url: str) -> set[int]:
    rows = databases.server.execute(
        f"SELECT pid FROM pg_stat_activity WHERE datname = '{conninfo_to_dict(url)['dbname']}'"
    )
    return {int(row[0]) for row in rows}


def test_a_listening_connection_without_locks_is_ended_where_the_server_does_not_answer(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")

    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        listener = store.driver._listener  # type: ignore[attr-defined]
        (session,) = listener._sessions
        proxy.swallow(new=True, answers_only=True)
        store.driver.keep_locks()

        async def is_gone() -> bool:
            return session not in sessions(databases_18, proxy.direct)

        await until(is_gone)
        proxy.pass_on()

    on_proxy(databases_18, body)


@pytest.fixture
def patient_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is given up but those that `mute` was called for."""
    monkeypatch.setattr(ConnectionTrust, "limit", PATIENCE)
    monkeypatch.setattr(listen_connection, "PROBE", PATIENCE)


def mute(proxy: SwallowingProxy, connection: PostgresConnection) -> None:
    """The server hears what is said, and nobody hears the server, which is found out soon."""
    proxy.swallow(new=False, answers_only=True)
    connection.answer_limit = 0.2


@pytest.mark.usefixtures("patient_listener")
def test_tries_to_listen_that_go_unanswered_leave_no_session_behind_but_the_one_with_the_lock(
    databases_18: Databases,
) -> None:
    url, node, tries = databases_18.fresh(), uuid4(), list[PostgresConnection]()

    async def main() -> None:
        async with SwallowingProxy(url) as proxy:

            async def configure(connection: PostgresConnection) -> None:
                await _configure(connection)
                tries.append(connection)
                if 1 < len(tries) < 6:

                    async def others_are_gone() -> bool:
                        return sessions(databases_18, url) == {before, connection.info.backend_pid}

                    await until(others_are_gone)
                    assert holders(databases_18, url, node) == [before]
                    mute(proxy, connection)

            async def heard() -> None:
                pass

            listener = listen_connection.Listener(proxy.url, "here", configure, heard, PATIENCE)
            await listener.open()
            assert await listener.take(node)
            (before,) = holders(databases_18, url, node)
            mute(proxy, tries[0])
            listener.probe()

            async def is_replaced() -> bool:
                held = holders(databases_18, url, node)
                return held not in ([], [before]) and sessions(databases_18, url) == {*held}

            await asyncio.wait_for(until(is_replaced), 2 * PATIENCE)
            assert len(tries) == 6
            await listener.close()

    asyncio.run(main())


@pytest.mark.usefixtures("patient_listener")
def test_a_lock_is_held_by_one_session_or_the_next_where_the_answer_about_taking_it_over_is_lost(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, node, left, made = databases_18.fresh(), uuid4(), list[int](), list[PostgresConnection]()
    answer = listen_connection._answer

    async def main() -> None:
        async with SwallowingProxy(url) as proxy:

            async def configure(connection: PostgresConnection) -> None:
                await _configure(connection)
                made.append(connection)

            async def answers(connection: PostgresConnection, text: str, *values: object) -> bool:
                if text != listen_connection._TAKE_FROM_FORMER:
                    return await answer(connection, text, *values)
                left.append(len({*listener._left.values()}))
                had = holders(databases_18, url, node)
                if len(left) < 4:
                    mute(proxy, connection)
                try:
                    return await answer(connection, text, *values)
                finally:

                    async def has_succeeded() -> bool:
                        return holders(databases_18, url, node) not in ([], had)

                    await until(has_succeeded)

            async def heard() -> None:
                pass

            listener = listen_connection.Listener(proxy.url, "here", configure, heard, PATIENCE)
            await listener.open()
            assert await listener.take(node)
            monkeypatch.setattr(listen_connection, "_answer", answers)
            mute(proxy, made[0])
            listener.probe()

            async def is_replaced() -> bool:
                held = sessions(databases_18, url)
                return len(left) == 4 and len(held) == 1 and holders(databases_18, url, node) == [*held]

            await asyncio.wait_for(until(is_replaced), 2 * PATIENCE)
            await listener.close()

    asyncio.run(main())
    assert left == [1, 1, 1, 1]


@pytest.mark.parametrize("is_ours", [True, False], ids=["an error of ours", "any other"])
def test_a_listener_that_fails_unexpectedly_says_so_to_whoever_waits_and_goes_on(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch, *, is_ours: bool
) -> None:
    url, node = databases_18.fresh(), uuid4()
    database = conninfo_to_dict(url)["dbname"]

    async def main() -> None:
        store = Catalog(PostgresDriver(url))
        await store.open()
        await store.join(node)
        seen = await store.changed(0)
        if is_ours:
            # As a catalog must not be, from the next connection on.
            databases_18.server.execute(f"ALTER DATABASE \"{database}\" SET client_encoding = 'LATIN1'")
        else:
            monkeypatch.setattr(listen_connection, "_TAKE", None)
        (session,) = holders(databases_18, url, node)
        databases_18.server.execute(f"SELECT pg_terminate_backend({session})")
        with pytest.raises(NotACatalog if is_ours else StoreError, match="UTF-8" if is_ours else "hears of no change"):
            await asyncio.wait_for(told(store, seen), PATIENCE)
        databases_18.server.execute(f'ALTER DATABASE "{database}" RESET client_encoding')
        monkeypatch.undo()

        async def hears() -> bool:
            try:
                return await store.changed(0, 0) > 0 and bool(holders(databases_18, url, node))
            except StoreError:
                return False

        await asyncio.wait_for(until(hears), PATIENCE)
        await store.close()

    asyncio.run(main())


def test_the_server_does_not_end_the_session_with_a_node_s_lock_before_the_node_s_work_is_late(
    databases_18: Databases,
) -> None:
    """A lock that falls free says that the node is gone. One that is cut off lives, and works until it is late."""
    url, found = databases_18.emptied(), dict[str, str]()

    async def main() -> None:
        asked: list[PostgresConnection] = []
        is_heard = asyncio.Event()

        async def configure(connection: PostgresConnection) -> None:
            await _configure(connection)
            asked.append(connection)

        async def heard() -> None:
            for name in ("tcp_keepalives_idle", "tcp_user_timeout"):
                rows = await (await asked[-1].execute(f"SELECT current_setting('{name}')".encode())).fetchall()
                found[name] = str(rows[0][0])
            is_heard.set()

        listener = listen_connection.Listener(url, "here", configure, heard, PATIENCE)
        await listener.open()
        try:
            await asyncio.wait_for(is_heard.wait(), PATIENCE)
        finally:
            await listener.close()

    asyncio.run(main())
    assert found["tcp_user_timeout"] == "0"
    assert int(found["tcp_keepalives_idle"]) > 10 * SILENCE


def test_what_an_address_says_of_keepalives_and_time_limits_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    plain = conninfo_to_dict(kept_alive("postgresql://u@h/d"))
    assert {name: int(str(plain[name])) for name in KEPT_ALIVE} == KEPT_ALIVE
    own = conninfo_to_dict(kept_alive("postgresql://u@h/d?keepalives=0&tcp_user_timeout=0&connect_timeout=3"))
    assert (own["keepalives"], own["tcp_user_timeout"], own["connect_timeout"]) == ("0", "0", "3")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert "connect_timeout" not in conninfo_to_dict(kept_alive("postgresql://u@h/d"))


def test_every_connection_has_the_keepalives(databases_18: Databases) -> None:
    async def body(proxy: SwallowingProxy, store: Catalog) -> None:
        driver = store.driver
        assert isinstance(driver, PostgresDriver)
        for pool in (driver._pool, driver._joining, driver._looks):
            assert pool is not None
            assert int(str(conninfo_to_dict(str(pool.conninfo))["keepalives_idle"])) == KEPT_ALIVE["keepalives_idle"]

    on_proxy(databases_18, body)


def test_a_statement_on_another_database_has_the_keepalives(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    connect = AsyncConnection.connect

    async def connects(url: str, **more: Any) -> Any:
        asked.append(url)
        return await connect(url, **more)

    monkeypatch.setattr(AsyncConnection, "connect", connects)
    rows = asyncio.run(PostgresTarget("other", databases_18.emptied()).run_text("SELECT 1", Identity("ann"), 100))
    assert list(rows) == [(1,)]
    assert {name: int(str(conninfo_to_dict(asked[0])[name])) for name in KEPT_ALIVE} == KEPT_ALIVE


def test_a_pool_tries_to_connect_again_every_two_seconds_however_long_the_server_was_away() -> None:
    attempt, now = _Attempt(timeout=float("inf")), 0.0
    for _ in range(1000):
        attempt.update_delay(now)
        assert 0 < attempt.delay <= LONGEST_PAUSE
        now += attempt.delay
        assert not attempt.time_to_give_up(now)
