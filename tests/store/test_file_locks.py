"""Liveness locks of SQLite: what a file beside the catalog proves, and what it does not."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from tests.store.catalogs import sqlite_place

from horae.store.sqlite.liveness import FileLocks

NODE = UUID("00000000-0000-4000-8000-000000000001")


def test_a_node_whose_file_was_removed_holds_its_lock_again_after_its_next_heartbeat(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)

    async def main() -> None:
        owner, observer = place.store(), place.store()
        await owner.open()
        await observer.open()
        try:
            await owner.join(NODE)
            shutil.rmtree(f"{place.target}-nodes")
            assert [node.lock_free for node in await observer.nodes()] == [False]
            assert not (await owner.heartbeat(NODE, {})).expelled
            assert (Path(f"{place.target}-nodes") / str(NODE)).is_file()
            assert [node.lock_free for node in await observer.nodes()] == [False]
        finally:
            await observer.close()
            await owner.close()

    asyncio.run(main())


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


@pytest.mark.parametrize("how", ["empty", "a copy", "truncated"])
def test_a_file_that_another_has_put_in_the_place_of_a_lock_is_no_proof_of_death(tmp_path: Path, how: str) -> None:
    catalog = str(tmp_path / "horae.db")
    owner, observer = FileLocks(catalog), FileLocks(catalog)
    owner.take("n")
    file = Path(f"{catalog}-nodes") / "n"
    if how == "truncated":
        file.write_bytes(b"")
    else:
        written = file.read_bytes() if how == "a copy" else b""
        (tmp_path / "other").write_bytes(written)
        (tmp_path / "other").rename(file)
    assert not observer.is_free("n")
    owner.renew()
    assert not observer.is_free("n")
    owner.close()
    assert observer.is_free("n"), "the file that its owner made again is proof as before"


def test_a_file_that_was_made_and_is_not_locked_yet_is_no_proof_of_death(tmp_path: Path) -> None:
    catalog = str(tmp_path / "horae.db")
    folder = Path(f"{catalog}-nodes")
    folder.mkdir()
    (folder / "n").touch()
    assert not FileLocks(catalog).is_free("n")
    assert not FileLocks(catalog).is_held("n"), "nor does it keep a catalog from being restored"


def test_a_folder_that_cannot_be_made_again_keeps_no_heartbeat_from_going_on(tmp_path: Path) -> None:
    catalog = str(tmp_path / "horae.db")
    owner = FileLocks(catalog)
    owner.take("n")
    shutil.rmtree(f"{catalog}-nodes")
    Path(f"{catalog}-nodes").touch()
    owner.renew()
    owner.close()
