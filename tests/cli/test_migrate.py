"""`horae migrate` as a shell runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.shell import horae
from tests.store.databases import Databases

from horae.store.schema import migrations

NAMES = [f"{each.number:04d}_{each.name}" for each in migrations("sqlite")]


def test_a_catalog_is_created_once_and_then_there_is_nothing_to_do(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    assert horae("migrate", "--store", store).out == "".join(f"applied {name}\n" for name in NAMES)
    assert horae("migrate", "--store", store).out == f"nothing to do: the schema is at {len(NAMES):04d}\n"
    assert horae("migrate", environment={"HORAE_STORE": store}).code == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "horae.db"
    done = horae("migrate", "--store", f"sqlite:///{path}", "--dry-run", "--json")
    assert json.loads(done.out) == {"schema": len(NAMES), "dialect": "sqlite", "applied": NAMES, "dry_run": True}
    assert not path.exists()


def test_a_server_is_migrated_by_its_url(databases_18: Databases) -> None:
    url = databases_18.server.create_database()
    assert horae("migrate", "--store", url, "--dry-run").out == "".join(f"would apply {name}\n" for name in NAMES)
    assert json.loads(horae("migrate", "--store", url, "--json").out)["applied"] == NAMES


def test_a_store_that_cannot_be_used_is_exit_code_3_and_a_bad_url_2(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a database, " * 100)
    refused = horae("migrate", "--store", f"sqlite:///{tmp_path / 'notes'}", "--json")
    assert refused.code == 3
    assert json.loads(refused.errors)["error"]["code"] == "not_a_catalog"
    assert horae("migrate", "--store", "postgresql://x@127.0.0.1:1/x").code == 3
    assert horae("migrate", "--store", "nonsense").code == 2
