"""Prints plain values as TOML text that reads back to the same values, laid out for people.

Short tables are written on the line of their key, longer ones under a header of their own. Text of several lines is
written between three quotes, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from horae.core.schedule.bounds import bound_text
from horae.errors import InvalidDefinition, shown

WIDTH = 110
ALWAYS_HEADED = ((), ("jobs",))
"""The tables at these paths give every table in them a header of its own, however short it is."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f\"\\]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_QUOTES = re.compile(r'"(?="")|"\Z')


class Octal(int):
    """A number that is written in octal, as file modes are."""


def key_text(name: str) -> str:
    return name if _BARE.fullmatch(name) else string_text(name)


def string_text(text: str) -> str:
    """Text on one line, in quotes."""
    return '"' + _CONTROL.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}", text) + '"'


def toml_document(pairs: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """A whole TOML document of nested tables. Raises InvalidDefinition for a value that TOML cannot express."""
    return "\n\n".join(_sections(pairs, path, headed=False)) + "\n"


def _sections(table: Mapping[str, Any], path: tuple[str, ...], *, headed: bool) -> Iterator[str]:
    """The text of a table, and then of the tables below it that have headers of their own."""
    lines, below = [], []
    for name, value in table.items():
        if _wants_header(name, value, path):
            below.append((name, value))
        else:
            lines.append(f"{key_text(name)} = {_laid_out(value)}")
    # A table that has only tables below it needs no header: theirs name it.
    if headed and (lines or not below):
        lines.insert(0, f"[{_header(path)}]")
    if lines:
        yield "\n".join(lines)
    for name, value in below:
        inner = (*path, name)
        if isinstance(value, Mapping):
            yield from _sections(value, inner, headed=True)
            continue
        for each in value:
            first, *rest = _sections(each, inner, headed=False)
            yield "\n\n".join([f"[[{_header(inner)}]]\n{first}", *rest])


def _header(path: tuple[str, ...]) -> str:
    return ".".join(map(key_text, path))


def _wants_header(name: str, value: Any, path: tuple[str, ...]) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and (path in ALWAYS_HEADED or len(inline(value)) + len(name) > WIDTH or _has_lines(value))
    return _is_tables(value) and name == "tasks"


def _has_lines(value: Mapping[str, Any]) -> bool:
    return any(isinstance(each, str) and "\n" in each for each in value.values())


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) and each for each in value)


def _laid_out(value: Any) -> str:
    """A value beside its key: on one line if it fits there."""
    if isinstance(value, str) and "\n" in value:
        return _lines_text(value)
    text = inline(value)
    if isinstance(value, list | tuple) and (len(text) > WIDTH or (_is_tables(value) and len(value) > 1)):
        return "[\n" + "".join(f"  {inline(each)},\n" for each in value) + "]"
    return text


def _lines_text(text: str) -> str:
    if "\\" in text and "'''" not in text and not text.endswith("'") and not _CONTROL_BUT_LINES.search(text):
        return f"'''\n{text}'''"
    escaped = text.replace("\\", "\\\\")
    escaped = _CONTROL_BUT_LINES.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}", escaped)
    escaped = _QUOTES.sub('\\"', escaped)
    return f'"""\n{escaped}"""'


def inline(value: Any) -> str:
    """A value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return string_text(value)
        case Octal():
            return f"0o{value:03o}"
        case int() | float():
            return repr(value)
        case datetime():
            return bound_text(value)
        case Mapping():
            inner = ", ".join(f"{key_text(name)} = {inline(each)}" for name, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case Sequence():
            return "[" + ", ".join(map(inline, value)) + "]"
    raise InvalidDefinition(f"TOML has no words for the value {shown(value)}")
