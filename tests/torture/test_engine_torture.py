"""Whole engines on one catalog while nodes are killed, stopped and drained and the server is cut: nothing is lost,
doubled, stuck or out of order. What is proven is in `engine_checker`; what is done, in `engine_crew`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.tier import Tier, current, seeds
from tests.torture.engine_crew import SHORT, EngineCrew, place

LONG_FORM = current() is Tier.TORTURE
NUMBERS = seeds(1)
SECONDS = 2 * SHORT if LONG_FORM else SHORT


def has_long_stops(number: int) -> bool:
    """Every fifth of the long form: they take their time."""
    return LONG_FORM and number % 5 == 0


@pytest.mark.parametrize("number", NUMBERS)
def test_four_nodes_on_one_server_lose_double_and_strand_nothing_whatever_happens_to_them(
    number: int, tmp_path: Path
) -> None:
    with place("postgres", tmp_path) as (url, server):
        crew = EngineCrew(url, tmp_path, 4, number, server, SECONDS, has_long_stops(number))
        asyncio.run(crew.work())
        assert crew.unseen() == []


@pytest.mark.parametrize("number", NUMBERS)
def test_two_nodes_on_one_file_lose_double_and_strand_nothing_whatever_happens_to_them(
    number: int, tmp_path: Path
) -> None:
    with place("sqlite", tmp_path) as (url, _):
        crew = EngineCrew(url, tmp_path, 2, number, None, SECONDS, has_long_stops(number))
        asyncio.run(crew.work())
        assert crew.unseen() == []
