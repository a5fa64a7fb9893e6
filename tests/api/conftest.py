"""Scenes that ask for `playing` are played on both kinds of store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.api.stand import Scene, play
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_place(tmp_path)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.emptied())


@pytest.fixture
def playing(place: Place) -> Callable[[Scene], None]:
    return partial(play, place)
