"""Transactions on SQLite: the catalog's named statements, a task's own statements, and schema changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from horae.errors import shown
from horae.store.driver import Parameters, RoleChange, Row
from horae.store.protocols.people import Identity
from horae.store.records import Rows
from horae.store.sqlite.failures import translated
from horae.store.sqlite.text import foreign_statements, sql_text
from horae.store.sqlite.text.authorizer import Variables


class SqliteTransaction:
    """Runs named statements on one connection, inside BEGIN and COMMIT."""

    __slots__ = ("_connection", "_prepared", "deferred", "now", "wakes")
    overlaps = False

    def __init__(self, connection: apsw.Connection, prepared: Mapping[str, str], now: int) -> None:
        self._connection = connection
        self._prepared = prepared
        self.now = now
        self.wakes = False
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._rows(name, self._bound(parameters))

    def _bound(self, parameters: dict[str, Any]) -> dict[str, Any]:
        bound = {key: json.dumps(value) if isinstance(value, list) else value for key, value in parameters.items()}
        bound.setdefault("now", self.now)
        return bound

    def _rows(self, name: str, bound: dict[str, Any]) -> list[Row]:
        with translated(name):
            return self._connection.execute(self._prepared[name], bound).fetchall()

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        if not rows:
            return 0
        before = self._connection.total_changes()
        with translated(name):
            self._connection.executemany(self._prepared[name], rows)
        return self._connection.total_changes() - before

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        return [await self.many(name, rows) for name, rows in writes]

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        bound = self._bound(parameters)
        meanwhile()
        self._rows(first, bound)
        return await self.batch(writes), self._rows(then, bound)

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        await self.batch(writes)

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        self.deferred += writes

    async def provision(self, change: RoleChange, /) -> str | None:
        """Does nothing: a file has no roles. The authorizer reads the catalog's own rows."""
        return None

    def wake(self) -> None:
        self.wakes = True


class SqliteJoinedTransaction(SqliteTransaction):
    """Runs a task's own statements first, then, after `conclude`, the catalog's."""

    __slots__ = ("_failed", "clock", "ends_at", "variables")
    clock: Callable[[], int]
    ends_at: float
    variables: Variables

    @property
    def spoiled(self) -> bool:
        """A failed statement undoes only itself, unless it rolled back or a full disk did. A failed text undoes
        everything."""
        return getattr(self, "_failed", False) or not self._connection.in_transaction

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        self._failed = True
        rows = sql_text.run_text(
            self._connection, sql, identity, most, sql_text.TimeLimit(self.ends_at), self.variables
        )
        self._failed = False
        return rows

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        return foreign_statements.run(self._connection, sql, parameters, self.ends_at)

    async def conclude(self) -> None:
        foreign_statements.check_deferred(self._connection)
        self.now = self.clock()


class SqliteMigrator:
    """Changes the schema inside one BEGIN IMMEDIATE, whose write lock keeps other processes out."""

    def __init__(self, connection: apsw.Connection, path: str, now: int, *, injected: bool) -> None:
        self._connection = connection
        self.now = now
        self.place = shown(path)
        self.clock = None if injected else now

    async def kind(self) -> str:
        """Users' tables may be in the same file: it is foreign only where its tables have the catalog's names."""
        names = {row[0] for row in self._all("SELECT name FROM sys.sqlite_schema WHERE type IN ('table', 'view')")}
        if "schema_migrations" in names:
            columns = {row[1] for row in self._all("PRAGMA sys.table_info(schema_migrations)")}
            return "catalog" if "min_reader" in columns else "foreign"
        return "foreign" if names & {"jobs", "job_runs", "users", "audit", "nodes", "settings"} else "empty"

    async def applied(self) -> list[tuple[int, str, int]]:
        return [tuple(row) for row in self._all("SELECT number, digest, min_reader FROM sys.schema_migrations")]

    async def latest_time(self) -> int | None:
        newest: int | None = self._all(
            "SELECT max(coalesce((SELECT max(applied_at) FROM sys.schema_migrations), 0),"
            " coalesce((SELECT max(heartbeat_at) FROM sys.nodes), 0))"
        )[0][0]
        return newest

    async def run(self, text: str) -> None:
        with translated(self.place):
            self._connection.execute(text).fetchall()

    async def record(self, number: int, name: str, digest: str, min_reader: int) -> None:
        row = (number, name, digest, min_reader, self.now)
        self._all(
            "INSERT INTO sys.schema_migrations (number, name, digest, min_reader, applied_at) VALUES (?, ?, ?, ?, ?)",
            row,
        )

    def _all(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with translated(self.place):
            return self._connection.execute(text, values).fetchall()
