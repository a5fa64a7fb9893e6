"""The PostgreSQL store and the model say the same to random commands: fewer than SQLite's, since each one is a trip."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test
from tests.store.databases import Databases
from tests.store.stateful import machine_for
from tests.tier import ON_16

from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.protocols.store import Store
from horae.testing.clock import ManualClock


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=ON_16)])
def test_postgres_against_the_model(version: int, request: pytest.FixtureRequest) -> None:
    databases: Databases = request.getfixturevalue(f"databases_{version}")

    def opened(clock: ManualClock) -> Store:
        return Catalog(PostgresDriver(databases.emptied(), clock=clock.now, connections=2))

    machine = machine_for(opened, examples=8)
    run_state_machine_as_test(machine, settings=machine.TestCase.settings)
