"""Tests that ask for `stage` run on both kinds of store; `ground` is one catalog for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sql.stage import Stage, staged
from tests.store.catalogs import Place, sqlite_place
from tests.store.databases import Databases

from horae.security import access


def place_of(request: pytest.FixtureRequest, folder: Path, *, own: bool) -> Place:
    if request.param == "sqlite":
        return sqlite_place(folder)
    databases: Databases = request.getfixturevalue("databases_18")
    return Place("postgres", databases.fresh() if own else databases.emptied())


@pytest.fixture(autouse=True)
def _every_refusal_leaves_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of one catalog are a flood of refusals, and look for the row of each."""
    monkeypatch.setattr(access, "REFUSAL_ROWS", 1_000_000)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request, tmp_path, own=False)


@pytest.fixture
def stage(place: Place, tmp_path: Path) -> Iterator[Stage]:
    with staged(place, tmp_path) as made:
        yield made


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("ground")
    with staged(place_of(request, folder, own=True), folder) as made:
        yield made
