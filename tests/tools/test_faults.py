"""The faults that are planted to try the suite can still be planted: their texts stand where they stood."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.faults import FAULTS, ROOT, plant


def test_each_fault_can_be_planted_and_changes_its_file(tmp_path: Path) -> None:
    for fault in FAULTS:
        copy = tmp_path / fault.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        before = (ROOT / fault.file).read_text()
        copy.write_text(before)
        plant(fault, tmp_path)
        assert copy.read_text() != before, fault.name


def test_a_fault_whose_text_is_gone_is_named(tmp_path: Path) -> None:
    fault = FAULTS[0]._replace(file="gone.py")
    (tmp_path / "gone.py").write_text("")
    with pytest.raises(ValueError, match=r"parked: gone\.py has its text 0 times"):
        plant(fault, tmp_path)


def test_faults_are_in_every_room_that_decides() -> None:
    rooms = {Path(fault.file).parts[2] for fault in FAULTS}
    assert rooms == {"core", "store", "engine", "web"}
    assert len(FAULTS) == 10
