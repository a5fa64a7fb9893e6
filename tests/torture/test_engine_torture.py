"""Whole engines on one catalog while nodes are killed, stopped and drained and the server is cut: nothing is lost,
doubled, stuck or out of order. What is proven is in `engine_checker`; what is done, in `engine_crew`."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest
from tests.torture.engine_catalog import Evidence
from tests.torture.engine_crew import SHORT, EngineCrew, place

LONG_FORM = "HORAE_TORTURE_SEEDS" in os.environ
NUMBERS = range(int(os.environ.get("HORAE_TORTURE_SEEDS", "1")))
SECONDS = 2 * SHORT if LONG_FORM else SHORT


def has_long_stops(number: int) -> bool:
    """Every fifth of the long form: they take their time."""
    return LONG_FORM and number % 5 == 0


def check_shown(crew: EngineCrew, evidence: Evidence) -> None:
    """Whether the torture was one: nodes were lost, and every kind of end was seen."""
    assert crew.deeds["kill"] + crew.deeds["blackout"], "nobody was killed"
    attempts = Counter(row.state for row in evidence.attempts.values())
    assert attempts["LOST"], "nothing was lost"
    assert attempts["SUCCESS"] > 200, "hardly anything ran"
    states = Counter(run.state for run in evidence.runs.values())
    for state in ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED", "SKIPPED", "MISSED", "FAILED_STALE"):
        assert states[state], f"no run ended {state}"
    assert evidence.effects, "nothing was written through run.transaction"


@pytest.mark.parametrize("number", NUMBERS)
def test_four_nodes_on_one_server_lose_double_and_strand_nothing_whatever_happens_to_them(
    number: int, tmp_path: Path
) -> None:
    with place("postgres", tmp_path) as (url, server):
        crew = EngineCrew(url, tmp_path, 4, number, server, SECONDS, has_long_stops(number))
        check_shown(crew, asyncio.run(crew.work()))
    assert crew.deeds["cut"], "no connection was cut"
    assert crew.deeds["fast restart"] + crew.deeds["immediate restart"], "the server was not restarted"


@pytest.mark.parametrize("number", NUMBERS)
def test_two_nodes_on_one_file_lose_double_and_strand_nothing_whatever_happens_to_them(
    number: int, tmp_path: Path
) -> None:
    with place("sqlite", tmp_path) as (url, _):
        crew = EngineCrew(url, tmp_path, 2, number, None, SECONDS, has_long_stops(number))
        check_shown(crew, asyncio.run(crew.work()))
