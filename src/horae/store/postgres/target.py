"""A named connection to a PostgreSQL database: SQL jobs that are not on the catalog's own, with a login of their own.

The whole text goes as one message, so that several statements are one transaction unless they say otherwise, and those
that cannot be inside one (VACUUM, CREATE DATABASE) can be said alone. Asked to stop, the statement is cancelled.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import psycopg
from psycopg import AsyncCursor
from psycopg.rows import tuple_row

from horae.errors import StatementFailed, shown
from horae.store import foreign
from horae.store.bounding import Room, bounded
from horae.store.driver import Row
from horae.store.postgres.links import kept_alive
from horae.store.postgres.pooling import Connection, at_most
from horae.store.records import Rows
from horae.store.vault import Identity

_READING = frozenset({"SELECT", "VALUES", "TABLE"})
_WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_SHORTEST = 3
"""Letters of a piece of a login that is looked for: shorter ones are in any sentence."""
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"})
"""What a statement says of itself that has changed rows: those count, as on the catalog's own database."""


class PostgresTarget:
    """One database, by its URL."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        try:
            connection = await Connection.connect(
                kept_alive(self._url), autocommit=True, connect_timeout=10, row_factory=tuple_row
            )
        except psycopg.Error as error:
            # Without a cause: of a url that it cannot read the driver says what it read, password and all.
            raise StatementFailed(
                f"Cannot reach the connection {shown(self._name)}: {_without_login(str(error).strip(), self._url)}",
                hint="Is its url right, and its server up?",
            ) from None
        # Its statements take as long as the task that waits for them lets them.
        connection.answer_limit = float("inf")
        try:
            with at_most(connection, most):
                cursor = connection.cursor()
                for name, value in identity.variables.items():
                    await cursor.execute("SELECT set_config(%s, %s, false)", (f"horae.{name}", value))
                return await self._executed(cursor, sql, most)
        except psycopg.Error as error:
            details = {"sqlstate": error.sqlstate} if error.sqlstate else None
            raise StatementFailed(f"On the connection {shown(self._name)}: {error}", details=details) from error
        finally:
            await connection.close()

    async def _executed(self, cursor: AsyncCursor[Row], sql: str, most: int) -> Rows:
        if _reads(sql) and not _several(sql):
            # Row by row: what it answers may be more than memory holds.
            room = Room(most)
            async for row in cursor.stream(sql.encode()):
                room.take(row)
            return room.rows(_columns(cursor))
        await cursor.execute(sql.encode())
        answer, changed = Rows((), -1), -1
        while True:
            if cursor.description is not None:
                answer = bounded(await cursor.fetchall(), _columns(cursor), most)
            if (cursor.statusmessage or "").partition(" ")[0] in _CHANGING:
                changed = max(changed, 0) + cursor.rowcount
            if not cursor.nextset():
                break
        if changed >= 0:
            answer.rowcount = changed
        return answer


def _without_login(told: str, url: str) -> str:
    """What the driver said, without any piece of what stands before the host, or of a parameter, however it was cut."""
    rest = url.partition("://")[2]
    place, _, parameters = rest.partition("?")
    pieces = re.split(r"[:@/]", place.rpartition("@")[0]) + re.split(r"[&=]", parameters)
    for piece in sorted({form for each in pieces for form in (each, unquote(each))}, key=len, reverse=True):
        if len(piece) >= _SHORTEST:
            told = told.replace(piece, "***")
    return told


def _columns(cursor: AsyncCursor[Row]) -> tuple[str, ...]:
    return () if cursor.description is None else tuple(column.name for column in cursor.description)


def _reads(sql: str) -> bool:
    """Whether it is certain to answer rows, and to change none."""
    word, _ = foreign.head(sql, nested=True)
    return word in _READING or (word == "WITH" and _WRITES.search(sql) is None)


def _several(sql: str) -> bool:
    """Whether there may be more than one statement: a semicolon that something follows."""
    return ";" in sql.rstrip().rstrip(";")
