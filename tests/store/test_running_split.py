"""Where the statements of a PostgreSQL text end: as psql has it, and as the server confirms."""

from __future__ import annotations

import psycopg
import pytest
from tests.store.databases import Databases

from horae.store import foreign_statements
from horae.store.postgres.text.statement_split import split

TEXTS = [
    ("SELECT 1", ["SELECT 1"]),
    ("SELECT 1;", ["SELECT 1"]),
    (" ;; SELECT 1 ;\n; SELECT 2 ; -- end", ["SELECT 1", "SELECT 2"]),
    ("SELECT ';', 'it''s;', \"a;b\" FROM (SELECT 1 AS \"a;b\") x; SELECT 2", 2),
    ("SELECT E'\\';', 'a\\'; SELECT 2", 2),
    ("SELECT e'\\\\'; SELECT 2", 2),
    ("SELECT $$;$$, $a$ $$;$$ $b$ ; $a$; SELECT 2", 2),
    ("SELECT 1 AS a$b$; SELECT 2 AS c$b$", 2),
    ("SELECT 1 /* ; /* ; */ ; */; SELECT 2 -- ; \n + 1; SELECT 3", 3),
    ("SELECT U&'\\0061;'; SELECT 2", 2),
    ("DO $do$ BEGIN PERFORM 1; PERFORM ';'; END $do$; SELECT 2", 2),
    (
        "CREATE FUNCTION pg_temp.f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END; SELECT",
        2,
    ),
    (
        "CREATE OR REPLACE PROCEDURE pg_temp.p() LANGUAGE sql BEGIN ATOMIC SELECT 1; END; SELECT 2; SELECT 3",
        3,
    ),
    ("CREATE TEMP TABLE t (a int); CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2); SELECT 3", 3),
    ('SELECT \'ü;\', "ü;" FROM (SELECT 1 AS "ü;") ü; SELECT 2', 2),
]
UNFINISHED = [
    "SELECT 'a; SELECT 2",
    "SELECT $$ ; SELECT 2",
    'SELECT "a; SELECT 2',
    "SELECT 1 /* ; SELECT 2",
    "SELECT ((1; 2",
]


@pytest.mark.parametrize(("text", "pieces"), TEXTS)
def test_a_text_is_cut_where_a_statement_ends(text: str, pieces: list[str] | int) -> None:
    found = split(text)
    for piece in found:
        assert text[piece.start :].startswith(piece.text)
    if isinstance(pieces, list):
        assert [piece.text.strip() for piece in found] == pieces
    else:
        assert len(found) == pieces


def test_the_server_takes_every_piece_as_one_statement(databases_18: Databases) -> None:
    with psycopg.connect(databases_18.emptied()) as session:
        for text, _ in TEXTS:
            for piece in split(text):
                # What is prepared can only be one statement.
                session.execute(piece.text.encode(), prepare=True)
            session.rollback()


@pytest.mark.parametrize("text", UNFINISHED)
def test_what_is_never_ended_is_one_piece(text: str) -> None:
    assert [piece.text for piece in split(text)] == [text]


def test_a_text_of_nothing_has_no_pieces() -> None:
    assert split(" ; -- a\n /* b */ ;; ") == []


def test_comments_within_comments_are_walked_through_once() -> None:
    """On the event loop, where nothing else runs meanwhile: at each beginning of a comment the rest was searched, so
    that a text of this size kept a node for hours."""
    depth = 300_000
    left_open = "/* " * depth + "*/ SELECT 1"
    assert split(left_open) == []
    assert foreign_statements.is_blank(left_open, nested=True)
    [piece] = split("/* " * depth + "*/ " * depth + "SELECT 1; ")
    assert foreign_statements.head(piece.text, nested=True) == ("SELECT", "")
