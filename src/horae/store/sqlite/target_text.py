"""A text on a named SQLite file, as the process runs it that was started for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic, sleep
from typing import Any

import apsw

from horae.store import foreign
from horae.store.bounding import Room
from horae.store.records import Rows
from horae.store.sqlite.running import WITHOUT_FILES

_ALONE = frozenset({"VACUUM", "PRAGMA"})
"""What cannot be said inside a transaction."""
_READS = frozenset({"SELECT", "VALUES", "EXPLAIN"})
_LOOK_AGAIN = 0.02


def run(path: str, sql: str, variables: Mapping[str, str], most: int, patience: float) -> Rows:
    """Runs it in one transaction where that is possible. `patience`: seconds that it waits for another writer. Raises
    apsw.Error."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        until = monotonic() + patience
        connection.set_busy_handler(lambda _: _waited(until))
        for name, value in variables.items():
            connection.create_scalar_function(name, partial(_constant, value), 0)
        connection.create_scalar_function("current_setting", partial(_setting, variables), 1)
        word, rest = foreign.head(sql, nested=False)
        if word != "VACUUM":
            connection.execute(WITHOUT_FILES).fetchall()
        connection.authorizer = _authorized
        if word in _ALONE:
            return _executed(connection, sql, most)
        # A text that only reads does not wait for writers, nor they for it.
        only_reads = word in _READS and ";" not in rest.rstrip().rstrip(";")
        connection.execute("BEGIN" if only_reads else "BEGIN IMMEDIATE")
        rows = _executed(connection, sql, most)
        connection.execute("COMMIT")
        return rows
    finally:
        # What was not committed is undone.
        connection.close()


def _waited(until: float) -> bool:
    """Whether to try again for the writer's place, after a moment."""
    sleep(_LOOK_AGAIN)
    return monotonic() < until


def _executed(connection: apsw.Connection, sql: str, most: int) -> Rows:
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


def _constant(value: str, *_: Any) -> str:
    return value


def _setting(variables: Mapping[str, str], *names: Any) -> str | None:
    """`current_setting('horae.job_name')`, as on PostgreSQL."""
    return variables.get(str(names[0]).removeprefix("horae."))


def _authorized(operation: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Other files are not this connection's. One without a name is no file of anybody's: VACUUM works in such a one."""
    is_other = operation == apsw.SQLITE_ATTACH and first != ""
    return apsw.SQLITE_DENY if is_other else apsw.SQLITE_OK
