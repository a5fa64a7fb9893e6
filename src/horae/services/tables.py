"""The catalog's tables and columns that a SELECT may read, for completion and for the console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from horae.core.table_access import HIDDEN_COLUMNS, hidden_tables

TABLES = {
    "sqlite": "SELECT m.name, p.name FROM sys.sqlite_schema m, pragma_table_info(m.name, 'sys') p"
    " WHERE m.type IN ('table', 'view') ORDER BY m.name, p.cid",
    "postgresql": "SELECT c.relname, a.attname FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " WHERE n.nspname = 'sys' AND c.relkind IN ('r', 'v') ORDER BY c.relname, a.attnum",
}
"""Queries for the tables and their columns, by kind of database."""


def readable(rows: Iterable[Sequence[str]], *, viewer: bool = False) -> dict[str, tuple[str, ...]]:
    """Returns the tables with the columns that a SELECT shows to administrators, or to a `viewer`. Names are without
    `sys.`."""
    told = list(rows)
    hidden = hidden_tables({row[0] for row in told}, viewer=viewer)
    found: dict[str, tuple[str, ...]] = {}
    for table, column in told:
        is_hidden = table in hidden or column in HIDDEN_COLUMNS.get(table, ())
        if not is_hidden and not table.startswith("sqlite_"):
            found[table] = (*found.get(table, ()), column)
    return found
