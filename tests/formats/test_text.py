"""Tokens, and texts cut apart into statements: quotes, comments, durations, places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.drawn import TEXTS
from tests.tier import examples

from horae.errors import InvalidStatement
from horae.formats.sql.tokens import END, StatementTokens, ended, split, tokens


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens(text)][:-1]


TOKENS = [
    ("nightly-report a_1 _x Ärger", [("word", "nightly-report"), ("word", "a_1"), ("word", "_x"), ("word", "Ärger")]),
    ("a--b", [("word", "a")]),
    ("a- b", [("word", "a"), ("sign", "-"), ("word", "b")]),
    ('"a ""b"" ;"', [("quoted", 'a "b" ;')]),
    ("'it''s' ''", [("string", "it's"), ("string", "")]),
    ("'a''' 'b'", [("string", "a'"), ("string", "b")]),
    ("$$a'b$$ $x$a$$b$x$", [("string", "a'b"), ("string", "a$$b")]),
    ("60 1.5 1e-3", [("number", "60"), ("number", "1.5"), ("number", "1e-3")]),
    ("60s 1h30m 1.5h 5µs", [("duration", "60s"), ("duration", "1h30m"), ("duration", "1.5h"), ("duration", "5µs")]),
    ("1_000", [("odd", "1_000")]),
    ("3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a", [("uuid", "3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a")]),
    ("a=1;", [("word", "a"), ("sign", "="), ("number", "1"), ("sign", ";")]),
    ("a /* b /* c */ ' */ d", [("word", "a"), ("word", "d")]),
    ("a -- 'b\nc -- \" \rd", [("word", "a"), ("word", "c"), ("word", "d")]),
    ("", []),
    (" \n\t ", []),
    ("-- only a comment", []),
]


@pytest.mark.parametrize(("text", "expected"), TOKENS, ids=[text or "nothing" for text, _ in TOKENS])
def test_tokens_are_what_people_see(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(TEXTS)
def test_any_text_comes_back_out_of_quotes(text: str) -> None:
    string, name = text.replace("'", "''"), text.replace('"', '""')
    assert kinds(f"x'{string}'/*;*/\"{name}\"") == [("word", "x"), ("string", text), ("quoted", text)]


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(TEXTS | st.text(max_size=30))
def test_any_text_at_all_has_tokens_that_lie_in_order_within_it(text: str) -> None:
    at = 0
    for token in tokens(text):
        assert at <= token.start <= token.end <= len(text)
        assert token.kind == END or token.end > token.start
        at = token.end


def cut(text: str) -> list[str]:
    return [piece.text for piece in split(text)]


SPLIT = [
    ("", []),
    (";; ; -- x\n/* ; */", []),
    ("DROP JOB a; DROP JOB b", ["DROP JOB a", "DROP JOB b"]),
    ("SELECT ';' ; SELECT \";\" -- ;\n; SELECT $$;$$", ["SELECT ';'", 'SELECT ";"', "SELECT $$;$$"]),
    ("SELECT 1 /* ; */ + 2;", ["SELECT 1 /* ; */ + 2"]),
    ("/* x */ SELECT /* a */ 1 -- /* /*\n/* b */;", ["SELECT /* a */ 1"]),
]


@pytest.mark.parametrize(("text", "expected"), SPLIT, ids=range(len(SPLIT)))
def test_a_semicolon_outside_quotes_and_comments_ends_a_statement(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_a_piece_knows_where_it_stood() -> None:
    pieces: list[StatementTokens] = list(split("DROP JOB a;\n  -- two\n  SELECT 2"))
    assert [(piece.mark.line, piece.mark.column, piece.is_raw) for piece in pieces] == [(1, 1, False), (3, 3, True)]


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("DROP JOB 'x", "the string that begins here does not end", (1, 10)),
        ('DROP\n JOB "x', "the name that begins here does not end", (2, 6)),
        ("SELECT $a$ $b$", "the string that begins here does not end", (1, 8)),
        ("SELECT 1 /* a /* b */", "the comment that begins here does not end", (1, 10)),
        ("SELECT /* a /* b */ */ 1", "a comment inside a comment", (1, 13)),
        ("SELECT E'a\\n'", "strings with backslashes", (1, 8)),
        ("SELECT e'a\\''; DROP JOB x; --'", "strings with backslashes", (1, 8)),
    ],
)
def test_what_does_not_end_or_ends_elsewhere_for_a_database_is_refused(
    text: str, reason: str, place: tuple[int, int]
) -> None:
    with pytest.raises(InvalidStatement, match=reason) as caught:
        cut(text)
    assert (caught.value.line, caught.value.column) == place


def test_a_comment_inside_a_comment_is_nothing_in_our_own_statements() -> None:
    assert cut("DROP /* a /* b */ */ JOB x") == ["DROP /* a /* b */ */ JOB x"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SHOW JOBS;", True),
        ("SHOW JOBS; -- so\n", True),
        ("SHOW JOBS", False),
        ("SELECT ';", False),
        ("SHOW JOBS; /*", False),
        ("a; b", False),
    ],
)
def test_a_shell_knows_when_a_statement_is_whole(text: str, whole: bool) -> None:
    assert ended(text) is whole
