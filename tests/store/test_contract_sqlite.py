"""The SQLite store keeps the contract that every store must keep: in memory, and as one file with two connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock
from horae_store_tests.contract.builders import SqlWords
from horae_store_tests.contract.store_contract import StoreContract

SQL = SqlWords("sys.things", "?", ":value")


class TestSqliteFile(StoreContract):
    sql = SQL

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "horae.db"

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))


class TestSqliteInMemory(StoreContract):
    sql = SQL

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(":memory:", clock=clock.now))
