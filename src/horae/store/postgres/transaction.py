"""Transactions on PostgreSQL: named statements, writes sent ahead or deferred to the commit; and schema changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor, pq

from horae.errors import StoreConflict, StoreUnavailable
from horae.store.driver import RoleChange, Row, statements
from horae.store.postgres.arrays import BatchStatement, array_literal
from horae.store.postgres.failures import translated
from horae.store.postgres.limits import LIMITS, MIGRATING

CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
SAFE_PATH = "pg_catalog, pg_temp"
"""If pg_temp were not named, temporary tables and types would be found before those of pg_catalog."""
PLANNING = ("SET enable_seqscan = off", "SET jit = off", f"SET search_path = {SAFE_PATH}", *LIMITS)
_OURS = "Horae catalog"
LONGEST_CHANGE = 6 * 3600.0
"""Seconds that a change of the schema may take, because it may rewrite large tables."""


class PreparedStatements:
    """The catalog's statements in psycopg's style: run once, for many rows, or as a transaction of their own."""

    def __init__(self, *, injected: bool = False) -> None:
        """`injected` says that the clock is injected. Then statements that are a transaction of their own get the time
        as a parameter, rather than read the server's clock."""
        every = statements("postgres")
        self.once = {
            name: each.with_parameters(lambda parameter: f"%({parameter})s")
            for name, each in every.items()
            if each.columns is None
        }
        self.many = {name: BatchStatement(each) for name, each in every.items() if each.columns is not None}
        now = "%(now)s::bigint" if injected else f"greatest(%(now)s::bigint, {CLOCK})"
        self.alone = {
            name: each.with_parameters(lambda parameter: now if parameter == "now" else f"%({parameter})s")
            for name, each in statements("postgres", "alone").items()
        }


class PostgresTransaction:
    """Runs named statements on one connection, inside BEGIN and COMMIT."""

    __slots__ = ("_ahead", "_connection", "_prepared", "deferred", "now", "wakes")
    overlaps = True

    def __init__(self, connection: AsyncConnection[Row], prepared: PreparedStatements, now: int) -> None:
        self._connection = connection
        self._prepared = prepared
        self.now = now
        self.wakes = False
        self._ahead: AsyncExitStack | None = None
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    @property
    def connection(self) -> AsyncConnection[Row]:
        return self._connection

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        async with translated(name):
            await self._caught_up()
            cursor = await self._connection.execute(self._prepared.once[name], self._parameters(parameters))
            return await cursor.fetchall() if cursor.description is not None else []

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        """In one pipeline: the server works on one statement while the next one is prepared for sending."""
        if len(writes) < 2:
            return [await self.many(name, rows) for name, rows in writes]
        async with translated(writes[0][0]):
            await self._caught_up()
            async with self._connection.pipeline():
                cursors = [await self._write(name, rows) for name, rows in writes]
            return [cursor.rowcount for cursor in cursors]

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        bound = self._parameters(parameters)
        async with translated(first):
            await self._caught_up()
            async with self._connection.pipeline():
                await self._connection.execute(self._prepared.once[first], bound)
                cursors = [await self._write(name, rows) for name, rows in writes]
                last = await self._connection.execute(self._prepared.once[then], bound)
                meanwhile()
            return [cursor.rowcount for cursor in cursors], await last.fetchall()

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        """Opens a pipeline, which the next statement or the commit closes."""
        async with translated(writes[0][0]):
            if self._ahead is None:
                self._ahead = AsyncExitStack()
                await self._ahead.enter_async_context(self._connection.pipeline())
            for name, rows in writes:
                await self._write(name, rows)

    async def _caught_up(self) -> None:
        """Waits for the writes that were sent ahead, and raises their errors."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await ahead.aclose()

    async def undo(self) -> None:
        with suppress(psycopg.Error):
            await self._caught_up()
        await undo(self._connection)

    async def _write(self, name: str, rows: Sequence[Row]) -> AsyncCursor[Row]:
        return await self._connection.execute(*self._prepared.many[name].bound(rows))

    def _parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        bound = {key: array_literal(value) if isinstance(value, list) else value for key, value in parameters.items()}
        bound.setdefault("now", self.now)
        return bound

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        self.deferred += writes

    async def commit(self) -> None:
        """Sends the deferred writes, the notice and COMMIT in one trip, together with writes sent ahead."""
        async with self._ahead or self._connection.pipeline():
            self._ahead = None
            for name, rows in self.deferred:
                await self._write(name, rows)
            if self.wakes:
                await self._connection.execute("SELECT pg_notify('horae', '')")
            await self._connection.execute("COMMIT")

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        if not rows:
            return 0
        async with translated(name):
            await self._caught_up()
            cursor = await self._write(name, rows)
            return cursor.rowcount

    async def raw(self, text: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[Row]:
        """Runs a statement of the driver, which is not one of the catalog's named statements."""
        async with translated(text):
            await self._caught_up()
            cursor = await self._connection.execute(text, values or None)
            return await cursor.fetchall() if cursor.description is not None else []

    async def provision(self, change: RoleChange, /) -> str | None:
        from horae.store.postgres.text.roles import provision

        return await provision(self, change)

    def wake(self) -> None:
        self.wakes = True


