"""The in-memory model keeps the contract that every store must keep."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from horae.core.declarative import RegistrationStatus
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.store.protocols.store import Capacity, Store
from horae.testing.clock import ManualClock
from horae_store_tests.contract.registrations import registered
from horae_store_tests.contract.store_contract import StoreContract
from horae_store_tests.model.store import ModelStore


class TestModelStore(StoreContract):
    def make_store(self, clock: ManualClock) -> Store:
        return ModelStore(clock)


def test_declaring_takes_over_from_a_node_whose_lock_is_free() -> None:
    """Other stores show it by closing a second connection, which the model has none of."""

    async def scenario() -> None:
        clock, node = ManualClock(), uuid4()
        store = ModelStore(clock)
        await store.join(node)
        await store.declare((registered(),))
        (claim,) = (await store.create_due_runs(start=Capacity(str(node), 1))).claims
        clock.advance(timedelta(seconds=90))
        await store.create_due_runs()
        assert [run.state for run in await store.runs()] == ["QUEUED", "RUNNING"]
        assert [each.standing for each in await store.declare((registered(),))] == [RegistrationStatus.PRESERVED]
        store.die(node)
        assert [each.standing for each in await store.declare((registered(),))] == [RegistrationStatus.ORPHANED]
        queued, lost = await store.runs()
        assert (queued.state, queued.reason) == ("SKIPPED", "coalesced")
        assert (lost.run_id, lost.state, lost.not_before) == (claim.run_id, "PENDING", clock.now())
        assert [each.state for each in await store.nodes()] == ["DEAD"]

    asyncio.run(scenario())


def test_a_job_whose_windows_open_early_can_be_changed_while_slots_are_due() -> None:
    """A verb plans all that is due first, also slots whose windows are open ahead of their time."""

    async def main() -> None:
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        store = ModelStore(clock)
        await store.define([JobSpec("a", Cron("* * * * *"), (TaskSpec("t"),), {"window": Window.before("4m")})])
        clock.advance("10m")
        await store.set_state("a", JobState.DISABLED)
        assert [run.state for run in await store.runs(job="a") if run.state is RunState.MISSED]

    asyncio.run(main())
