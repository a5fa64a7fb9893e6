"""Reading on PostgreSQL without a transaction: what may happen between two statements, and what must not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from tests.store.catalogs import minutely
from tests.store.databases import Databases

from horae.core.run.lifecycle import AttemptState, RunState
from horae.errors import StoreReadOnly
from horae.store.catalog.catalog import Catalog
from horae.store.postgres import clock as clock_module
from horae.store.postgres import pool
from horae.store.postgres.clock import ServerClock
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.pool import PostgresConnection
from horae.store.postgres.transaction import PostgresTransaction
from horae.store.protocols.reads import JobsQuery, RunsQuery
from horae.store.protocols.store import Admission, AttemptEnd, Capacity, Settlement
from horae.store.records import Origin

Body = Callable[[Catalog, Catalog], Awaitable[None]]


class Interrupted(PostgresDriver):
    """Does something of the test's after the first statement of a kind."""

    after: dict[str, Callable[[], Awaitable[None]]]

    def _made(self, connection: PostgresConnection, now: int) -> PostgresTransaction:
        made = super()._made(connection, now)
        return _Interrupting(made, self.after) if self.after else made  # type: ignore[return-value]  # what it has


class _Interrupting:
    def __init__(self, whole: PostgresTransaction, after: dict[str, Callable[[], Awaitable[None]]]) -> None:
        self._whole = whole
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    async def rows(self, name: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        found = await self._whole.rows(name, **parameters)
        if name in self._after:
            await self._after.pop(name)()
        return found


def both(url: str, body: Body) -> None:
    """Runs `body` with the one who looks, who can be interrupted, and another on the same catalog."""

    async def whole() -> None:
        driver = Interrupted(url, connections=2)
        driver.after = {}
        looker, other = Catalog(driver), Catalog(PostgresDriver(url, connections=2))
        await looker.open()
        await other.open()
        try:
            await body(looker, other)
        finally:
            await looker.close()
            await other.close()

    asyncio.run(whole())


@pytest.fixture
def url(databases_18: Databases) -> str:
    return databases_18.emptied()


def interrupt(store: Catalog, statement: str, act: Callable[[], Awaitable[None]]) -> None:
    assert isinstance(store.driver, Interrupted)
    store.driver.after[statement] = act


def test_a_job_that_is_dropped_while_it_is_listed_is_shown_as_it_was_or_not_at_all(url: str) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        await other.define([minutely("stays"), minutely("goes")])

        async def drop() -> None:
            await other.drop(["goes"])

        interrupt(looker, "list_jobs", drop)
        assert [job.name for job in await looker.jobs()] == ["goes", "stays"]
        assert [job.name for job in await looker.jobs()] == ["stays"]
        await other.define([minutely("goes-too")])

        async def drop_too() -> None:
            await other.drop(["goes-too"])

        interrupt(looker, "jobs_by_name", drop_too)
        page = await looker.list_jobs(JobsQuery())
        assert [job.name for job in page.jobs] == ["stays"]

    both(url, body)


def test_a_run_that_went_on_while_it_was_listed_is_not_shown_among_those_of_its_old_state(url: str) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        await other.define([minutely("job")])
        (run,) = await other.admit([Admission("job", Origin.TRIGGER, "local", key="one")])

        async def cancel() -> None:
            await other.cancel([run.run_id])

        pending = RunsQuery(states=frozenset({RunState.PENDING}))
        assert [each.run_id for each in await looker.list_runs(pending)] == [run.run_id]
        interrupt(looker, "page_of_active_runs", cancel)
        assert await looker.list_runs(pending) == ()

    both(url, body)


def test_a_page_is_filled_up_where_a_run_of_it_went_on_meanwhile(url: str) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        await other.define([minutely("job", overlap="allow")])
        runs = await other.admit([Admission("job", Origin.TRIGGER, "local", key=str(key)) for key in range(12)])

        async def cancel() -> None:
            await other.cancel([runs[-2].run_id])

        interrupt(looker, "page_of_active_runs", cancel)
        found = await looker.list_runs(RunsQuery(states=frozenset({RunState.PENDING}), limit=6))
        assert [each.run_id for each in found] == [runs[place].run_id for place in (11, 9, 8, 7, 6, 5)]

    both(url, body)


def test_a_server_clock_that_is_set_back_is_waited_for_however_often_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elapsed = [0.0]
    monkeypatch.setattr(clock_module, "monotonic", lambda: elapsed[0])
    clock = ServerClock(None)
    assert clock.seen(100_000) == 100_000
    assert clock.seen(90_000) == 100_000
    for tenth in range(1, 120):
        elapsed[0] = tenth / 10
        if tenth % 5 == 0:
            clock.seen(90_000 + tenth * 100)
        # Nothing is asked of a connection: the last reading is of half a second ago at most.
        told = asyncio.run(clock.glance(None))  # type: ignore[arg-type]  # as said
        assert 0 <= max(100_000, 90_000 + tenth * 100) - told <= 1


def test_whoever_only_looks_cannot_write(url: str) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        await other.define([minutely("job")])
        async with looker.driver.looking() as look:
            assert isinstance(look, PostgresTransaction)
            with pytest.raises(StoreReadOnly):
                await look.raw("DELETE FROM sys.jobs")
        assert len(await other.jobs()) == 1

    both(url, body)


def test_the_clock_is_carried_on_for_a_moment_and_never_goes_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        monkeypatch.setattr(clock_module, "FRESH", 600.0)
        seen = await looker.now()

        def later(seconds: float) -> None:
            monkeypatch.setattr(clock_module, "monotonic", lambda: monotonic() + seconds)

        later(300.0)
        carried = await looker.now()
        assert timedelta(seconds=299) <= carried - seen < timedelta(seconds=600)
        # The server is asked again, and its clock has not gone on like ours: what was told stays told.
        later(1200.0)
        assert await looker.now() >= carried

    both(url, body)


def test_a_connection_that_the_server_ended_is_not_looked_with_however_lately_it_was_used(
    url: str, databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        await other.define([minutely("job")])
        assert (await looker.list_jobs(JobsQuery())).total == 1
        monkeypatch.setattr(pool, "FRESH", 600.0)
        databases_18.server.terminate_backends(url)
        # What the server said as it ended them may still be on its way here.
        assert isinstance(looker.driver, PostgresDriver)
        assert looker.driver._looks is not None
        (idle,) = looker.driver._looks._pool
        while not pool.has_pending_data(idle):
            await asyncio.sleep(0.001)
        assert (await looker.list_jobs(JobsQuery())).total == 1

    both(url, body)


def test_the_whole_history_of_a_run_is_still_of_one_moment(url: str) -> None:
    async def body(looker: Catalog, other: Catalog) -> None:
        node = uuid4()
        await other.join(node)
        await other.define([minutely("job")])
        await other.admit([Admission("job", Origin.TRIGGER, "local", key="one")])
        (claim,) = (await other.claim_runs(Capacity(str(node), 1))).claims

        async def settle() -> None:
            ended = AttemptEnd(0, 1, AttemptState.SUCCESS)
            await other.settle(node, [Settlement(claim.run_id, claim.run_no, claim.fence, (ended,))])

        interrupt(looker, "run_by_uuid", settle)
        history = await looker.history(claim.run_id)
        assert (history.record.state, history.tasks[0].state) == ("RUNNING", "RUNNING")
        assert (await looker.history(claim.run_id)).tasks[0].state == "SUCCESS"

    both(url, body)
