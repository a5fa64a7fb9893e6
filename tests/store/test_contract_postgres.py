"""The PostgreSQL store keeps the contract that every store must keep, on both versions, with two connections."""

from __future__ import annotations

import pytest
from tests.store.databases import Databases
from tests.tier import ON_16

from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock
from horae_store_tests.contract.builders import SqlWords
from horae_store_tests.contract.store_contract import StoreContract


class PostgresContract(StoreContract):
    url: str
    sql = SqlWords("things", "%s", "%(value)s")

    def make_store(self, clock: ManualClock) -> Store:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))

    def make_peer(self, store: Store, clock: ManualClock) -> Store | None:
        return Catalog(PostgresDriver(self.url, clock=clock.now, connections=2))


class TestPostgres18(PostgresContract):
    @pytest.fixture(autouse=True)
    def _database(self, databases_18: Databases) -> None:
        self.url = databases_18.emptied()


@ON_16
class TestPostgres16(PostgresContract):
    @pytest.fixture(autouse=True)
    def _database(self, databases_16: Databases) -> None:
        self.url = databases_16.emptied()
