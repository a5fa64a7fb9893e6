"""Real stores for the tests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.emptied())
