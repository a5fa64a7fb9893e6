"""Arrays as PostgreSQL reads them from text: one parameter for a whole column of values.

Columns are written whole where they can be: numbers and uuids need no quotes, and text that holds neither a quote nor a
backslash needs nothing else. The rest is looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PLAIN = ("bigint", "integer", "uuid")


def column_literal(values: Sequence[Any], kind: str) -> str:
    """`{1,NULL,2}`: one column of `kind`."""
    if kind in _PLAIN:
        # None has no other way into such a column, and no number or uuid reads like it.
        return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"
    if kind == "text" and None not in values:
        joined = '","'.join(values)
        if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
            return '{"' + joined + '"}'
    return array_literal(values)


def array_literal(values: Sequence[Any]) -> str:
    """`{1,NULL,"a \\" b"}`: integers, text, booleans and None; the statement's cast says which type they are."""
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
