"""The contract every store must keep, as a test class to inherit from: it knows no test runner and no database.

    class TestMyStore(StoreContract):
        def make_store(self, clock: ManualClock) -> Store:
            return MyStore(fresh_catalog(), clock=clock.now)

        def make_peer(self, store: Store, clock: ManualClock) -> Store | None:   # optional: a second connection
            return MyStore(catalog_of(store), clock=clock.now)

        sql = SqlWords("sys.things", "?", ":value")   # optional: how statements are written that join a transaction

Each test is a plain method that runs one scenario in an event loop of its own; `make_store` is called before that, so
it may run loops itself. For readable failures have pytest rewrite the asserts, before anything imports this module:
`pytest.register_assert_rewrite("horae.testing")`. Tests that need a second connection are skipped where `make_peer` has
none, tests of a task's own statements where there is no `sql`.
"""

from __future__ import annotations

from horae.testing.contract_arrival import ArrivalContract
from horae.testing.contract_declaring import DeclaringContract
from horae.testing.contract_definitions import DefinitionContract
from horae.testing.contract_dispatching import DispatchContract
from horae.testing.contract_gone import GoneContract
from horae.testing.contract_joining import JoiningContract
from horae.testing.contract_keeping import KeepingContract
from horae.testing.contract_metering import MeteringContract
from horae.testing.contract_nodes import NodeContract
from horae.testing.contract_once import OnceContract
from horae.testing.contract_operations import OperationContract
from horae.testing.contract_outbox import OutboxContract
from horae.testing.contract_overlap import OverlapContract
from horae.testing.contract_owing import OwingContract
from horae.testing.contract_pause import PauseContract
from horae.testing.contract_planning import PlanningContract
from horae.testing.contract_reading import ReadingContract
from horae.testing.contract_settling import SettlingContract
from horae.testing.contract_sleeping import SleepingContract
from horae.testing.contract_threads import ThreadContract
from horae.testing.contract_updating import UpdatingContract

__all__ = ["StoreContract"]


class StoreContract(
    DefinitionContract,
    UpdatingContract,
    OnceContract,
    DeclaringContract,
    SleepingContract,
    OwingContract,
    PlanningContract,
    ArrivalContract,
    PauseContract,
    OverlapContract,
    DispatchContract,
    SettlingContract,
    ThreadContract,
    JoiningContract,
    OperationContract,
    NodeContract,
    KeepingContract,
    GoneContract,
    OutboxContract,
    ReadingContract,
    MeteringContract,
):
    """All of it. Subclass, say how a store is made, and let pytest collect it."""
