"""The catalog keeps the vault's contract on both stores, and on both versions of PostgreSQL."""

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
from horae_store_tests.contract.audit_trail import VaultContract
from horae_store_tests.contract.people import Kept

BOTH: type[Kept] = Catalog
"""A catalog is a Store and a Vault, says whoever checks types."""


class TestSqliteFile(VaultContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "horae.db"

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(SqliteDriver(str(self.path), clock=clock.now))


class TestSqliteInMemory(VaultContract):
    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(SqliteDriver(":memory:", clock=clock.now))


class PostgresVault(VaultContract):
    url: str

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))


class TestPostgres18(PostgresVault):
    @pytest.fixture(autouse=True)
    def _database(self, databases_18: Databases) -> None:
        self.url = databases_18.emptied()


@ON_16
class TestPostgres16(PostgresVault):
    @pytest.fixture(autouse=True)
    def _database(self, databases_16: Databases) -> None:
        self.url = databases_16.emptied()
