"""Execution of a text on a named SQLite file, inside the child process that was started for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic, sleep
from typing import Any

import apsw

from horae.store import foreign_statements
from horae.store.catalog.bounded_rows import RowBuffer
from horae.store.records import Rows
from horae.store.sqlite.text.authorizer import current_setting
from horae.store.sqlite.text.sql_text import SORT_IN_MEMORY

_ALONE = frozenset({"VACUUM", "PRAGMA"})
"""Statements that cannot run inside a transaction."""
_READS = frozenset({"SELECT", "VALUES", "EXPLAIN"})
_LOOK_AGAIN = 0.02


def run(path: str, sql: str, variables: Mapping[str, str], most: int, patience: float) -> Rows:
    """Runs a text, in one transaction where that is possible. `patience` is how many seconds it waits for another
    writer. Raises apsw.Error."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        until = monotonic() + patience
        connection.set_busy_handler(lambda _: _waited(until))
        for name, value in variables.items():
            connection.create_scalar_function(name, partial(_constant, value), 0)
        for count in (1, 2):
            connection.create_scalar_function("current_setting", partial(current_setting, variables), count)
        word, rest = foreign_statements.head(sql, nested=False)
        if word != "VACUUM":
            connection.execute(SORT_IN_MEMORY).fetchall()
        connection.authorizer = _authorized
        if word in _ALONE:
            return _executed(connection, sql, most)
        # A text that only reads does not wait for writers, and writers do not wait for it.
        only_reads = word in _READS and ";" not in rest.rstrip().rstrip(";")
        connection.execute("BEGIN" if only_reads else "BEGIN IMMEDIATE")
        rows = _executed(connection, sql, most)
        connection.execute("COMMIT")
        return rows
    finally:
        # Closing the connection rolls back what was not committed.
        connection.close()


def _waited(until: float) -> bool:
    """Sleeps for a moment; returns whether to try again for the write lock."""
    sleep(_LOOK_AGAIN)
    return monotonic() < until


def _executed(connection: apsw.Connection, sql: str, most: int) -> Rows:
    before = connection.total_changes()
    cursor = connection.cursor()
    found: list[tuple[tuple[str, ...], RowBuffer]] = []

    def trace(each: apsw.Cursor, statement: str, bindings: object) -> bool:
        columns = tuple(column[0] for column in each.get_description())
        if columns:
            found.append((columns, RowBuffer(most)))
        return True

    cursor.exec_trace = trace
    for row in cursor.execute(sql):
        found[-1][1].take(row)
    changed = connection.total_changes() - before
    if not found:
        return Rows((), changed)
    columns, room = found[-1]
    return room.rows(columns, changed or None)


def _constant(value: str, *_: Any) -> str:
    return value


def _authorized(operation: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Refuses to attach another file. A database without a name is allowed, because VACUUM works in one."""
    is_other = operation == apsw.SQLITE_ATTACH and first != ""
    return apsw.SQLITE_DENY if is_other else apsw.SQLITE_OK
