"""The password of a store's address is printed by no command, whatever goes wrong."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.inside import inside
from tests.store.databases import Databases

JOBS = '[jobs.a]\nevery = "1h"\nsql = "SELECT 1"\n'
COMMANDS = [
    ("job", "list"),
    ("job", "show", "a"),
    ("run", "list"),
    ("doctor",),
    ("sql", "SELECT 1"),
    ("sql", "SHOW JOBS"),
    ("plan", "jobs.toml"),
    ("export",),
    ("migrate", "--dry-run"),
    ("node", "list"),
    ("audit", "verify"),
]


@pytest.fixture(scope="module")
def addresses(databases_18: Databases) -> tuple[str, ...]:
    """A database without a catalog, one that is not there, a server that is not, a wrong password, another kind."""
    empty = databases_18.server.create_database()
    port, password = urlsplit(empty).port, urlsplit(empty).password
    assert password is not None
    wrong = empty.replace(password, f"{password}-but-wrong")
    away = empty.replace(f":{port}", ":1")
    return empty, f"{empty}_gone", away, wrong, empty.replace("postgresql:", "postgresqll:")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("json", [(), ("--json",)], ids=["text", "json"])
def test_no_command_prints_the_password_of_its_store(
    addresses: tuple[str, ...],
    command: tuple[str, ...],
    json: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.toml").write_text(JOBS)
    for url in addresses:
        done = inside(*command, "--store", url, *json)
        said = done.out + done.errors
        assert said
        assert str(urlsplit(addresses[0]).password) not in said
