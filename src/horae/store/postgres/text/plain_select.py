"""SELECTs as Horae's own login, for a login that may not create the reader's role.

They are only for Horae itself and for users who opened the store directly, who have the login anyway. The transaction
is read-only and is rolled back.
"""

from __future__ import annotations

import re

import psycopg

from horae.errors import InvalidInput
from horae.store import foreign_statements
from horae.store.catalog.row_codec import LARGEST_INTEGER
from horae.store.foreign_statements import HIDDEN_COLUMNS, HIDDEN_TABLES, NOT_SHOWN
from horae.store.postgres.failures import translated
from horae.store.postgres.text.sql_text import LARGEST_SELECT, selected, writable
from horae.store.postgres.transaction import PostgresTransaction
from horae.store.records import Rows

_COLUMNS = frozenset(column for columns in HIDDEN_COLUMNS.values() for column in columns)
_REFUSED = _COLUMNS | HIDDEN_TABLES | HIDDEN_COLUMNS.keys()
"""Hidden columns and tables, and every table with a hidden column: a text can name a row without its columns."""
_WORD = re.compile(r"\w+")
_ESCAPED = re.compile(r"""(?i)\bu&['"]""")


async def select_as_login(transaction: PostgresTransaction, text: str, most: int, seconds: float) -> Rows:
    """Runs one SELECT. Its values have the same form as from the reader's function."""
    foreign_statements.check_select(writable(text), nested=True)
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
        # A binary answer needs the extended protocol, which refuses a second statement.
        head = await connection.execute(f"SELECT * {asked} 0".encode(), prepare=False, binary=True)
        columns = tuple(column.name for column in head.description or ())
        if not _COLUMNS.isdisjoint(columns):
            raise InvalidInput(f"{min(_COLUMNS & set(columns))} cannot be read", hint=NOT_SHOWN)
        # The server adds up the lengths of rows, and sends no content of the rows beyond the limit.
        told = f"SELECT row_to_json(line)::text AS told {asked} {most + 1}"
        fits = f"sum(length(told)) OVER (ROWS UNBOUNDED PRECEDING) <= {LARGEST_SELECT}"
        body = f"SELECT CASE WHEN {fits} THEN told END FROM (\n{told}\n) lines"  # noqa: S608 - one SELECT: checked above
        async with translated("a SELECT"):
            answer = await connection.execute(body.encode(), prepare=False, binary=True)
            found = [row[0] for row in await answer.fetchall()]
    except psycopg.errors.QueryCanceled as error:
        raise foreign_statements.too_slow(seconds) from error
    except psycopg.Error as error:
        message = str(error.diag.message_primary or error)
        raise InvalidInput(message, hint=foreign_statements.select_hint(message) or NOT_SHOWN) from error
    lines = selected([line for line in found[:most] if line is not None])
    return Rows(lines, len(lines), columns, cut=len(found) > len(lines))
