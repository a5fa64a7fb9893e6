"""Keeps a statement's rows up to a size limit, because a job's SELECT may return any amount."""

from __future__ import annotations

import json
from datetime import date, time
from decimal import Decimal
from math import isfinite
from typing import Any

from horae.store.records import Rows


class RowBuffer:
    """Keeps rows up to the first that no longer fits into `most` characters of JSON. Later rows are only counted."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._kept: list[tuple[Any, ...]] = []
        self.count = 0
        self.cut = False

    def take(self, row: tuple[Any, ...]) -> None:
        self.count += 1
        if self.cut:
            return
        plain = tuple(map(_plain, row))
        self._left -= len(json.dumps(plain, default=str, ensure_ascii=False)) + 1
        if self._left < 0:
            self.cut = True
        else:
            self._kept.append(plain)

    def rows(self, columns: tuple[str, ...], rowcount: int | None = None) -> Rows:
        found = Rows(self._kept, self.count if rowcount is None else rowcount, columns)
        found.cut = self.cut
        return found


def _plain(value: Any) -> Any:
    """Converts a value to what the catalog's own database would write as JSON."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if isfinite(value) else json.dumps(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\\x{bytes(value).hex()}"
    if isinstance(value, date | time):
        return value.isoformat()
    return [_plain(each) for each in value] if isinstance(value, list) else value
