"""Files of a SQLite catalog are for their owner alone, or for the group that the configuration names, by any umask."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from horae import Horae
from horae.app.stores import make_store, migrate_store
from horae.errors import InvalidConfiguration
from horae.store.sqlite.liveness import FileLocks


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _by_any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Of everything in it; a node's lock by the word node."""
    return {
        "node" if each.parent.name.endswith("-nodes") else each.name: f"{S_IMODE(each.stat().st_mode):04o}"
        for each in folder.rglob("*")
        if each.name != "horae.toml"
    }


def modes_at_work(folder: Path, configuration: str | None = None) -> dict[str, str]:
    settings = {"tee": False} if configuration is None else {"tee": False, "configuration": configuration}

    async def main() -> dict[str, str]:
        async with Horae(f"sqlite:///{folder}/horae.db", settings=settings):
            return modes(folder)

    return asyncio.run(main())


@pytest.mark.usefixtures("_by_any_umask")
def test_a_new_catalog_and_all_beside_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    own = "0600"
    expected = {"horae.db": own, "horae.db-wal": own, "horae.db-shm": own, "horae.db-nodes": "0700", "node": own}
    assert modes_at_work(tmp_path) == expected


@pytest.mark.usefixtures("_by_any_umask")
def test_a_new_catalog_behind_a_link_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "near.db").symlink_to("there/real.db")
    (tmp_path / "horae.db").symlink_to("near.db")
    assert {name: mode for name, mode in modes_at_work(tmp_path).items() if name.startswith("real.db")} == {
        "real.db": "0600",
        "real.db-wal": "0600",
        "real.db-shm": "0600",
    }


@pytest.mark.usefixtures("_by_any_umask")
def test_a_group_shares_a_catalog_where_the_configuration_says_so(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.touch(mode=0o600)
    file.write_text('[server]\nfile_mode = "0660"\n')
    ours = "0660"
    expected = {"horae.db": ours, "horae.db-wal": ours, "horae.db-shm": ours, "horae.db-nodes": "0770", "node": ours}
    assert modes_at_work(tmp_path, str(file)) == expected


@pytest.mark.usefixtures("_by_any_umask")
def test_a_migration_creates_a_catalog_by_the_configuration_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(migrate_store(f"sqlite:///{tmp_path}/own.db"))
    file = tmp_path / "horae.toml"
    file.touch(mode=0o600)
    file.write_text('[server]\nfile_mode = "0640"\n')
    monkeypatch.setenv("HORAE_CONFIG", str(file))
    asyncio.run(migrate_store(f"sqlite:///{tmp_path}/read.db"))
    assert modes(tmp_path) == {"own.db": "0600", "read.db": "0640"}


def test_a_catalog_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    asyncio.run(migrate_store(f"sqlite:///{path}"))
    path.chmod(0o664)

    async def reopen() -> None:
        store = make_store(f"sqlite:///{path}")
        await store.open()
        await store.close()

    asyncio.run(reopen())
    assert modes(tmp_path)["horae.db"] == "0664"


def test_locks_made_again_and_left_for_nodes_that_are_gone_have_the_mode_of_their_catalog(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    path.touch(mode=0o600)
    path.chmod(0o660)
    locks = FileLocks(str(path))
    assert locks.take("a")
    (tmp_path / "horae.db-nodes" / "a").unlink()
    locks.renew()
    assert modes(tmp_path)["node"] == "0660"
    locks.release("a")
    locks.prove_gone(["b"])
    assert modes(tmp_path)["node"] == "0660"
    locks.close()


@pytest.mark.parametrize("value", ["0666", "0777", "600"])
def test_a_mode_that_lets_everybody_in_is_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "horae.toml"
    file.write_text(f'[server]\nfile_mode = "{value}"\n')
    with pytest.raises(InvalidConfiguration, match=r"file_mode in .server. must be one of 0600, 0640, 0660"):
        Horae(f"sqlite:///{tmp_path}/horae.db", settings={"configuration": str(file)})
