"""Lookup of the tables that rights are granted on, by the names that users write."""

from __future__ import annotations

import re

from horae.errors import InvalidInput, shown
from horae.store.postgres.transaction import PostgresTransaction

_CLOSED = re.compile(r"sys|horae_run|information_schema|pg_.*")
"""Schemas of the catalog and of the server, on whose tables no rights may be granted."""
_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_TABLE = re.compile(rf"(?:{_PART}\.)?{_PART}")


async def find(transaction: PostgresTransaction, table: str, *, must_exist: bool) -> tuple[str, str, int] | None:
    """A table's schema, name and oid; None where it does not exist, unless it `must_exist`. An unquoted name matches as
    written or in lower case. Raises InvalidInput for an invalid name and for a table of the catalog or the server."""
    parts = _TABLE.fullmatch(table.strip())
    if parts is None:
        raise InvalidInput(
            f"Not the name of one table: {shown(table)}",
            hint="Name the table, or schema.table; on PostgreSQL there are no rights on all of them.",
        )
    quoted_schema, schema, quoted_name, name = parts.groups()
    wanted_schema = (quoted_schema or schema or "public").replace('""', '"')
    wanted = (quoted_name or name).replace('""', '"')
    if _CLOSED.fullmatch(wanted_schema.lower()):
        raise InvalidInput(
            f"Rights on {shown(table)} are not to be granted: {wanted_schema} is not for users",
            hint="The catalog is read by SELECT statements of their own; grant rights on your own tables.",
        )
    rows = await transaction.raw(
        "SELECT nspname::text, relname::text, c.oid::bigint"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = ANY (%s::text[]) AND relname = ANY (%s::text[]) AND relkind IN ('r', 'p', 'v', 'm', 'f')"
        " ORDER BY nspname <> %s, relname <> %s LIMIT 1",
        (
            [wanted_schema] if quoted_schema else [wanted_schema, wanted_schema.lower()],
            [wanted] if quoted_name else [wanted, wanted.lower()],
            wanted_schema,
            wanted,
        ),
    )
    if not rows and must_exist:
        raise InvalidInput(
            f"The database has no table {shown(table)}",
            hint="Create it first; without a schema a name is looked for in public.",
        )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def serials(transaction: PostgresTransaction, table: int) -> list[tuple[str, str]]:
    """The schema and name of the sequences of a table's serial columns. An INSERT needs rights on them too."""
    rows = await transaction.raw(
        "SELECT nspname::text, relname::text FROM pg_catalog.pg_depend d"
        " JOIN pg_catalog.pg_class c ON c.oid = objid JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace"
        " WHERE refobjid = %s::oid AND refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass"
        " AND classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND deptype = 'a' AND relkind = 'S'",
        (table,),
    )
    return [(row[0], row[1]) for row in rows]
