"""Many rows for one statement on PostgreSQL: whatever form a batch takes, the rows that arrive are those given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.databases import Databases
from tests.tier import examples

from horae.store.driver import Statement
from horae.store.postgres.arrays import BatchStatement

ECHO = Statement(
    "echo",
    "SELECT given.number, given.word, given.flag, given.code FROM :rows",
    ("number", "word", "flag", "code"),
    ("bigint", "text", "boolean", "integer"),
)
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)
WORDS = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
ROWS = st.tuples(NUMBERS, WORDS, st.none() | st.booleans(), st.none() | st.integers(-(2**31), 2**31 - 1))


@pytest.fixture(scope="module")
def connection(databases_18: Databases) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(databases_18.server.url(), autocommit=True) as connection:
        yield connection


def arrived(
    connection: psycopg.Connection[Any], batch: BatchStatement, rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    text, values = batch.bound(rows)
    return connection.execute(text.encode(), values).fetchall()


@given(st.lists(ROWS, min_size=1, max_size=30), st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rows_that_arrive_are_those_given(
    connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]], same: list[bool]
) -> None:
    given_rows = [
        tuple(first if alike else own for first, own, alike in zip(rows[0], row, same, strict=True)) for row in rows
    ]
    assert arrived(connection, BatchStatement(ECHO), given_rows) == given_rows


def test_what_all_rows_have_in_common_is_sent_once() -> None:
    text, values = BatchStatement(ECHO).bound([(number, "same", True, None) for number in range(20)])
    assert values["word"] == "same"
    assert (values["flag"], values["code"]) == ("t", None)
    assert text.count("unnest(") == 1
    assert "%(number)s::bigint[]" in text


def test_a_statement_has_few_forms_however_its_rows_differ(connection: psycopg.Connection[Any]) -> None:
    batch, texts = BatchStatement(ECHO), set()
    for mask in range(16):
        a, b, c, d = (mask >> column & 1 for column in range(4))
        rows: list[tuple[Any, ...]] = [(a * row, str(b * row), bool(c * row % 2), d * row) for row in range(20)]
        texts.add(batch.bound(rows)[0])
        assert arrived(connection, batch, rows) == rows
    assert len(texts) <= 9
