"""What torture of either store begins with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.databases import Databases

MakeUrl = Callable[[str], str]


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Where an empty catalog is, by the name of the store."""

    def make(store: str) -> str:
        if store == "sqlite":
            return str(tmp_path / "horae.db")
        databases: Databases = request.getfixturevalue("databases_18")
        return databases.emptied()

    return make
