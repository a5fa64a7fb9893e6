"""One transaction on SQLite: named statements on one connection; a task's own beside them; and schema changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from horae.errors import shown
from horae.store.driver import Parameters, RoleChange, Row
from horae.store.records import Rows
from horae.store.sqlite import foreign, running
from horae.store.sqlite.failures import translated
from horae.store.sqlite.guarding import Variables
from horae.store.vault import Identity


class SqliteTransaction:
    """Named statements on the one connection, inside BEGIN and COMMIT."""

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
        """A file knows no roles: the catalog's own rows are what an authorizer asks."""
        return None

    def wake(self) -> None:
        self.wakes = True


class SqliteJoined(SqliteTransaction):
    """First statements of a task's own, then, from `conclude` on, the catalog's."""

    __slots__ = ("_failed", "clock", "ends_at", "variables")
    clock: Callable[[], int]
    ends_at: float
    variables: Variables

    @property
    def spoiled(self) -> bool:
        """A statement that failed undoes only itself, unless it said ROLLBACK or the disk did; a text, everything."""
        return getattr(self, "_failed", False) or not self._connection.in_transaction

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        self._failed = True
        rows = running.run_text(self._connection, sql, identity, most, running.Limit(self.ends_at), self.variables)
        self._failed = False
        return rows

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        return foreign.run(self._connection, sql, parameters, self.ends_at)

    async def conclude(self) -> None:
        foreign.check_deferred(self._connection)
        self.now = self.clock()


class SqliteMigrator:
    """Schema changes inside one BEGIN IMMEDIATE: the writer's place is the lock."""

    def __init__(self, connection: apsw.Connection, path: str, now: int, *, injected: bool) -> None:
        self._connection = connection
        self.now = now
        self.place = shown(path)
        self.clock = None if injected else now

    async def kind(self) -> str:
        """User tables may live in the same file; only names that the catalog uses are in the way."""
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
