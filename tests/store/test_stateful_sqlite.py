"""The SQLite store and the model say the same to thousands of random commands."""

from __future__ import annotations

from tests.store.stateful import machine_for

from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock


def in_memory(clock: ManualClock) -> Store:
    return Catalog(SqliteDriver(":memory:", clock=clock.now))


TestSqliteAgainstModel = machine_for(in_memory, examples=40).TestCase
