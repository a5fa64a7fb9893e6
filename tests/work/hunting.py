"""The hunt for a secret: everywhere a catalog, a program and its output could have kept one, in every writing of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import psycopg
from psycopg import sql
from tests.store.catalogs import Place
from tests.work.secret_tasks import forms

_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND (n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema')
"""


class Hunt:
    """Looks for one value. What it finds is told by where it was, and how it was written there."""

    def __init__(self, value: str) -> None:
        self._forms = {form: form.encode() for form in forms(value)}
        self.found: list[tuple[str, str]] = []

    def look(self, where: str, content: str | bytes) -> None:
        for form, raw in self._forms.items():
            if form in content if isinstance(content, str) else raw in content:
                self.found.append((where, form))

    def in_catalog(self, place: Place) -> None:
        if place.kind == "sqlite":
            folder = Path(place.target)
            files = [each for each in folder.parent.iterdir() if each.name.startswith(folder.name) and each.is_file()]
            assert files
            for file in files:
                self.look(file.name, file.read_bytes())
            return
        with psycopg.connect(place.target, autocommit=True) as session:
            tables = session.execute(_TABLES).fetchall()
            assert len(tables) > 15
            for schema, table in tables:
                rows = session.execute(sql.SQL("SELECT t.*, t::text FROM {} t").format(sql.Identifier(schema, table)))
                for row in rows:
                    for value in row:
                        self.look(f"{schema}.{table}", bytes(value) if isinstance(value, bytes) else str(value))
            for view in ("pg_stat_activity", "pg_prepared_statements", "pg_settings"):
                self.look(
                    view,
                    str(session.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(view))).fetchall()),
                )

    def in_memory(self, roots: Iterable[Any]) -> int:
        """Everything that can be reached from `roots`, by its repr too; how much that was."""
        count = 0
        for each in reachable(roots):
            count += 1
            if isinstance(each, str | bytes):
                self.look("memory", each)
            else:
                try:
                    told = repr(each)
                except Exception:  # noqa: BLE001, S112 - what cannot be shown shows nothing
                    continue
                self.look(f"repr of {type(each).__name__}", told)
        return count


def reachable(roots: Iterable[Any]) -> Iterator[Any]:
    """What objects refer to, and what that refers to; not what belongs to the whole interpreter."""
    gc.collect()
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _ELSEWHERE):
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, FunctionType):
            todo += [cell.cell_contents for cell in each.__closure__ or () if _is_full(cell)]
        else:
            todo += gc.get_referents(each)


_ELSEWHERE = (type, ModuleType, BuiltinFunctionType, logging.Logger, asyncio.AbstractEventLoop)
"""A loop knows every task there is, and so what the tests themselves know."""


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where there is nothing in it
    except ValueError:
        return False
    return True


class Everything(logging.Handler):
    """Every record that any logger hands to its handlers, with all that is on it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(f"{record.getMessage()} {vars(record)!r}")
        self.records.append(logging.Formatter().format(record))
