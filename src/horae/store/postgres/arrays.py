"""Binding of many rows to one PostgreSQL statement: an array for each column, one value for a column that is constant.

A column is written in one step where possible: numbers and uuids need no quotes, and text without quotes and
backslashes needs no escapes. Other values are written one by one. A column with one value in all rows (the time, the
node) is sent once, so that the server neither reads it for each row nor joins it to the other columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horae.store.driver import Row, Statement

_PLAIN = ("bigint", "integer", "uuid")
_FEW = 8
"""Below this many rows, equal values are chance, and each combination of them would be one more text to prepare."""
_MOST_TEXTS = 8
"""The most texts of one statement. Beyond them, a batch uses the text in which every column is an array."""


class BatchStatement:
    """A statement for many rows, with its texts so far, one for each combination of array columns."""

    __slots__ = ("_texts", "statement")

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._texts: dict[tuple[bool, ...], str] = {}

    def bound(self, rows: Sequence[Row]) -> tuple[str, dict[str, str | None]]:
        """The text for these rows and its parameters."""
        statement, count = self.statement, len(rows)
        assert statement.columns is not None
        columns = list(zip(*rows, strict=True))
        if count == 1:
            arrays = [False] * len(columns)
        elif count < _FEW:
            arrays = [True] * len(columns)
        else:
            arrays = [values.count(values[0]) != count for values in columns]
            if not any(arrays):
                arrays[0] = True
        if tuple(arrays) not in self._texts and len(self._texts) >= _MOST_TEXTS:
            arrays = [True] * len(columns)
        text = self._texts.get(tuple(arrays))
        if text is None:
            text = self._texts[tuple(arrays)] = self._text(arrays)
        return text, {
            name: column_literal(values, kind) if array else _scalar(values[0])
            for name, kind, values, array in zip(statement.columns, statement.types, columns, arrays, strict=True)
        }

    def _text(self, arrays: Sequence[bool]) -> str:
        statement = self.statement
        assert statement.columns is not None
        columns = list(zip(statement.columns, statement.types, arrays, strict=True))
        many = [(name, kind) for name, kind, array in columns if array]
        ones = [f"%({name})s::{kind} AS {name}" for name, kind, array in columns if not array]
        unnested = ", ".join(f"%({name})s::{kind}[]" for name, kind in many)
        names = ", ".join(name for name, _ in many)
        if not ones:
            rows = f"unnest({unnested}) AS given ({names})"
        elif not many:
            rows = f"(SELECT {', '.join(ones)}) AS given"
        else:
            each = f"unnest({unnested}) AS each ({names})"
            rows = f"(SELECT {', '.join([names, *ones])} FROM {each}) AS given"  # noqa: S608 - names of our own
        return statement.with_parameters(lambda _: rows)


def _scalar(value: Any) -> str | None:
    """The value as untyped text: the statement's cast gives it its type."""
    return None if value is None else ("t" if value else "f") if isinstance(value, bool) else str(value)


def column_literal(values: Sequence[Any], kind: str) -> str:
    """The array literal of one column of the type `kind`, for example `{1,NULL,2}`."""
    if kind in _PLAIN:
        # No number or uuid contains the text "None", so only None is replaced.
        return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"
    return array_literal(values)


def _text_literal(values: Sequence[str]) -> str:
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * (len(values) - 1):
        return "{" + ",".join(map(_element, values)) + "}"
    return '{"' + joined + '"}'


def array_literal(values: Sequence[Any]) -> str:
    """The array literal of integers, text, booleans and None, for example `{1,NULL,"a \\" b"}`. The statement's cast
    gives it its type."""
    if values and set(map(type, values)) == {str}:
        return _text_literal(values)
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if value is True or value is False:
        return "t" if value else "f"
    text = str(value)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
