"""The same decisions in every process, whatever its environment, its host's zone data and its decimal settings."""

from __future__ import annotations

import decimal
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import getstate, seed, setstate

import pytest
from tests.core.test_decision_sample import canonical, decisions, digest, request

from horae.core.window.decision import DecisionRequest, decide
from horae.core.window.distribution import _sampler

ROOT = Path(__file__).resolve().parents[2]
SIZE = 300
PRINT_DIGEST = f"from tests.core.test_decision_sample import digest; print(digest({SIZE}))"
WATCHED = """
import sys
from tests.core.test_decision_sample import decisions, request
asked = [request(number) for number in range(200)]
from horae.core.window.decision import decide
first = [decide(each) for each in asked]
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event))
second = [decide(each) for each in asked]
reported = sorted(set(seen))
print(reported, first == second)
"""


def run(code: str, *options: str, **environment: str) -> str:
    """What a fresh interpreter prints; it inherits nothing but what is named."""
    named = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=named, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ((), {"PYTHONHASHSEED": "0", "TZ": "America/New_York"}),
        (("-O",), {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8"}),
        (("-I",), {}),
    ],
    ids=["hash seed 0 in New York", "hash seed 4242 in Kathmandu", "isolated"],
)
def test_a_fresh_process_decides_the_same(options: tuple[str, ...], environment: dict[str, str]) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); " + PRINT_DIGEST
    assert run(code, *options, **environment).strip() == digest(SIZE)


def test_the_zone_data_of_the_host_is_not_consulted(tmp_path: Path) -> None:
    utc = files("tzdata").joinpath("zoneinfo", "Etc", "UTC").read_bytes()
    for name in ("Europe/Berlin", "America/New_York", "Asia/Kathmandu"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(utc)
    fooled = "from zoneinfo import ZoneInfo; from datetime import datetime; "
    fooled += "assert not datetime(2024, 6, 1, tzinfo=ZoneInfo('Europe/Berlin')).utcoffset(); "
    assert run(fooled + PRINT_DIGEST, PYTHONTZPATH=str(tmp_path)).strip() == digest(SIZE)


def test_a_decision_opens_no_file_and_no_connection_once_its_zone_is_known() -> None:
    assert run(WATCHED).strip() == "[] True"


@pytest.fixture
def _own_random_numbers() -> Iterator[None]:
    """What other tests draw is not to be the same in every worker because of this one."""
    before = getstate()
    yield
    setstate(before)


@pytest.mark.usefixtures("_own_random_numbers")
def test_deciding_leaves_the_global_random_numbers_alone() -> None:
    seed(1)
    before = getstate()
    first = [canonical(each) for each in decisions(50)]
    assert getstate() == before
    seed(2)
    assert [canonical(each) for each in decisions(50)] == first


def test_deciding_does_not_depend_on_the_order_of_requests() -> None:
    numbers = range(120)
    forwards = {number: decide(request(number)) for number in numbers}
    backwards = {number: decide(request(number)) for number in reversed(numbers)}
    assert forwards == backwards


@pytest.fixture
def _fresh_samplers() -> Iterator[None]:
    """Samplers made under odd decimal settings must not be left for other tests, nor ready ones be found here."""
    _sampler.cache_clear()
    yield
    _sampler.cache_clear()


def of_distribution(*names: str) -> list[DecisionRequest]:
    found = [each for each in (request(number) for number in range(200)) if each.distribution.name in names]
    return [each for each in found if decide(each).attempts]


@pytest.mark.usefixtures("_fresh_samplers")
@pytest.mark.parametrize("precision", [3, 6, 60])
@pytest.mark.parametrize("name", ["uniform", "normal", "skewEarly", "skewLate", "exponential"])
def test_the_decimal_precision_of_the_host_program_changes_nothing(name: str, precision: int) -> None:
    asked = of_distribution(name)
    expected = [decide(each) for each in asked]
    _sampler.cache_clear()
    with decimal.localcontext() as context:
        context.prec = precision
        assert [decide(each) for each in asked] == expected


@pytest.mark.usefixtures("_fresh_samplers")
@pytest.mark.parametrize("trap", [decimal.Inexact, decimal.FloatOperation])
@pytest.mark.parametrize("name", ["uniform", "normal", "skewEarly", "skewLate", "exponential"])
def test_the_decimal_traps_of_the_host_program_change_nothing(name: str, trap: type[decimal.DecimalException]) -> None:
    asked = of_distribution(name)
    expected = [decide(each) for each in asked]
    _sampler.cache_clear()
    with decimal.localcontext() as context:
        context.traps[trap] = True
        assert [decide(each) for each in asked] == expected


def test_the_decimal_flags_of_the_host_program_are_left_as_they_were() -> None:
    with decimal.localcontext() as context:
        context.clear_flags()
        for each in of_distribution("normal", "skewEarly", "skewLate", "exponential"):
            decide(each)
        assert not any(context.flags.values())
