"""A named connection to a PostgreSQL database: SQL jobs that are not on the catalog's own, with a login of their own.

The whole text goes as one message, so that several statements are one transaction unless they say otherwise, and those
that cannot be inside one (VACUUM, CREATE DATABASE) can be said alone. Asked to stop, the statement is cancelled.
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
from horae.store.bounding import Room
from horae.store.postgres.links import kept_alive
from horae.store.postgres.pooling import BESIDE, Connection, Flooded, at_most
from horae.store.records import Rows
from horae.store.vault import Identity

_ANSWERS = (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)
_ROWS_IN_A_ROW = 64
"""After so many, other tasks have the loop: a server may send faster than rows are read."""
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
                for name, value in identity.variables.items():
                    await connection.execute("SELECT set_config(%s, %s, false)", (f"horae.{name}", value))
                return await self._executed(connection, sql, most)
        except Flooded as error:
            raise StatementFailed(
                f"On the connection {shown(self._name)}: the server sent too much at once (over {BESIDE >> 20} MiB),"
                " in one row of the answer or beside its rows",
                hint="Answer less in a row, or say less by RAISE. What the text wrote may have been done.",
            ) from error
        except psycopg.Error as error:
            details = {"sqlstate": error.sqlstate} if error.sqlstate else None
            raise StatementFailed(f"On the connection {shown(self._name)}: {error}", details=details) from error
        finally:
            await connection.close()

    async def _executed(self, connection: Connection, sql: str, most: int) -> Rows:
        """Row by row, whatever the statement: what it answers may be more than memory holds."""
        there = connection.pgconn
        there.send_query(sql.encode())
        there.set_single_row_mode()
        await connection.wait(send(there))
        reader, room, encoding = Transformer(connection), Room(most), connection.info.encoding
        answer, changed = Rows((), -1), -1
        while True:
            # A row that has come already needs no wait, which costs more than the row.
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
            room = Room(most)
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
    """What the driver said, without any piece of what stands before the host, or of a parameter, however it was cut."""
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
