"""SELECTs as Horae's own login, for a login that may not create the role that reads.

Only for texts of Horae's own and of people who opened the store themselves: they have the login anyway. The transaction
takes no writes and is rolled back.
"""

from __future__ import annotations

import re

import psycopg

from horae.errors import InvalidInput
from horae.store import foreign
from horae.store.foreign import HIDDEN, HIDDEN_COLUMNS, NOT_SHOWN
from horae.store.postgres.failures import translated
from horae.store.postgres.running import LARGEST_SELECT, selected, writable
from horae.store.postgres.transaction import PostgresTransaction
from horae.store.records import Rows
from horae.store.rows import LARGEST_INTEGER

_COLUMNS = frozenset(column for columns in HIDDEN_COLUMNS.values() for column in columns)
_REFUSED = _COLUMNS | HIDDEN | HIDDEN_COLUMNS.keys()
"""Tables that have a hidden column are refused whole: a row can be named without its columns."""
_WORD = re.compile(r"\w+")
_ESCAPED = re.compile(r"""(?i)\bu&['"]""")


async def select_as_login(transaction: PostgresTransaction, text: str, most: int, seconds: float) -> Rows:
    """One SELECT, with values as the reader's function gives them."""
    foreign.check_select(writable(text), nested=True)
    named = {word.lower() for word in _WORD.findall(text)} & _REFUSED
    if named:
        raise InvalidInput(f"{min(named)} cannot be read", hint=NOT_SHOWN)
    if _ESCAPED.search(text):
        raise InvalidInput("Names and texts with U& cannot be read here", hint="Write the letters themselves.")
    inner = text.strip().rstrip(";")
    connection = transaction.connection
    try:
        await connection.execute(f"SET LOCAL statement_timeout = {min(max(1, round(seconds * 1000)), LARGEST_INTEGER)}")
        await connection.execute("SET LOCAL search_path = sys, pg_temp")
        asked = f"FROM (\n{inner}\n) line LIMIT"
        # Binary answers are asked for by the protocol that takes one statement only: a second one is refused.
        head = await connection.execute(f"SELECT * {asked} 0".encode(), prepare=False, binary=True)
        columns = tuple(column.name for column in head.description or ())
        if not _COLUMNS.isdisjoint(columns):
            raise InvalidInput(f"{min(_COLUMNS & set(columns))} cannot be read", hint=NOT_SHOWN)
        # The server adds up the lengths of rows: what is beyond the limit is not sent, nor is what follows it.
        told = f"SELECT row_to_json(line)::text AS told {asked} {most + 1}"
        fits = f"sum(length(told)) OVER (ROWS UNBOUNDED PRECEDING) <= {LARGEST_SELECT}"
        body = f"SELECT CASE WHEN {fits} THEN told END FROM (\n{told}\n) lines"  # noqa: S608 - one SELECT: checked above
        async with translated("a SELECT"):
            answer = await connection.execute(body.encode(), prepare=False, binary=True)
            found = [row[0] for row in await answer.fetchall()]
    except psycopg.errors.QueryCanceled as error:
        raise foreign.too_slow(seconds) from error
    except psycopg.Error as error:
        message = str(error.diag.message_primary or error)
        raise InvalidInput(message, hint=foreign.select_hint(message) or NOT_SHOWN) from error
    lines = selected([line for line in found[:most] if line is not None])
    return Rows(lines, len(lines), columns, cut=len(found) > len(lines))
