"""PostgreSQL by psycopg: a pool for transactions, one more connection that listens and holds the liveness locks.

A transaction is BEGIN, the clock, named statements, COMMIT. Many rows go in one statement, as arrays written out here:
the driver would adapt value by value, at ten times the cost. A connection that breaks while committing leaves the
outcome unknown, and that is what is raised; every verb may then be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from time import monotonic, time_ns
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool

from horae.core.instant import EPOCH
from horae.core.liveness import RECONNECTION
from horae.errors import ClockImplausible, NotACatalog, StoreError, StoreUnavailable
from horae.store.driver import Clock, Row, Statement, statements
from horae.store.postgres.arrays import array_literal, column_literal
from horae.store.postgres.failures import shown_place, translated

_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_OURS = "Horae catalog"
_TAKE = "SELECT pg_try_advisory_lock(%s)"
_FREE = "SELECT pg_advisory_unlock(%s)"
LONGEST_BACKOFF = 5.0
YEAR_MS = 366 * 86_400_000


class PostgresDriver:
    """One database. `clock` replaces the server's clock; a process opens up to `connections`, plus one to listen."""

    dialect = "postgres"
    lock_grace = RECONNECTION

    def __init__(self, url: str, *, clock: Clock | None = None, connections: int = 8, patience: float = 30.0) -> None:
        self.url = url
        self.place = shown_place(url)
        self._clock = clock
        self._connections = connections
        self._patience = patience
        self._pool: AsyncConnectionPool[AsyncConnection[Row]] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._listening_since = asyncio.Event()
        self._held: set[UUID] = set()
        self._locked: set[UUID] = set()
        self._wishes: list[tuple[str, UUID, asyncio.Future[bool]]] = []
        self._last = 0
        self._changes = 1
        self._condition = asyncio.Condition()
        self._prepared = {name: _prepared(each) for name, each in statements("postgres").items()}

    async def open(self) -> None:
        if self._pool is not None:
            return
        # One plain connection first: its error says what is wrong; the pool's would only say that time ran out.
        async with translated(self.place):
            probe = await AsyncConnection.connect(self.url, autocommit=True, connect_timeout=10)
            try:
                await self._check_clock(probe)
            finally:
                await probe.close()
            self._pool = AsyncConnectionPool(
                self.url,
                min_size=1,
                max_size=self._connections,
                open=False,
                timeout=self._patience,
                kwargs={"autocommit": True, "prepare_threshold": 1},
                configure=_configure,
                check=None,
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
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        self._held.clear()
        self._listening_since.clear()

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[PostgresTransaction]:
        if self._pool is None:
            raise StoreUnavailable(f"The store {self.place} is not open", hint="Await its open() first.")
        async with translated(self.place):
            connection = await self._pool.getconn()
        committing = False
        try:
            async with translated(self.place):
                begin = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
                now = await self._begin(connection, begin)
            transaction = PostgresTransaction(connection, self._prepared, now)
            yield transaction
            async with translated(self.place):
                committing = True
                await transaction.commit()
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and committing and write:
                raise StoreUnavailable(
                    f"The connection to {self.place} broke while committing: it is not known whether that was done",
                    hint="Repeat the call; what was done is recognised.",
                    outcome_unknown=True,
                ) from error.__cause__
            await _undo(connection)
            raise
        finally:
            await self._pool.putconn(connection)
        if transaction.wakes:
            await self._fire()

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[PostgresMigrator]:
        async with self.transaction() as transaction:
            await transaction.raw("SELECT pg_advisory_xact_lock(hashtext('horae.migration'))")
            yield PostgresMigrator(transaction, self.place, injected=self._clock is not None)

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
        async with self.transaction(write=False) as transaction:
            rows = await transaction.raw(
                "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
                " WHERE locktype = 'advisory' AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        held = {row[0] for row in rows}
        return {node for node in nodes if _lock_key(UUID(node)) not in held}

    # ---- inside ------------------------------------------------------------------------------------------------------

    async def _begin(self, connection: AsyncConnection[Row], begin: str) -> int:
        """BEGIN and the clock in one round trip."""
        if self._clock is not None:
            await connection.execute(begin)
            elapsed = self._clock() - EPOCH
            now = elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000
        else:
            async with connection.pipeline():
                await connection.execute(begin)
                cursor = await connection.execute(f"SELECT {_CLOCK}")
            now = (await cursor.fetchall())[0][0]
        self._last = max(self._last, now)
        return self._last

    async def _check_clock(self, connection: AsyncConnection[Row]) -> None:
        """The server's clock decides what is due; if it is a year from ours, one of them is wrong."""
        if self._clock is not None:
            return
        server = (await (await connection.execute(f"SELECT {_CLOCK}")).fetchall())[0][0]
        here = time_ns() // 1_000_000
        if abs(server - here) > YEAR_MS:
            raise ClockImplausible(
                f"The clock of {self.place} and this machine's differ by {abs(server - here) // 86_400_000} days",
                hint="Set the one that is wrong, then start again.",
            )

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
                    self._listening_since.set()
                    await self._fire()
                    while True:
                        await self._grant(connection)
                        async for _ in connection.notifies(timeout=60.0, stop_after=1):
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


class PostgresTransaction:
    """Named statements on one connection, inside BEGIN and COMMIT."""

    __slots__ = ("_connection", "_prepared", "deferred", "now", "wakes")

    def __init__(self, connection: AsyncConnection[Row], prepared: dict[str, tuple[str, Statement]], now: int) -> None:
        self._connection = connection
        self._prepared = prepared
        self.now = now
        self.wakes = False
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        bound = {key: array_literal(value) if isinstance(value, list) else value for key, value in parameters.items()}
        bound.setdefault("now", self.now)
        async with translated(name):
            cursor = await self._connection.execute(self._prepared[name][0], bound)
            return await cursor.fetchall() if cursor.description is not None else []

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        """In one pipeline: the server works on one statement while the next is written out."""
        if len(writes) < 2:
            return [await self.many(name, rows) for name, rows in writes]
        async with translated(writes[0][0]):
            async with self._connection.pipeline():
                cursors = [await self._connection.execute(*self._bound(name, rows)) for name, rows in writes]
            return [cursor.rowcount for cursor in cursors]

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        self.deferred += writes

    async def commit(self) -> None:
        """What was left for last, the notice, and COMMIT, in one trip."""
        async with self._connection.pipeline():
            for name, rows in self.deferred:
                await self._connection.execute(*self._bound(name, rows))
            if self.wakes:
                await self._connection.execute("SELECT pg_notify('horae', '')")
            await self._connection.execute("COMMIT")

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        if not rows:
            return 0
        async with translated(name):
            cursor = await self._connection.execute(*self._bound(name, rows))
            return cursor.rowcount

    def _bound(self, name: str, rows: Sequence[Row]) -> tuple[str, dict[str, str]]:
        text, statement = self._prepared[name]
        assert statement.columns is not None
        columns = zip(*rows, strict=True)
        bound = {
            name: column_literal(values, kind)
            for name, kind, values in zip(statement.columns, statement.types, columns, strict=True)
        }
        return text, bound

    async def raw(self, text: str, values: tuple[Any, ...] = ()) -> list[Row]:
        """A statement that belongs to the driver, not to the catalog."""
        async with translated(text):
            cursor = await self._connection.execute(text, values or None)
            return await cursor.fetchall() if cursor.description is not None else []

    def wake(self) -> None:
        self.wakes = True


class PostgresMigrator:
    """Schema changes in one transaction, under an advisory lock."""

    def __init__(self, transaction: PostgresTransaction, place: str, *, injected: bool) -> None:
        self._transaction = transaction
        self.place = place
        self.clock = None if injected else transaction.now

    async def kind(self) -> str:
        rows = await self._transaction.raw(
            "SELECT obj_description(oid, 'pg_namespace'), to_regclass('sys.schema_migrations') IS NOT NULL,"
            " EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid) FROM pg_namespace n WHERE nspname = 'sys'"
        )
        if not rows:
            return "empty"
        comment, has_migrations, has_anything = rows[0]
        if comment == _OURS and has_migrations:
            return "catalog"
        return "foreign" if has_anything else "empty"

    async def applied(self) -> list[tuple[int, str, int]]:
        rows = await self._transaction.raw("SELECT number, digest, min_reader FROM sys.schema_migrations")
        return [(row[0], row[1], row[2]) for row in rows]

    async def latest_time(self) -> int | None:
        rows = await self._transaction.raw(
            "SELECT greatest((SELECT max(applied_at) FROM sys.schema_migrations),"
            " (SELECT max(heartbeat_at) FROM sys.nodes))"
        )
        latest: int | None = rows[0][0]
        return latest

    async def run(self, text: str) -> None:
        """Gives up rather than hold everybody up behind a lock it waits for."""
        await self._transaction.raw("SET LOCAL lock_timeout = '10s'")
        await self._transaction.raw(text)

    async def record(self, number: int, name: str, digest: str, min_reader: int) -> None:
        await self._transaction.raw(
            "INSERT INTO sys.schema_migrations (number, name, digest, min_reader, applied_at)"
            " VALUES (%s, %s, %s, %s, %s)",
            (number, name, digest, min_reader, self._transaction.now),
        )


def _prepared(statement: Statement) -> tuple[str, Statement]:
    """The text with psycopg's placeholders, and `:rows` as the arrays' unnest."""
    if statement.columns is None:
        return statement.with_parameters(lambda name: f"%({name})s"), statement
    arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in zip(statement.columns, statement.types, strict=True))
    names = ", ".join(statement.columns)
    rows = f"unnest({arrays}) AS given ({names})"
    return statement.with_parameters(lambda _: rows), statement


async def _configure(connection: AsyncConnection[Any]) -> None:
    """Uuids as text, as SQLite has them: nothing here computes with them."""
    connection.adapters.register_loader("uuid", TextLoader)
    if connection.info.parameter_status("client_encoding") != "UTF8":
        raise NotACatalog("The database's encoding is not UTF-8", hint="Create the database with ENCODING 'UTF8'.")


async def _undo(connection: AsyncConnection[Row]) -> None:
    if connection.closed or connection.info.transaction_status == pq.TransactionStatus.IDLE:
        return
    with suppress(psycopg.Error):
        await connection.execute("ROLLBACK")


def _lock_key(node: UUID) -> int:
    """The key of an incarnation's advisory lock: 8 bytes of its digest, as a signed number."""
    return int.from_bytes(sha256(node.bytes).digest()[:8], "big", signed=True)
