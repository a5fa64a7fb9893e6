"""PostgreSQL by psycopg: a pool for transactions, one more connection that listens and holds the liveness locks.

A transaction is BEGIN, the clock, named statements, COMMIT. Many rows go in one statement, as arrays written out here:
the driver would adapt value by value, at ten times the cost. A connection that breaks while committing leaves the
outcome unknown, and that is what is raised; every verb may then be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.types.string import TextLoader

from horae.core.liveness import RECONNECTION
from horae.errors import NotACatalog, StoreError, StoreUnavailable
from horae.store.driver import Clock, Row
from horae.store.postgres.clock import ServerClock
from horae.store.postgres.failures import shown_place, translated
from horae.store.postgres.joining import PostgresJoined, clean, select
from horae.store.postgres.pooling import Checked, Connection, Pool, renewed
from horae.store.postgres.running import Callers
from horae.store.postgres.transaction import PLANNING, PostgresMigrator, PostgresTransaction, Prepared, undo
from horae.store.records import Rows

_TAKE = "SELECT pg_try_advisory_lock(%s)"
_FREE = "SELECT pg_advisory_unlock(%s)"
LONGEST_BACKOFF = 5.0
MOST_PREPARED = 500
"""Statements a connection keeps prepared: more than there are, with the forms their batches take."""
MOST_JOINED = 10
"""Connections for transactions that tasks join; they are opened as they are needed, and closed after a minute."""
MOST_LOOKING = 4
"""Connections for pages and lists, opened and closed likewise: a long look leaves the engine its own."""
Made = TypeVar("Made", bound=PostgresTransaction)


class PostgresDriver:
    """One database. `clock` replaces the server's clock; a process opens up to `connections`, plus one to listen.

    Four keep a small server busy, and whoever waits for one is served in order: with a connection for each of fifty
    workers claims were slower, and the slowest of them much slower (`bench.catalog`).
    """

    dialect = "postgres"
    lock_grace = RECONNECTION
    transaction_limit = 60.0

    def __init__(self, url: str, *, clock: Clock | None = None, connections: int = 4, patience: float = 30.0) -> None:
        self.url = url
        self.place = shown_place(url)
        self._clock = ServerClock(clock)
        self._connections = connections
        self._patience = patience
        self._pool: Pool | None = None
        self._joining: Pool | None = None
        self._looks: Pool | None = None
        self._listening: asyncio.Task[None] | None = None
        self._listening_since = asyncio.Event()
        self._held: set[UUID] = set()
        self._locked: set[UUID] = set()
        self._wishes: list[tuple[str, UUID, asyncio.Future[bool]]] = []
        self._changes = 1
        self._condition = asyncio.Condition()
        self._prepared = Prepared(injected=clock is not None)
        self._callers = Callers(self.transaction)
        self._context = copy_context()

    async def open(self) -> None:
        if self._pool is not None:
            return
        self._context = copy_context()
        # One plain connection first: its error says what is wrong; the pool's would only say that time ran out.
        async with translated(self.place):
            probe = await AsyncConnection.connect(self.url, autocommit=True, connect_timeout=10)
            try:
                await self._clock.check(probe, self.place)
            finally:
                await probe.close()
            self._pool = self._made_pool(min_size=1, max_size=self._connections)
            # A connection that broke while it was idle costs a verb that is repeated; there, a task's whole work.
            self._joining = self._made_pool(
                min_size=0, max_size=MOST_JOINED, max_idle=60.0, reset=clean, check=Pool.check_connection
            )
            self._looks = self._made_pool(
                min_size=0, max_size=MOST_LOOKING, max_idle=60.0, configure=_configure_look, check=Checked()
            )
            await self._pool.open(wait=True)
        self._listening = asyncio.create_task(self._listen())
        await self._listening_since.wait()

    async def close(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            # Given back by hand: the server notices a closed connection only a little later.
            for node in sorted(self._held):
                with suppress(StoreError):
                    await self.free_lock(node)
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        for pool in (self._pool, self._joining, self._looks):
            if pool is not None:
                await pool.close()
        self._pool = self._joining = self._looks = None
        self._held.clear()
        self._listening_since.clear()

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[PostgresTransaction]:
        async with self._within(self._pool, self._made, write=write) as transaction:
            yield transaction

    def reading(self) -> AbstractAsyncContextManager[PostgresTransaction]:
        return self._plainly(self._pool)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[PostgresTransaction]:
        async with self._plainly(await self._opened(self._looks)) as transaction:
            yield transaction

    @asynccontextmanager
    async def _plainly(self, pool: Pool | None) -> AsyncIterator[PostgresTransaction]:
        """Without BEGIN, COMMIT and the clock: three trips for one statement would be most of what a page costs."""
        pool, connection = await self._borrowed(pool)
        try:
            async with translated(self.place):
                now = await self._clock.glance(connection)
            yield self._made(connection, now)
        finally:
            await pool.putconn(connection)

    def _made(self, connection: Connection, now: int) -> PostgresTransaction:
        return PostgresTransaction(connection, self._prepared, now)

    @asynccontextmanager
    async def joined(self, limit: float) -> AsyncIterator[PostgresJoined]:
        """Whoever waits for a statement can stop waiting, so nothing here has to mind the limit."""

        def made(connection: Connection, now: int) -> PostgresJoined:
            return PostgresJoined(connection, self._prepared, now, self.place, self._clock.read, self._callers)

        async with self._within(await self._opened(self._joining), made) as transaction:
            yield transaction

    async def select(self, sql: str, most: int, seconds: float, own: bool = False, /) -> Rows:  # noqa: FBT001, FBT002
        """On a connection that is cleaned when it goes back, and never committed, so that nothing is left of it. Where
        the login may not create the role that reads, what is its `own` is read as the login."""
        as_login = not await self._callers.reader(optional=own)
        pool, connection = await self._borrowed(await self._opened(self._joining))
        try:
            async with translated(self.place):
                now = await self._clock.begin(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            transaction = PostgresTransaction(connection, self._prepared, now)
            callers = None if as_login else self._callers
            return await select(transaction, callers, sql, most, seconds)
        finally:
            await undo(connection)
            await pool.putconn(connection)

    async def _opened(self, pool: Pool | None) -> Pool | None:
        if pool is not None and pool.closed:
            # Its tasks outlive whoever happens to be first, and are not to be taken for theirs.
            async with translated(self.place):
                await asyncio.create_task(pool.open(), context=self._context)
        return pool

    @asynccontextmanager
    async def _within(
        self, pool: Pool | None, made: Callable[[Connection, int], Made], *, write: bool = True
    ) -> AsyncIterator[Made]:
        pool, connection = await self._borrowed(pool)
        committing = False
        transaction: Made | None = None
        try:
            async with translated(self.place):
                begin = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                now = await self._clock.begin(connection, begin)
            transaction = made(connection, now)
            yield transaction
            async with translated(self.place):
                committing = True
                await transaction.commit()
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and committing and write:
                raise _unknown(self.place) from error.__cause__
            await (undo(connection) if transaction is None else transaction.undo())
            raise
        finally:
            await pool.putconn(connection)
        if transaction.wakes:
            await self._fire()

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Without BEGIN and COMMIT. `:now` is the server's clock, but never before what this process has seen."""
        parameters["now"] = self._clock.last if self._clock.injected is None else self._clock.told()
        pool, connection = await self._borrowed(self._pool)
        try:
            async with translated(self.place):
                cursor = await connection.execute(self._prepared.alone[name], parameters)
                rows = await cursor.fetchall()
        except BaseException as error:
            if isinstance(error, StoreUnavailable):
                raise _unknown(self.place) from error.__cause__
            raise
        finally:
            await pool.putconn(connection)
        if rows[0][0] > parameters["now"]:
            # Else it is what was told: the server's clock is behind that.
            self._clock.seen(rows[0][0])
        return rows

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[PostgresMigrator]:
        async with self.transaction() as transaction:
            await transaction.raw("SELECT pg_advisory_xact_lock(hashtext('horae.migration'))")
            yield PostgresMigrator(transaction, self.place, injected=self._clock.injected is not None)

    async def changed(self, seen: int, timeout: float | None) -> int:
        async with self._condition:
            if self._changes == seen:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._condition.wait_for(lambda: self._changes != seen), timeout)
            return self._changes

    async def take_lock(self, node: UUID) -> bool:
        self._held.add(node)
        taken = await self._wish(_TAKE, node)
        if not taken:
            self._held.discard(node)
        return taken

    async def free_lock(self, node: UUID) -> None:
        self._held.discard(node)
        await self._wish(_FREE, node)

    async def _wish(self, text: str, node: UUID) -> bool:
        """Has the listening connection run a statement about a lock; a notice wakes it from its wait."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wishes.append((text, node, answer))
        async with self.transaction() as transaction:
            transaction.wake()
        try:
            return await asyncio.wait_for(answer, self._patience)
        except TimeoutError:
            raise StoreUnavailable(f"{self.place} gave no answer about a liveness lock") from None

    async def _grant(self, connection: AsyncConnection[Row]) -> None:
        while self._wishes:
            text, node, answer = self._wishes[0]
            # Locks of one session add up, and a reconnection has taken all of `_held` already.
            if node in self._locked and text == _TAKE:
                rows: list[Row] = [(True,)]
            else:
                rows = await (await connection.execute(text, (_lock_key(node),))).fetchall()
            self._wishes.pop(0)
            (self._locked.add if text == _TAKE and rows[0][0] else self._locked.discard)(node)
            if not answer.done():
                answer.set_result(bool(rows[0][0]))

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
        return {node for node in nodes if _lock_key(UUID(node)) not in held}

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _made_pool(self, **options: Any) -> Pool:
        options = {"configure": _configure} | options
        kwargs = {"autocommit": True, "prepare_threshold": 1}
        return Pool(self.url, connection_class=Connection, open=False, timeout=self._patience, kwargs=kwargs, **options)

    async def _borrowed(self, pool: Pool | None) -> tuple[Pool, Connection]:
        """A connection, and the pool it goes back to: the store may be closed before that."""
        if pool is None:
            raise StoreUnavailable(f"The store {self.place} is not open", hint="Await its open() first.")
        async with translated(self.place):
            connection = await pool.getconn()
            try:
                await renewed(connection)
            except BaseException:
                await pool.putconn(connection)
                raise
            return pool, connection

    async def _listen(self) -> None:
        """Keeps the listening connection, its locks and its reconnections; poll once after every LISTEN."""
        pause = 0.05
        while True:
            connected = monotonic()
            try:
                connection = await AsyncConnection.connect(self.url, autocommit=True, connect_timeout=10)
                try:
                    await _configure(connection)
                    await connection.execute("LISTEN horae")
                    self._locked = set()
                    for node in sorted(self._held):
                        await connection.execute(_TAKE, (_lock_key(node),))
                        self._locked.add(node)
                    heard: list[psycopg.Notify] = []
                    connection.add_notify_handler(heard.append)
                    self._listening_since.set()
                    await self._fire()
                    while True:
                        await self._grant(connection)
                        await _hear(connection, heard)
                        heard.clear()
                        await self._fire()
                finally:
                    await connection.close()
            except (psycopg.Error, OSError):
                pause = 0.05 if monotonic() - connected > LONGEST_BACKOFF else min(pause * 2, LONGEST_BACKOFF)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads clients, guards nothing

    async def _fire(self) -> None:
        async with self._condition:
            self._changes += 1
            self._condition.notify_all()


async def _hear(connection: AsyncConnection[Any], heard: list[psycopg.Notify]) -> None:
    """Waits for a notice, unless one was heard while a statement ran. The driver's own way wakes up ten times a second
    to look whether it was interrupted, which is most of what an idle node would do."""
    loop, number = asyncio.get_running_loop(), connection.fileno()
    while not heard:
        readable = loop.create_future()
        loop.add_reader(number, _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(number)
        connection.pgconn.consume_input()
        while (notice := connection.pgconn.notifies()) is not None:
            heard.append(psycopg.Notify(notice.relname.decode(), notice.extra.decode(), notice.be_pid))


def _settle(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def _configure(connection: AsyncConnection[Any]) -> None:
    """Uuids as text, as SQLite has them: nothing here computes with them. And indexes rather than whole tables: every
    statement has its own, which a table filled a moment ago, without statistics yet, would not be given credit for.
    Before PostgreSQL 18 a small table without one then looks so dear that the server would compile the statement."""
    connection.adapters.register_loader("uuid", TextLoader)
    connection.prepared_max = MOST_PREPARED
    for text in PLANNING:
        await connection.execute(text)
    if connection.info.parameter_status("client_encoding") != "UTF8":
        raise NotACatalog("The database's encoding is not UTF-8", hint="Create the database with ENCODING 'UTF8'.")


async def _configure_look(connection: AsyncConnection[Any]) -> None:
    await _configure(connection)
    await connection.execute("SET default_transaction_read_only = on")


def _unknown(place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The connection to {place} broke while committing: it is not known whether that was done",
        hint="Repeat the call; what was done is recognised.",
        outcome_unknown=True,
    )


def _lock_key(node: UUID) -> int:
    """The key of an incarnation's advisory lock: 8 bytes of its digest, as a signed number."""
    return int.from_bytes(sha256(node.bytes).digest()[:8], "big", signed=True)
