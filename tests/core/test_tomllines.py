"""The line of a key in a TOML text, however the text is laid out."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from tests.formats.drawn import JSON, NAMES, some
from tests.tier import examples

from horae.core.shape import Path
from horae.formats.toml.line_numbers import TomlLines
from horae.formats.toml.text import toml_document

LAYOUTS: list[tuple[str, str, Path, int]] = [
    ("a plain key", "a = 1\nb = 2\n", ("b",), 2),
    ("a key of a table", "[t]\n\n# b = 1\nb = 2\n", ("t", "b"), 4),
    ("a table", "a = 1\n\n[t]\nb = 2\n", ("t",), 3),
    ("a table that one below it has named", "[t.u]\na = 1\n[t]\nb = 2\n", ("t",), 3),
    ("a table that only one below it names", "x = 1\n[t.u]\na = 1\n", ("t",), 2),
    ("a dotted key", "[t]\na.b.c = 1\na.b.d = 2\n", ("t", "a", "b", "d"), 3),
    ("the first part of a dotted key", "[t]\nx = 0\na.b = 1\na.c = 2\n", ("t", "a"), 3),
    ("spaces around dots", "[ t . u ]\n  a . b  = 1\n", ("t", "u", "a", "b"), 2),
    ("a key in quotes", '["my jobs"."a.b"]\n"c = d" = 1\n', ("my jobs", "a.b", "c = d"), 2),
    ("a key in single quotes", "'a \"b' = 1\n", ('a "b',), 1),
    ("a key with escapes", '\n"a\\u0041\\"" = 1\n', ('aA"',), 2),
    ("the second of an array of tables", "[[t]]\na = 1\n[[t]]\na = 2\n", ("t", 1, "a"), 4),
    ("the array itself", "[[t]]\na = 1\n[[t]]\na = 2\n", ("t",), 1),
    ("a table of an array's last", "[[t]]\n[t.u]\na = 1\n[[t]]\n[t.u]\na = 2\n", ("t", 1, "u", "a"), 6),
    ("arrays in arrays", "[[t]]\n[[t.u]]\n[[t]]\n[[t.u]]\n[[t.u]]\na = 1\n", ("t", 1, "u", 1, "a"), 6),
    ("an inline table", "a = 1\nb = { c = { d = 1 } }\n", ("b", "c", "d"), 2),
    ("a list over several lines", "a = [\n  1,\n\n  2, # ]\n  3\n]\n", ("a", 2), 5),
    ("tables in a list", "a = [\n  { b = 1 },\n  { b = [\n2], c = 3 },\n]\n", ("a", 1, "c"), 4),
    ("after a text of several lines", 'a = """\nb = 0\n\\"""\n[t]\n"""\nb = 1\n', ("b",), 6),
    ("after a text that ends with quotes", 'a = """x"""""\nb = 1\n', ("b",), 2),
    ("after a text of several lines in single quotes", "a = '''\nb = \\\n'''''\nb = 1\n", ("b",), 4),
    ("after a text with a number sign", 'a = "# ]" # "\nb = 1\n', ("b",), 2),
    ("after windows' line ends", "a = 1\r\n[t]\r\nb = 2\r\n", ("t", "b"), 3),
    ("after a time", "a = 2026-01-01T00:00:00Z\nb = 07:32:00 # x\nc = 1\n", ("c",), 3),
    ("without a last line end", "a = 1\nb = 2", ("b",), 2),
    ("the innermost part that stands there", "[t]\na = 1\n", ("t", "b", "c"), 1),
    ("nothing of it", "a = 1\n", ("t",), 0),
    ("an empty key", '"" = 1\n', ("",), 1),
]


@pytest.mark.parametrize(("what", "text", "path", "line"), LAYOUTS, ids=[each[0] for each in LAYOUTS])
def test_a_key_is_found_on_its_line(what: str, text: str, path: Path, line: int) -> None:
    tomllib.loads(text)
    assert TomlLines(text).line(path) == line


def test_a_text_that_is_no_toml_gives_what_was_understood() -> None:
    assert TomlLines("a = 1\nb = [\n").line(("b",)) == 2
    assert TomlLines("= 1").line(("a",)) == 0
    assert TomlLines("").line(()) == 0
    assert TomlLines("a = " + "[" * 100_000).line(("a",)) == 1


def paths_of(value: Any, path: Path = ()) -> list[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, each in inner for deeper in paths_of(each, (*path, key)))]


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(some({"a": JSON, "tasks": JSON, "jobs": JSON, "x y": JSON, "é": NAMES}))
def test_every_key_of_a_printed_document_is_found_where_it_stands(data: dict[str, Any]) -> None:
    said = tomllib.loads(toml_document(without_null(data)))
    text = toml_document(said)
    lines = TomlLines(text)
    for path in paths_of(said)[1:]:
        assert path in lines.lines, path
    for path, line in lines.lines.items():
        key = path[-1]
        if isinstance(key, str) and key.isalnum() and key.isascii():
            assert key in text.splitlines()[line - 1], path


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_null(each) for each in value]
    return "null" if value is None else value
