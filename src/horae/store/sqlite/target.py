"""A named connection to a SQLite file: SQL jobs that are not on the catalog's own database.

The text runs in a thread, in one transaction, on a connection of its own; asked to stop, its statement is interrupted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import apsw

from horae.errors import StatementFailed, shown
from horae.store import foreign
from horae.store.bounding import Room
from horae.store.records import Rows

_ALONE = frozenset({"VACUUM", "PRAGMA"})
"""What cannot be said inside a transaction."""
PATIENCE = 10.0
"""Seconds that it waits for somebody else who writes."""
STEPS = 10_000
_LOOK_AGAIN = 0.02


class SqliteTarget:
    """One file, by its path."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._path = path

    async def run_text(self, sql: str, variables: Mapping[str, str], most: int) -> Rows:
        connection = self._opened()
        stopped = threading.Event()
        # Both: an interrupt means nothing to what has not begun, and the flag nothing to a long single step.
        connection.set_progress_handler(stopped.is_set, STEPS)
        connection.set_busy_handler(partial(_patient, stopped, monotonic() + PATIENCE))
        work = asyncio.ensure_future(asyncio.to_thread(self._run, connection, sql, variables, most))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stopped.set()
            connection.interrupt()
            await asyncio.gather(work, return_exceptions=True)
            raise
        finally:
            connection.close()

    def _opened(self) -> apsw.Connection:
        if not Path(self._path).is_file():
            raise StatementFailed(
                f"The connection {shown(self._name)} names a file that is not there: {shown(self._path)}",
                hint="Create it, or mend its url in the configuration.",
            )
        try:
            return apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            raise self._failed(error) from error

    def _run(self, connection: apsw.Connection, sql: str, variables: Mapping[str, str], most: int) -> Rows:
        word, _ = foreign.head(sql, nested=False)
        try:
            for name, value in variables.items():
                connection.create_scalar_function(name, partial(_constant, value), 0)
            connection.create_scalar_function("current_setting", partial(_setting, variables), 1)
            connection.authorizer = _authorized
            if word in _ALONE:
                return self._executed(connection, sql, most)
            connection.execute("BEGIN IMMEDIATE")
            try:
                rows = self._executed(connection, sql, most)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return rows
        except apsw.Error as error:
            raise self._failed(error) from error

    def _executed(self, connection: apsw.Connection, sql: str, most: int) -> Rows:
        before = connection.total_changes()
        cursor = connection.cursor()
        found: list[tuple[tuple[str, ...], Room]] = []

        def trace(each: apsw.Cursor, statement: str, bindings: object) -> bool:
            columns = tuple(column[0] for column in each.get_description())
            if columns:
                found.append((columns, Room(most)))
            return True

        cursor.exec_trace = trace
        for row in cursor.execute(sql):
            found[-1][1].take(row)
        changed = connection.total_changes() - before
        if not found:
            return Rows((), changed)
        columns, room = found[-1]
        return room.rows(columns, changed or None)

    def _failed(self, error: apsw.Error) -> StatementFailed:
        return StatementFailed(f"On the connection {shown(self._name)}: {error}")


def _patient(stopped: threading.Event, until: float, times: int) -> bool:
    """Whether to try again for the writer's place, after a moment."""
    return monotonic() < until and not stopped.wait(_LOOK_AGAIN)


def _constant(value: str, *_: Any) -> str:
    return value


def _setting(variables: Mapping[str, str], *names: Any) -> str | None:
    """`current_setting('horae.job_name')`, as on PostgreSQL."""
    return variables.get(str(names[0]).removeprefix("horae."))


def _authorized(operation: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Other files are not this connection's. One without a name is no file of anybody's: VACUUM works in such a one."""
    is_other = operation == apsw.SQLITE_ATTACH and first != ""
    return apsw.SQLITE_DENY if is_other else apsw.SQLITE_OK
