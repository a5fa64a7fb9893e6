"""Liveness locks of SQLite: what a file beside the catalog proves, and what it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

from horae.store.sqlite.liveness import FileLocks


def test_a_file_that_is_missing_is_no_proof_of_death_and_its_owner_makes_it_again(tmp_path: Path) -> None:
    catalog = str(tmp_path / "horae.db")
    owner, observer = FileLocks(catalog), FileLocks(catalog)
    assert owner.take("n")
    shutil.rmtree(f"{catalog}-nodes")
    assert not observer.is_free("n")
    owner.renew()
    assert (Path(f"{catalog}-nodes") / "n").is_file()
    assert not observer.is_free("n")
    owner.close()
    assert observer.is_free("n"), "whoever closes without leaving is known to be gone"


def test_a_file_that_was_replaced_under_its_owner_is_locked_again(tmp_path: Path) -> None:
    catalog = str(tmp_path / "horae.db")
    owner, observer = FileLocks(catalog), FileLocks(catalog)
    owner.take("n")
    file = Path(f"{catalog}-nodes") / "n"
    file.rename(tmp_path / "kept")
    file.touch()
    owner.renew()
    assert not observer.is_free("n")
    owner.release("n")
    assert not file.parent.exists()


def test_a_folder_that_cannot_be_made_again_keeps_no_heartbeat_from_going_on(tmp_path: Path) -> None:
    catalog = str(tmp_path / "horae.db")
    owner = FileLocks(catalog)
    owner.take("n")
    shutil.rmtree(f"{catalog}-nodes")
    Path(f"{catalog}-nodes").touch()
    owner.renew()
    owner.close()