async def lock_migrations(transaction: PostgresTransaction, *, write: bool) -> None:
    """Locks the schema: processes that change it exclude each other, and processes that only read it wait for them.

    Without a catalog there is no table to lock, so an advisory lock is taken. Job text could take that lock too, but
    runs only where there is a catalog. Raises StoreUnavailable where another change of the schema takes longer than the
    limit on waiting for a lock.
    """
    try:
        await _lock_migrations(transaction, write=write)
    except StoreConflict as error:
        raise StoreUnavailable(
            "Another process is changing the schema of this catalog", hint="Try again when it has finished."
        ) from error


async def _lock_migrations(transaction: PostgresTransaction, *, write: bool) -> None:
    lock = f"LOCK TABLE sys.schema_migrations IN {'EXCLUSIVE' if write else 'ROW SHARE'} MODE"
    is_there = "SELECT 1 WHERE to_regclass('sys.schema_migrations') IS NOT NULL"
    if await transaction.raw(is_there):
        await transaction.raw(lock)
    elif write:
        await transaction.raw("SELECT pg_advisory_xact_lock(hashtext('horae.migration'))")
        if await transaction.raw(is_there):
            await transaction.raw(lock)


class PostgresMigrator:
    """Changes the schema in one transaction, under `lock_migrations`."""

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
        """Has a limit on waiting for locks, because other statements queue behind a waiting schema change."""
        await self._transaction.raw(MIGRATING)
        connection: Any = self._transaction.connection
        before, connection.answer_limit = connection.answer_limit, LONGEST_CHANGE
        await self._transaction.raw(text)
        connection.answer_limit = before

    async def record(self, number: int, name: str, digest: str, min_reader: int) -> None:
        await self._transaction.raw(
            "INSERT INTO sys.schema_migrations (number, name, digest, min_reader, applied_at)"
            " VALUES (%s, %s, %s, %s, %s)",
            (number, name, digest, min_reader, self._transaction.now),
        )


async def undo(connection: AsyncConnection[Row]) -> None:
    """Rolls back by psycopg's own method, which also forgets which statements are prepared. A statement that was first
    prepared in a broken pipeline never reached the server, and every later use of it would fail.

    Where no transaction is open, even BEGIN failed, and psycopg's rollback would do nothing. Then the connection is
    closed, and the pool replaces it."""
    if connection.closed:
        return
    with suppress(psycopg.Error):
        if connection.info.transaction_status == pq.TransactionStatus.IDLE:
            await connection.close()
        else:
            await connection.rollback()
