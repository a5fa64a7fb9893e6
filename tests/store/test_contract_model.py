"""The in-memory model keeps the contract that every store must keep."""

from __future__ import annotations

from horae.store.port import Store
from horae.testing.clock import ManualClock
from horae.testing.model_store import ModelStore
from horae.testing.store_contract import StoreContract


class TestModelStore(StoreContract):
    def make_store(self, clock: ManualClock) -> Store:
        return ModelStore(clock)
