"""SQLite and PostgreSQL keep the contract of the board and of visitors."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.databases import Databases
from tests.tier import ON_16

from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock
from horae_store_tests.contract.page_details import BoardContract
from horae_store_tests.contract.sessions import VisitorContract


class Whole(BoardContract, VisitorContract):
    """Both."""


class TestSqliteFile(Whole):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "horae.db"

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))


class TestSqliteInMemory(Whole):
    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(":memory:", clock=clock.now))


class Postgres(Whole):
    url: str

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))


class TestPostgres18(Postgres):
    @pytest.fixture(autouse=True)
    def _database(self, databases_18: Databases) -> None:
        self.url = databases_18.emptied()


@ON_16
class TestPostgres16(Postgres):
    @pytest.fixture(autouse=True)
    def _database(self, databases_16: Databases) -> None:
        self.url = databases_16.emptied()
