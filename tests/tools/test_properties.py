"""A property is tried with the same examples in every run, whatever else ran before it in its process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []

    @settings(max_examples=200, database=None)
    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        found.append((number, text))

    draw()
    return found


def test_a_module_that_was_imported_before_changes_no_example(tmp_path: Path) -> None:
    before = drawn()
    source = tmp_path / "odd_constants.py"
    source.write_text("\n".join(f"N{each} = {each * 7_919 + 5_000}\nT{each} = 'odd {each}'" for each in range(500)))
    spec = importlib.util.spec_from_file_location("odd_constants", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["odd_constants"] = module
    try:
        spec.loader.exec_module(module)
        assert drawn() == before
    finally:
        del sys.modules["odd_constants"]
