"""A named connection to a PostgreSQL database, with a login of its own, for SQL jobs not on the catalog's database.

The whole text is sent as one message. So several statements are one transaction, unless the text itself ends it, and a
statement that cannot run in one (VACUUM, CREATE DATABASE) can be a text of its own. When the task is cancelled, so is
the statement.
"""

from __future__ import annotations

import re
from asyncio import sleep
from urllib.parse import unquote

import psycopg
from psycopg.adapt import Transformer
from psycopg.generators import fetch, send
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from horae.errors import StatementFailed, shown
from horae.store.catalog.bounded_rows import RowBuffer
from horae.store.postgres.keepalive import kept_alive
from horae.store.postgres.pool import MOST_NOTICE_BYTES, AnswerTooLarge, PostgresConnection, at_most
from horae.store.protocols.people import Identity
from horae.store.records import Rows

_ANSWERS = (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_ROWS_IN_A_ROW = 64
"""Rows after which other tasks of the event loop run: a server may send faster than rows are read."""
_SHORTEST = 3
"""The fewest characters of a part of a login that is removed from messages: shorter parts occur in any sentence."""
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"})
"""Command tags of statements whose row counts are added up, as on the catalog's own database."""


class PostgresTarget:
    """Runs texts on one database, by its URL."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        try:
            connection = await PostgresConnection.connect(
                kept_alive(self._url), autocommit=True, connect_timeout=10, row_factory=tuple_row
            )
        except psycopg.Error as error:
            # Without a cause: psycopg's error about an unreadable URL quotes it, with its password.
            raise StatementFailed(
                f"Cannot reach the connection {shown(self._name)}: {_without_login(str(error).strip(), self._url)}",
                hint="Is its url right, and its server up?",
            ) from None
        # The statements have no limit of their own; the task that waits for them has one.
        connection.answer_limit = float("inf")
        try:
            with at_most(connection, most):
                for name, value in identity.variables.items():
                    await connection.execute("SELECT set_config(%s, %s, false)", (f"horae.{name}", value))
                return await self._executed(connection, sql, most)
        except AnswerTooLarge as error:
            raise StatementFailed(
                f"On the connection {shown(self._name)}: the server sent too much at once (over"
                f" {MOST_NOTICE_BYTES >> 20} MiB), in one row of the answer or beside its rows",
                hint="Answer less in a row, or say less by RAISE. What the text wrote may have been done.",
            ) from error
        except psycopg.Error as error:
            details = {"sqlstate": error.sqlstate} if error.sqlstate else None
            raise StatementFailed(f"On the connection {shown(self._name)}: {error}", details=details) from error
        finally:
            await connection.close()

    async def _executed(self, connection: PostgresConnection, sql: str, most: int) -> Rows:
        """Runs the text and reads its answer row by row, because it may be larger than memory."""
        there = connection.pgconn
        there.send_query(sql.encode())
        there.set_single_row_mode()
        await connection.wait(send(there))
        reader, room, encoding = Transformer(connection), RowBuffer(most), connection.info.encoding
        answer, changed = Rows((), -1), -1
        while True:
            # Do not wait for a row that has come already: the wait costs more than the row.
            result = await connection.wait(fetch(there)) if there.is_busy() else there.get_result()
            if result is None:
                break
            if result.status not in _ANSWERS:
                raise _refused(result, encoding)
            if result.status == ExecStatus.SINGLE_TUPLE:
                # All rows of one statement have the same columns.
                reader.set_pgresult(result, set_loaders=not room.count)
                room.take(() if room.cut else reader.load_rows(0, 1, tuple)[0])
                if not room.count % _ROWS_IN_A_ROW:
                    await sleep(0)
                continue
            if result.nfields:
                answer = room.rows(_columns(result, encoding))
            room = RowBuffer(most)
            if (result.command_status or b"").partition(b" ")[0].decode() in _CHANGING:
                changed = max(changed, 0) + (result.command_tuples or 0)
        if changed >= 0:
            answer.rowcount = changed
        return answer


def _refused(result: PGresult, encoding: str) -> psycopg.Error:
    if result.status in (ExecStatus.COPY_IN, ExecStatus.COPY_OUT):
        return psycopg.NotSupportedError("COPY FROM STDIN and COPY TO STDOUT have nobody here to talk to")
    return psycopg.errors.error_from_result(result, encoding=encoding)


def _without_login(told: str, url: str) -> str:
    """The driver's message without any part of the URL's user, password and parameters, encoded or not."""
    rest = url.partition("://")[2]
    place, _, parameters = rest.partition("?")
    pieces = re.split(r"[:@/]", place.rpartition("@")[0]) + re.split(r"[&=]", parameters)
    for piece in sorted({form for each in pieces for form in (each, unquote(each))}, key=len, reverse=True):
        if len(piece) >= _SHORTEST:
            told = told.replace(piece, "***")
    return told


def _columns(result: PGresult, encoding: str) -> tuple[str, ...]:
    names = (result.fname(number) for number in range(result.nfields))
    return tuple((name or b"").decode(encoding) for name in names)
