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

from horae_store_tests.contract.arrival import ArrivalContract
from horae_store_tests.contract.claims import DispatchContract
from horae_store_tests.contract.creation import PlanningContract
from horae_store_tests.contract.definitions import DefinitionContract
from horae_store_tests.contract.dormant_tasks import SleepingContract
from horae_store_tests.contract.joined_runs import JoiningContract
from horae_store_tests.contract.latest_only import OwingContract
from horae_store_tests.contract.maintenance import KeepingContract
from horae_store_tests.contract.missing_handlers import GoneContract
from horae_store_tests.contract.nodes import NodeContract
from horae_store_tests.contract.one_shot_jobs import OnceContract
from horae_store_tests.contract.operations import OperationContract
from horae_store_tests.contract.outbox import OutboxContract
from horae_store_tests.contract.overlap import OverlapContract
from horae_store_tests.contract.pause import PauseContract
from horae_store_tests.contract.pulse import MeteringContract
from horae_store_tests.contract.reads import ReadingContract
from horae_store_tests.contract.registrations import DeclaringContract
from horae_store_tests.contract.settlement import SettlingContract
from horae_store_tests.contract.threads import ThreadContract
from horae_store_tests.contract.updates import UpdatingContract

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
