"""The PostgreSQL driver, on psycopg: pools for transactions, and one connection that listens and holds liveness locks.

A transaction is BEGIN, a reading of the clock, named statements, COMMIT. Many rows go in one statement, as array
literals that `arrays` writes: psycopg would adapt value by value, at ten times the cost. Where a connection breaks
while committing, the outcome is unknown, and StoreUnavailable says so; every verb may then be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.types.string import TextLoader

from horae.core.node_liveness import RECONNECTION
from horae.errors import InvalidInput, NotACatalog, StoreError, StoreFull, StoreUnavailable, TransactionExpired
from horae.store.driver import Clock, Row
from horae.store.postgres.clock import ServerClock
from horae.store.postgres.failures import shown_place, translated
from horae.store.postgres.joined_run import PostgresJoinedTransaction, clean, select
from horae.store.postgres.keepalive import LONGEST_ANSWER, ConnectionTrust, kept_alive
from horae.store.postgres.limits import HAS_TRANSACTION_TIMEOUT, NO_TRANSACTION_TIMEOUT, TRANSACTION_TIME
from horae.store.postgres.listen_connection import Listener, lock_key
from horae.store.postgres.pool import ConnectionPool, IdleCheck, PostgresConnection, renew_plans
from horae.store.postgres.text.roles import READER, VIEWER
from horae.store.postgres.text.runaway_sessions import SessionWatcher, mark_transaction
from horae.store.postgres.text.sql_text import RoleFunctions
from horae.store.postgres.transaction import (
    PLANNING,
    PostgresMigrator,
    PostgresTransaction,
    PreparedStatements,
    lock_migrations,
    undo,
)
from horae.store.protocols.store import from_outside
from horae.store.records import Rows
from horae.store.turns import OwnerTurns

MOST_PREPARED = 500
"""Statements that a connection keeps prepared: more than all statements with the texts of their batches."""
MOST_JOINED = 10
"""Connections for transactions that tasks, and texts of `local`, join. They are opened when needed and closed after a
minute without use, as are those of the pools below."""
MOST_TEXTS, MOST_OF_ONE = 8, 4
"""Connections for texts of other owners: in all, and for one owner."""
MOST_SELECTS = 4
"""Connections for users' SELECTs, so that job texts do not delay them."""
MOST_REQUESTS = 4
"""Connections for requests through a server, so that they delay no claim and no heartbeat."""
MOST_READERS = 4
"""Connections for pages and lists, so that a long read takes no connection from the engine."""
Made = TypeVar("Made", bound=PostgresTransaction)


