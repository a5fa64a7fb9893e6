"""docs/declarative-conformance.md: every requirement has its number and a test that shows it, and the test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "declarative-conformance.md"
HERE = Path(__file__).parent
_NUMBER = re.compile(r"C(\d+)")
_SHOWN = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[str, str, str, str]]:
    """Number, section, requirement and proof of each requirement, in the order of the page."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| C"):
            assert len(cells) == 4, line
            found.append((cells[0], cells[1], cells[2], cells[3]))
    return found


ROWS = rows()


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of a file's tests. A proof names files as this folder does, or from the root."""
    path = HERE / file if (HERE / file).is_file() else ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def fault(proof: str) -> str | None:
    """What is wrong with what stands in the last column."""
    named = _SHOWN.findall(proof)
    if not named:
        return "names no test"
    for each in named:
        file, separator, test = each.partition("::")
        if not separator:
            # A target of time is measured; the bench says which figures fall short of it.
            if not each.startswith("bench/") or not (ROOT / each).is_file():
                return f"names {each}, which is neither a test nor a bench that exists"
        elif not (HERE / file).is_file() and not (ROOT / file).is_file():
            return f"names {file}, which does not exist"
        elif test not in names_in(file):
            return f"names {test}, which is not in {file}"
    return None


def test_requirements_are_numbered_without_holes() -> None:
    numbers = [_NUMBER.fullmatch(number) for number, *_ in ROWS]
    assert [None if number is None else int(number[1]) for number in numbers] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 100


def test_a_requirement_names_tests_that_exist() -> None:
    assert [f"{number} {said}" for number, _, _, proof in ROWS if (said := fault(proof)) is not None] == []


def test_a_requirement_is_written_once_and_says_something() -> None:
    requirements = [(section, text) for _, section, text, _ in ROWS]
    assert len(set(requirements)) == len(requirements)
    assert all(section and len(text) > 10 for section, text in requirements)


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        ("", "names no test"),
        ("test_retry.py", "names no test"),
        ("`test_retry.py`", "names test_retry.py, which is neither a test nor a bench that exists"),
        ("`bench/none.py`", "names bench/none.py, which is neither a test nor a bench that exists"),
        ("`test_none.py::test_this`", "names test_none.py, which does not exist"),
        ("`test_retry.py::test_none`", "names test_none, which is not in test_retry.py"),
    ],
)
def test_a_proof_that_is_none_is_found_out(proof: str, said: str) -> None:
    assert fault(proof) == said
