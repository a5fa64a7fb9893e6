"""Each test that asks for `place` runs on both kinds of store; one that asks for `server` on PostgreSQL alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases
from tests.tier import ON_16


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.fresh())


@pytest.fixture(params=["sqlite", pytest.param("16", marks=ON_16), "18"])
def every_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """SQLite, and both PostgreSQL versions: where who may do what is the database's own to say."""
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue(f"databases_{request.param}")
    return Place("postgres", databases.fresh())


@pytest.fixture
def server(databases_18: Databases) -> Place:
    return Place("postgres", databases_18.fresh())