class PostgresDriver:
    """The driver of one database.

    `clock` replaces the server's clock. `connections` is the size of the engine's pool; one more connection listens.
    Four keep a small server busy, and waiting tasks are served in order. With a connection for each of fifty workers
    claims were slower, and the slowest of them much slower (`bench.catalog`).
    """

    dialect = "postgres"
    lock_grace = RECONNECTION
    transaction_limit = 60.0
    write_limit: float | None = None

    def __init__(self, url: str, *, clock: Clock | None = None, connections: int = 4, patience: float = 30.0) -> None:
        self.url = url
        self._address = kept_alive(url)
        self.place = shown_place(url)
        self._clock = ServerClock(clock)
        self._connections = connections
        self._patience = patience
        self.asks_password: bool | None = None
        """Whether the server asked for a password when the store was opened."""
        self._pool: ConnectionPool | None = None
        self._asking: ConnectionPool | None = None
        self._joining: ConnectionPool | None = None
        self._texts: ConnectionPool | None = None
        self._selects: ConnectionPool | None = None
        self._looks: ConnectionPool | None = None
        self._joining_turns = OwnerTurns(MOST_JOINED, MOST_JOINED)
        self._text_turns = OwnerTurns(MOST_TEXTS, MOST_OF_ONE)
        self._listener: Listener | None = None
        self._trust = ConnectionTrust()
        self._changes = 1
        self._condition = asyncio.Condition()
        self._prepared = PreparedStatements(injected=clock is not None)
        self._callers = RoleFunctions(self.transaction)
        self._hoarders = SessionWatcher(self._asked_of_sessions)
        self._context = copy_context()

    async def open(self) -> None:
        if self._pool is not None:
            return
        try:
            await self._open()
        except BaseException:
            # Otherwise the next call would take a half-open driver for an open one.
            await self.close()
            raise

    async def _open(self) -> None:
        self._context = copy_context()
        # Connect without a pool first: its error says what is wrong; a pool only reports a timeout.
        async with translated(self.place):
            probe = await PostgresConnection.connect(self._address, autocommit=True)
            try:
                self.asks_password = bool(probe.pgconn.used_password)
                await self._clock.check(probe, self.place)
            finally:
                await probe.close()
            self._pool = self._made_pool(min_size=1, max_size=self._connections, configure=_configure_ours)
            self._asking = self._made_pool(
                min_size=0, max_size=MOST_REQUESTS, max_idle=60.0, configure=_configure_ours, check=IdleCheck()
            )
            # These pools check a connection before use. A broken one costs elsewhere a repeated verb; here it would
            # cost a task's whole work.
            self._joining, self._texts, self._selects = (
                self._made_pool(
                    min_size=0, max_size=most, max_idle=60.0, reset=clean, check=ConnectionPool.check_connection
                )
                for most in (MOST_JOINED, MOST_TEXTS, MOST_SELECTS)
            )
            self._looks = self._made_pool(
                min_size=0, max_size=MOST_READERS, max_idle=60.0, configure=_configure_look, check=IdleCheck()
            )
            await self._pool.open(wait=True)
        self._listener = Listener(self._address, self.place, _configure, self._fire, self._patience)
        await self._listener.open()

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        await self._hoarders.close()
        for pool in (self._pool, self._asking, self._joining, self._texts, self._selects, self._looks):
            if pool is not None:
                await pool.close()
        self._pool = self._asking = self._joining = self._texts = self._selects = self._looks = None

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[PostgresTransaction]:
        async with self._relieved(), self._within(await self._usual(), self._made, write=write) as transaction:
            yield transaction

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[PostgresTransaction]:
        async with self._relieved(), self._plainly(await self._usual()) as transaction:
            yield transaction

    async def _usual(self) -> ConnectionPool | None:
        return await self._opened(self._asking) if from_outside.get() else self._pool

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[PostgresTransaction]:
        async with self._plainly(await self._opened(self._looks)) as transaction:
            yield transaction

    @asynccontextmanager
    async def _plainly(self, pool: ConnectionPool | None) -> AsyncIterator[PostgresTransaction]:
        """Reads without BEGIN, COMMIT and a reading of the clock: for one statement, those trips would be most of the
        cost."""
        is_look = pool is self._looks
        pool, connection = await self._borrowed(pool)
        try:
            async with translated(self.place):
                now = await self._clock.glance(connection)
            if is_look:
                connection.answer_limit = LONGEST_ANSWER
            yield self._made(connection, now)
        finally:
            await self._give_back(pool, connection)

    @asynccontextmanager
    async def _relieved(self) -> AsyncIterator[None]:
        """Looks for sessions that hoard locks where the server has no room. It must enclose the block that borrows a
        connection, because that search needs a connection itself."""
        try:
            yield
        except StoreFull:
            await self._hoarders.relieve()
            raise

    async def _asked_of_sessions(self, text: str, *values: Any) -> list[Row]:
        """Runs a statement about sessions on a connection of the engine, of which one is always open."""
        pool, connection = await self._borrowed(self._pool)
        try:
            async with translated(self.place):
                return await (await connection.execute(text, values, prepare=False)).fetchall()
        finally:
            await self._give_back(pool, connection)

    async def clock_reading(self) -> int:
        async with self.looking() as transaction, translated(self.place):
            return await self._clock.plain(transaction.connection)

    def _made(self, connection: PostgresConnection, now: int) -> PostgresTransaction:
        return PostgresTransaction(connection, self._prepared, now)

    @asynccontextmanager
    async def joined(self, limit: float, owner: str | None = None) -> AsyncIterator[PostgresJoinedTransaction]:
        """A task's own statements may take as long as the transaction; the catalog's have their usual answer limit."""

        def made(connection: PostgresConnection, now: int) -> PostgresJoinedTransaction:
            longest = limit + self._trust.limit
            callers, hoarders = self._callers, self._hoarders
            return PostgresJoinedTransaction(
                connection, self._prepared, now, self.place, self._clock.read, callers, longest, hoarders
            )

        is_text = owner is not None
        # Wait for a turn, not for a connection: a wait in the pool ends with a timeout, as if the server were away.
        async with (self._text_turns if is_text else self._joining_turns).taken(owner or "") as turn:
            pool = await self._opened(self._texts if is_text else self._joining)
            transaction: PostgresJoinedTransaction | None = None
            try:
                async with self._within(pool, made) as transaction:
                    await transaction.begin(limit)
                    yield transaction
            except BaseException:
                if transaction is not None and transaction.is_left and transaction.session is not None:
                    # The turn is given back when the session has ended, so no owner has more sessions than turns.
                    turn.until = self._hoarders.end(transaction.session)
                raise

    async def select(
        self,
        sql: str,
        most: int,
        seconds: float,
        own: bool = False,  # noqa: FBT001, FBT002
        viewer: bool = False,  # noqa: FBT001, FBT002
        /,
    ) -> Rows:
        """Runs in a transaction that is rolled back, on a connection that is cleaned afterwards. Where Horae's login
        may not create the reader's role, an `own` SELECT runs as the login."""
        session = None
        as_login = not await self._callers.reader(VIEWER if viewer else READER, optional=own)
        pool, connection = await self._borrowed(await self._opened(self._selects))
        try:
            async with translated(self.place):
                now = await self._clock.begin(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            transaction = PostgresTransaction(connection, self._prepared, now)
            session = await mark_transaction(transaction, seconds)
            connection.answer_limit, connection.trust = seconds + self._trust.limit, None
            callers = None if as_login else self._callers
            with self._hoarders.watched(connection.info.backend_pid):
                return await select(transaction, callers, sql, most, seconds, viewer=viewer)
        except TransactionExpired as error:
            raise InvalidInput(error.message, hint=error.hint) from error
        finally:
            self._hurry(connection)
            await undo(connection)
            if session is not None and connection.closed:
                self._hoarders.end(session)
            await self._give_back(pool, connection)

    async def end_strays(self) -> None:
        await self._hoarders.end_strays()

    async def _opened(self, pool: ConnectionPool | None) -> ConnectionPool | None:
        if pool is not None and pool.closed:
            # The pool's tasks outlive the first caller, so they must not run in its context.
            async with translated(self.place):
                await asyncio.create_task(pool.open(), context=self._context)
        return pool

    @asynccontextmanager
    async def _within(
        self,
        pool: ConnectionPool | None,
        made: Callable[[PostgresConnection, int], Made],
        *,
        write: bool = True,
        answer: float | None = None,
    ) -> AsyncIterator[Made]:
        """One transaction. `answer` is the answer limit in seconds inside the block, if not the usual one."""
        pool, connection = await self._borrowed(pool)
        committing = False
        transaction: Made | None = None
        try:
            async with translated(self.place):
                begin = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                now = await self._clock.begin(connection, begin)
            transaction = made(connection, now)
            connection.answer_limit = answer or self._trust.limit
            yield transaction
            connection.answer_limit = self._trust.limit
            async with translated(self.place):
                committing = True
                await transaction.commit()
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and committing and write:
                raise _unknown(self.place) from error.__cause__
            self._hurry(connection)
            await (undo(connection) if transaction is None else transaction.undo())
            raise
        finally:
            await self._give_back(pool, connection)
        if transaction.wakes:
            await self._fire()

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Without BEGIN and COMMIT. `:now` is the server's clock, but never earlier than this process has seen it."""
        async with self._relieved():
            return await self._alone(name, parameters)

    async def _alone(self, name: str, parameters: dict[str, Any]) -> list[Row] | None:
        parameters["now"] = self._clock.last if self._clock.injected is None else self._clock.told()
        pool, connection = await self._borrowed(await self._usual())
        try:
            async with translated(self.place):
                cursor = await connection.execute(self._prepared.alone[name], parameters)
                rows = await cursor.fetchall()
        except BaseException as error:
            if isinstance(error, StoreUnavailable):
                raise _unknown(self.place) from error.__cause__
            raise
        finally:
            await self._give_back(pool, connection)
        if rows[0][0] > parameters["now"]:
            # Otherwise the server's clock is behind the time that was sent.
            self._clock.seen(rows[0][0])
        return rows

    @asynccontextmanager
    async def migration(self, *, write: bool = True) -> AsyncIterator[PostgresMigrator]:
        async with self._within(self._pool, self._made, answer=LONGEST_ANSWER) as transaction:
            if transaction.connection.info.server_version >= HAS_TRANSACTION_TIMEOUT:
                await transaction.raw(NO_TRANSACTION_TIMEOUT)
            await lock_migrations(transaction, write=write)
            yield PostgresMigrator(transaction, self.place, injected=self._clock.injected is not None)

    async def changed(self, seen: int, timeout: float | None) -> int:
        async with self._condition:
            if self._changes == seen:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._condition.wait_for(lambda: self._changes != seen), timeout)
        fault = None if self._listener is None else self._listener.fault
        if isinstance(fault, StoreError):
            raise fault.with_traceback(None)
        if fault is not None:
            raise StoreError(f"This process hears of no change: {type(fault).__name__}: {fault}") from fault
        return self._changes

    async def take_lock(self, node: UUID) -> bool:
        return await self._listening().take(node)

    async def free_lock(self, node: UUID, *, left: bool = True) -> None:
        await self._listening().free(node)

    def keep_locks(self) -> None:
        if self._listener is not None:
            self._listener.probe()

    def leave_lock(self, node: UUID) -> None:
        self._listening().forget(node)

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        if not nodes:
            return set()
        async with self.reading() as transaction:
            rows = await transaction.raw(
                "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
                " WHERE locktype = 'advisory' AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        held = {row[0] for row in rows}
        return {node for node in nodes if lock_key(UUID(node)) not in held}

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _made_pool(self, **options: Any) -> ConnectionPool:
        options = {"configure": _configure} | options
        kwargs = {"autocommit": True, "prepare_threshold": 1}
        return ConnectionPool(
            self._address,
            connection_class=PostgresConnection,
            open=False,
            timeout=self._patience,
            reconnect_timeout=float("inf"),
            kwargs=kwargs,
            **options,
        )

    async def _borrowed(self, pool: ConnectionPool | None) -> tuple[ConnectionPool, PostgresConnection]:
        """A connection, and the pool that it goes back to, because the store may be closed before that."""
        if pool is None:
            raise _not_open(self.place)
        async with translated(self.place):
            connection = await pool.getconn()
            while connection.heard_at < self._trust.doubted_at:
                await connection.close()
                await pool.putconn(connection)
                connection = await pool.getconn()
            connection.answer_limit = self._trust.limit
            connection.trust = self._trust
            try:
                await renew_plans(connection)
            except BaseException:
                await pool.putconn(connection)
                raise
            return pool, connection

    def _hurry(self, connection: PostgresConnection) -> None:
        """Lowers a raised answer limit to the usual one before a rollback or the pool's cleaning: the pool has few
        workers, and they would wait as long."""
        connection.answer_limit = min(connection.answer_limit, self._trust.limit)

    async def _give_back(self, pool: ConnectionPool, connection: PostgresConnection) -> None:
        self._hurry(connection)
        await pool.putconn(connection)

    def _listening(self) -> Listener:
        if self._listener is None:
            raise _not_open(self.place)
        return self._listener

    async def _fire(self) -> None:
        async with self._condition:
            self._changes += 1
            self._condition.notify_all()


async def _configure(connection: AsyncConnection[Any]) -> None:
    """Sets up a new connection: uuids are loaded as text, as on SQLite, and the planner prefers indexes.

    Every statement has an index. Without statistics, on a table that was just filled, the server would not use it.
    Sequential scans are therefore switched off, and so is JIT: before PostgreSQL 18 a small table without an index then
    has such a high cost that the server would compile the statement.
    """
    connection.adapters.register_loader("uuid", TextLoader)
    connection.prepared_max = MOST_PREPARED
    await connection.execute("; ".join(PLANNING))
    if connection.info.parameter_status("client_encoding") != "UTF8":
        raise NotACatalog("The database's encoding is not UTF-8", hint="Create the database with ENCODING 'UTF8'.")


async def _configure_ours(connection: AsyncConnection[Any]) -> None:
    await _configure(connection)
    if connection.info.server_version >= HAS_TRANSACTION_TIMEOUT:
        await connection.execute(f"SET transaction_timeout = '{TRANSACTION_TIME}s'")


async def _configure_look(connection: AsyncConnection[Any]) -> None:
    await _configure(connection)
    await connection.execute("SET default_transaction_read_only = on")


def _not_open(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"The store {place} is not open", hint="Await its open() first.")


def _unknown(place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The connection to {place} broke while committing: it is not known whether that was done",
        hint="Repeat the call; what was done is recognised.",
        outcome_unknown=True,
    )
