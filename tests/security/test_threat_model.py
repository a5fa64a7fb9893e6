"""The page about security names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_table_of_attacks_names_is_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    model = page.partition("## Threat model")[2]
    named = re.findall(r"`(tests/[\w/]+\.py)`", model)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_attack_of_the_table_names_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| attack | tests |\n|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert len(rows) > 20
    assert [
        row for row in rows if not re.fullmatch(r"\| [^|]+ \| `tests/[\w/]+\.py`(, `tests/[\w/]+\.py`)* \|", row)
    ] == []


def test_the_way_to_report_a_weakness_is_at_the_root_and_the_page_names_it() -> None:
    assert (ROOT / "SECURITY.md").is_file()
    assert "`SECURITY.md`" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
