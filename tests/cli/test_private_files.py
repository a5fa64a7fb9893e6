"""Keys and tokens go to files of their owner's alone; what everybody may write or read is refused or named."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest
from tests.cli.shell import horae
from tests.executors import commands

from horae.security.keys import key_from_file


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    assert horae("migrate", "--store", url).code == 0
    return url


def test_a_master_key_goes_to_a_file_that_its_owner_alone_may_read_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "horae.key"
    before = os.umask(0)
    try:
        done = horae("secret", "key", "--out", str(file))
    finally:
        os.umask(before)
    assert (done.code, done.out) == (0, "")
    assert S_IMODE(file.stat().st_mode) == 0o600
    key = key_from_file(file)
    again = horae("secret", "key", "--out", str(file))
    assert again.code != 0
    assert "is there already" in again.errors
    assert key_from_file(file) == key


def test_a_token_goes_to_such_a_file_and_one_that_cannot_be_written_is_good_for_nothing(
    tmp_path: Path, store: str
) -> None:
    file = tmp_path / "token"
    done = horae("token", "create", "--label", "x", "--out", str(file), "--store", store, "--json")
    assert done.code == 0, done.errors
    secret = file.read_text().strip()
    assert secret.startswith("horae_")
    assert secret not in done.out + done.errors
    assert S_IMODE(file.stat().st_mode) == 0o600
    assert horae("token", "create", "--out", str(file), "--store", store).code != 0
    assert file.read_text().strip() == secret
    tokens = json.loads(horae("token", "list", "--store", store, "--json").out)["tokens"]
    assert sorted(each["revoked_at"] is None for each in tokens) == [False, True]


def test_a_configuration_that_everybody_may_write_is_refused_and_one_for_its_group_is_not(
    tmp_path: Path, store: str
) -> None:
    file = tmp_path / "horae.toml"
    file.write_text("[scheduler]\n")
    file.chmod(0o664)
    named = {"HORAE_CONFIG": str(file)}
    assert horae("doctor", "--store", store, environment=named).code == 0
    file.chmod(0o666)
    done = horae("doctor", "--store", store, environment=named)
    assert done.code != 0
    assert "everybody on this machine may write the configuration (mode 0666)" in done.out
    assert f"chmod o-w {file}" in done.out


def test_doctor_names_the_files_that_everybody_may_read(tmp_path: Path) -> None:
    with commands.place() as place:
        path = place.root / "horae.db"
        url = f"sqlite:///{path}"
        assert horae("migrate", "--store", url).code == 0
        assert "closed to others" in horae("doctor", "--store", url).out
        path.chmod(0o644)
        done = horae("doctor", "--store", url)
        said = " ".join((done.out + done.errors).split())
        assert "Everybody on this machine may read the store" in said
        assert f"chmod o-rwx {path}" in said


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("the configuration", "horae.toml"),
        ("the master key", "old.key"),
        ("the store", "horae.db-nodes"),
        ("the store", "horae.db-shm"),
    ],
)
def test_doctor_names_each_file_of_the_node_s_own_that_everybody_may_read(what: str, name: str) -> None:
    with commands.place() as place:
        root = place.root
        url = f"sqlite:///{root}/horae.db"
        assert horae("migrate", "--store", url).code == 0
        for key in ("horae.key", "old.key"):
            assert horae("secret", "key", "--out", str(root / key)).code == 0
        configuration = root / "horae.toml"
        configuration.touch(0o600)
        configuration.write_text(
            f'[secrets]\nkey_file = "horae.key"\nolder_key_files = ["old.key"]\n[server]\nstore = "{url}"\n'
        )
        named = {"HORAE_CONFIG": str(configuration)}
        # A node that holds the catalog open, as one that works does: its log and its locks are there.
        with closing(sqlite3.connect(root / "horae.db")) as held:
            held.execute("SELECT count(*) FROM sqlite_master").fetchall()
            (root / "horae.db-nodes").mkdir(0o700, exist_ok=True)
            assert "closed to others" in horae("doctor", "--store", url, environment=named).out
            path = root / name
            path.chmod(0o755 if path.is_dir() else 0o644)
            done = horae("doctor", "--store", url, environment=named)
        said = " ".join((done.out + done.errors).split())
        assert f"Everybody on this machine may read {what}: {path}" in said
        assert f"chmod o-rwx {path}" in said
