"""Answers on PostgreSQL that Python does not read as they are: they never fail by an error of its own."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.store.catalogs import opened
from tests.store.joining import Worker
from tests.store.running import MOST, PLAIN_GROUND, Ground, fails, ground_of, ran, somebody, with_people

from horae.errors import InvalidInput, StatementFailed
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.text.sql_text import LONGEST_NUMBER, MOST_NESTED
from horae.store.protocols.store import Store

ALICE = somebody("alice")
DEEP = "SELECT (repeat('[', {0}) || repeat(']', {0}))::json AS a"
DEEP_OBJECTS = """SELECT (repeat('{{"a":', {0}) || '1' || repeat('}}', {0}))::json AS a"""
LONG = "SELECT 10::numeric ^ {} AS a"


@pytest.fixture(params=PLAIN_GROUND)
def ground(request: pytest.FixtureRequest) -> Ground:
    return ground_of(request)


@pytest.mark.parametrize("deep", [DEEP, DEEP_OBJECTS], ids=["lists", "objects"])
def test_a_value_in_which_others_lie_too_deep_fails_its_statement(ground: Ground, deep: str) -> None:
    async def body(worker: Worker) -> None:
        for depth in (MOST_NESTED + 1, 1600):
            error = await fails(worker, deep.format(depth), ALICE)
            assert isinstance(error, StatementFailed)
            assert f"more than {MOST_NESTED} deep" in error.message
        [(value,)] = await ran(worker, deep.format(MOST_NESTED), ALICE)
        assert json.dumps(value).count("]" if deep == DEEP else "}") == MOST_NESTED

    with_people(ground, body, ALICE)


def test_a_number_that_python_does_not_read_is_answered_as_text(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        texts = [LONG.format(6000), LONG.format(LONGEST_NUMBER - 1), "SELECT '1e999'::json AS a", "SELECT 1.5 AS a"]
        wanted = ["1" + 6000 * "0", 10 ** (LONGEST_NUMBER - 1), "1e999", 1.5]
        for text, value in zip(texts, wanted, strict=True):
            async with worker.joins("alice") as joined:
                [(answer,)] = await joined.run_text(text, ALICE, MOST)
            assert answer == value
            json.dumps(answer, allow_nan=False)

    with_people(ground, body, ALICE)


@pytest.mark.parametrize("own", [False, True], ids=["reader", "login"])
def test_selects_refuse_what_lies_too_deep_and_answer_long_numbers(ground: Ground, own: bool) -> None:
    async def body(store: Store) -> None:
        assert isinstance(store, Catalog)
        with pytest.raises(InvalidInput, match="deep"):
            await store.driver.select(DEEP.format(5000), 10, 30.0, own)
        [(number,)] = await store.driver.select(LONG.format(6000), 10, 30.0, own)
        assert number == "1" + 6000 * "0"

    asyncio.run(opened(ground.place, None, body))
