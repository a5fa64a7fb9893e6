"""Definitions are remembered by version; one that was never committed must not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from tests.store.catalogs import Place, minutely
from tests.store.databases import Databases
from tests.store.joining import Worker, with_worker

from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.errors import StoreConflict, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.records import Capacity
from horae.testing.clock import ManualClock


def broken(store: Catalog, error: Exception) -> Any:
    """A transaction that fails just before it would commit."""
    whole = store.driver.transaction

    @asynccontextmanager
    async def transaction(*, write: bool = True) -> AsyncIterator[Any]:
        async with whole(write=write) as transaction:
            yield transaction
            raise error

    return transaction


def test_a_definition_that_failed_to_commit_is_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    first, second = place.store(clock), place.store(clock)

    async def body() -> None:
        await first.open()
        await second.open()
        monkeypatch.setattr(first.driver, "transaction", broken(first, StoreConflict("in the way")))
        with pytest.raises(StoreConflict):
            await first.define([minutely("a", Cron("0 1 * * *"))])
        monkeypatch.undo()
        # Another process makes version 1 of the job, with another meaning.
        await second.define([minutely("a", Cron("0 2 * * *"))])
        [record] = await first.jobs()
        assert record.definition.spec.schedule == Cron("0 2 * * *")
        await first.close()
        await second.close()

    asyncio.run(body())


def test_a_registration_again_that_fails_forgets_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.store(ManualClock())

    async def body() -> None:
        await store.open()
        await store.define([minutely("a")])
        before = set(store._cache.known)
        monkeypatch.setattr(store.driver, "transaction", broken(store, StoreConflict("in the way")))
        with pytest.raises(StoreConflict):
            await store.define([minutely("a")])
        monkeypatch.undo()
        assert set(store._cache.known) == before != set()
        await store.close()

    asyncio.run(body())


def test_a_claim_whose_definitions_cannot_be_read_says_that_it_may_have_been_made(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, clock, node = Place("postgres", databases_18.emptied()), ManualClock(), uuid4()
    author, worker = place.store(clock), place.store(clock)

    async def body() -> None:
        await author.open()
        await worker.open()
        await worker.join(node)
        await author.define([minutely("a")])
        clock.advance("1m")
        await author.create_due_runs()
        monkeypatch.setattr(worker.driver, "transaction", broken(worker, StoreUnavailable("gone")))
        with pytest.raises(StoreUnavailable) as failure:
            await worker.claim_runs(Capacity(str(node), 5))
        monkeypatch.undo()
        assert failure.value.outcome_unknown
        [run] = await author.runs()
        assert run.state is RunState.RUNNING
        # The worker knows nothing of it, so its next heartbeat gives it back.
        await worker.heartbeat(node, {})
        assert [claim.job_name for claim in (await worker.claim_runs(Capacity(str(node), 5))).claims] == ["a"]
        await author.close()
        await worker.close()

    asyncio.run(body())


def test_which_job_a_claimed_run_is_of_is_forgotten_when_its_own_transaction_ends_it(place: Place) -> None:
    async def body(worker: Worker) -> None:
        claimed = worker.store._claimed
        assert set(claimed) == {worker.claim.run_no}
        await worker.works()
        # It goes on with its second task.
        assert set(claimed) == {worker.claim.run_no}
        async with worker.joins() as joined:
            await joined.settle(worker.word(release=True))
        assert claimed == {}

    asyncio.run(with_worker(place, body, tasks=("one", "two")))


def test_which_job_a_claimed_run_is_of_is_kept_while_its_own_transaction_comes_to_nothing(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("SELECT 1")
        assert set(worker.store._claimed) == {worker.claim.run_no}

    asyncio.run(with_worker(place, body))


def test_what_is_told_of_a_job_is_made_again_only_where_something_changed(place: Place) -> None:
    store = place.store(ManualClock())

    async def body() -> None:
        await store.open()
        await store.define([minutely("a"), minutely("b")])
        first = await store.jobs()
        again = await store.jobs()
        assert all(one is other for one, other in zip(first, again, strict=True))
        await store.set_state("a", JobState.PAUSED)
        paused, same = await store.jobs()
        assert (paused.state, same) == (JobState.PAUSED, first[1])
        assert same is first[1]
        await store.define([minutely("b", Cron("0 5 * * *"))])
        assert (await store.jobs(["b"]))[0].definition.spec.schedule == Cron("0 5 * * *")
        await store.close()

    asyncio.run(body())
