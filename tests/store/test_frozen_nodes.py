"""A node that stops in the middle of a transaction keeps no other from its work: PostgreSQL, and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import _pipeline_base
from tests.store.databases import Databases

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import AttemptState
from horae.errors import StoreConflict, StoreUnavailable
from horae.store.catalog.catalog import Catalog
from horae.store.postgres import driver
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.pool import PostgresConnection, _CommandGroup
from horae.store.records import Admission, AttemptEnd, Capacity, ClaimResult, Origin, Settlement

GUARD = 60.0
"""Real seconds after which something waits for a lock, however slow the machine is."""
ONE = (TaskSpec("one"),)
STANDS_STILL = "SET LOCAL idle_in_transaction_session_timeout = 0"
"""Else the server ends it after 5 s, and on a slow machine before what is done beside it."""

FROZEN = """
import asyncio, sys
from uuid import UUID
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver

async def main():
    store = Catalog(PostgresDriver(sys.argv[1]))
    await store.open()
    await store.join(UUID(sys.argv[2]))
    async with store.driver.transaction() as transaction:
        await transaction.rows("before_dispatch", node=sys.argv[2])
        await transaction.rows("lock_pools")
        await transaction.rows("lock_limited_jobs")
        await transaction.rows("lock_node_names")
        print("in the middle of it", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Catalog]:
    store = Catalog(PostgresDriver(url))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def frozen(url: str, node: UUID) -> Iterator[None]:
    """A node that is stopped while it claims: it holds its own row, the pools and the jobs with limits."""
    told = {**os.environ, "HORAE_UNDISTURBED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", FROZEN, url, str(node)], stdout=subprocess.PIPE, text=True, env=told
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "in the middle of it\n"
            process.send_signal(signal.SIGSTOP)
            yield
        finally:
            process.kill()


async def prepared(store: Catalog) -> None:
    await store.set_pool("narrow", 5)
    await store.define([JobSpec("pooled", None, ONE, {"overlap": "allow", "pool": "narrow"})])
    await store.define([JobSpec("limited", None, ONE, {"overlap": "allow", "max_concurrent": 5})])
    await store.define([JobSpec("free", None, (*ONE, TaskSpec("two")), {"overlap": "allow"})])
    await store.admit([Admission(name, Origin.TRIGGER, "local", key=name) for name in ("pooled", "limited", "free")])


def claimed(found: ClaimResult) -> set[str]:
    return {claim.definition.name for claim in found.claims}


def test_claims_pass_over_pools_and_jobs_that_a_stopped_claim_holds_and_look_at_them_again_soon(
    databases_18: Databases,
) -> None:
    url = databases_18.emptied()

    async def main() -> None:
        async with opened(url) as store:
            first, second = uuid4(), uuid4()
            await store.join(first)
            await store.join(second)
            await prepared(store)
            async with store.driver.transaction() as stopped:
                await stopped.raw(STANDS_STILL)  # type: ignore[attr-defined]  # of PostgreSQL's own
                await stopped.rows("before_dispatch", node=str(first))
                await stopped.rows("lock_pools")
                await stopped.rows("lock_limited_jobs")
                beside = await asyncio.wait_for(store.claim_runs(Capacity(str(second), 9)), GUARD)
            assert claimed(beside) == {"free"}
            assert beside.next_at is not None
            assert (beside.next_at - await store.now()).total_seconds() < 1
            assert claimed(await store.claim_runs(Capacity(str(second), 9))) == {"pooled", "limited"}

    asyncio.run(main())


def test_taking_over_does_not_wait_for_the_row_of_the_dead_node(databases_18: Databases) -> None:
    url = databases_18.emptied()

    async def main() -> None:
        async with opened(url) as store:
            dead, other = uuid4(), uuid4()
            await store.join(dead)
            await store.join(other)
            await prepared(store)
            assert len((await store.claim_runs(Capacity(str(dead), 9))).claims) == 3
            async with store.driver.transaction() as stopped:
                await stopped.raw(STANDS_STILL)  # type: ignore[attr-defined]  # of PostgreSQL's own
                await stopped.rows("before_dispatch", node=str(dead))
                # Who waits is told after limits.WAITING that it waited too long, in other words.
                with pytest.raises(StoreConflict, match="could not obtain lock"):
                    await asyncio.wait_for(store.take_over(other, dead, 0), GUARD)
            assert await store.take_over(other, dead, 0) == 3

    asyncio.run(main())


def test_the_server_ends_the_transaction_of_a_stopped_node_and_others_do_its_work(databases_18: Databases) -> None:
    url = databases_18.emptied()
    gone = uuid4()

    async def main() -> None:
        async with opened(url) as store:
            await prepared(store)
            with frozen(url, gone):
                node, found = uuid4(), set[str]()
                async with asyncio.timeout(GUARD):
                    # A start waits for the lock of names, until the server has ended who holds it.
                    async with opened(url) as late:
                        await late.join(node, name="late")
                        while len(found) < 3:
                            found |= claimed(await late.claim_runs(Capacity(str(node), 9)))
                            await asyncio.sleep(0.05)
                        await late.take_over(node, gone, 0)
                    assert found == {"pooled", "limited", "free"}
                    assert next(each.state for each in await store.nodes() if each.node == str(gone)) == "DEAD"

    asyncio.run(main())


def test_every_connection_has_limits_and_a_transaction_that_a_task_joins_its_own(databases_18: Databases) -> None:
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
    shown = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)

    url = databases_18.emptied()

    async def main() -> None:
        async with opened(url) as store:
            database = store.driver
            assert isinstance(database, PostgresDriver)
            ordinary = ("5s", "8s", "1min")
            async with database.transaction() as transaction:
                assert await transaction.raw(shown) == [ordinary]
                assert await transaction.raw("SELECT current_setting('transaction_timeout')") == [("1min",)]
                # An answer that the other machine does not acknowledge is not repeated for a quarter of an hour.
                assert await transaction.raw("SELECT current_setting('tcp_user_timeout')") == [("10000",)]
            async with database.transaction(write=False) as transaction:
                assert await transaction.raw(shown) == [ordinary]
            async with database.looking() as transaction:
                assert await transaction.raw(shown) == [ordinary]
            async with database.migration() as migrator:
                await migrator.run("SELECT 1")
                assert await migrator._transaction.raw(shown) == [("1min", "10s", "6h")]
            async with database.joined(77.0) as transaction:
                assert list(await transaction.foreign(shown)) == [("77s", "0", "0")]
                await transaction.conclude()
                assert await transaction.raw(shown) == [ordinary]
            async with database.joined(5.0) as transaction:
                # What a text may have set is taken back before the connection is used again.
                await transaction.foreign("SELECT set_config('lock_timeout', '99s', false)")
            async with database.joined(5.0) as transaction:
                assert await transaction.raw("SELECT current_setting('lock_timeout')") == [("8s",)]

    asyncio.run(main())


class Stops:
    """Has a connection stop for good after one of the things it waits for, as a process does that is frozen there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited = 0
        self.after: int | None = None
        self.stopped = asyncio.Event()
        self.session = 0
        wait = PostgresConnection.wait

        async def waits(connection: PostgresConnection, *given: Any, **more: Any) -> Any:
            try:
                return await wait(connection, *given, **more)
            finally:
                self.waited += 1
                if self.waited == self.after:
                    self.session = connection.info.backend_pid
                    self.stopped.set()
                    await asyncio.Event().wait()

        monkeypatch.setattr(PostgresConnection, "wait", waits)


@pytest.mark.parametrize("version", [16, 18])
def test_wherever_a_settlement_stops_the_server_ends_its_transaction(
    version: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    databases: Databases = request.getfixturevalue(f"databases_{version}")
    url, node = databases.emptied(), uuid4()
    # Only how long it stands still is to end it; a transaction is not to be too long as a whole.
    monkeypatch.setattr(driver, "TRANSACTION_TIME", 3600)

    async def main() -> int:
        async with opened(url) as store:
            await store.join(node)
            specs = [JobSpec(f"job-{number}", None, (*ONE, TaskSpec("two"))) for number in range(2)]
            await store.define(specs)
            await store.admit([Admission(spec.name, Origin.TRIGGER, "local") for spec in specs])
            claims = (await store.claim_runs(Capacity(str(node), 9))).claims
        settlements = [
            Settlement(claim.run_id, claim.run_no, claim.fence, (AttemptEnd(0, 1, AttemptState.SUCCESS),))
            for claim in claims
        ]
        for place in range(1, 100):
            if await ended_after(place, settlements):
                return place
        raise AssertionError("there is no end of it")

    async def ended_after(place: int, settlements: list[Settlement]) -> bool:
        """Whether the settlement was over before it waited so often. It is stopped there, and the others do it anew."""
        store = Catalog(PostgresDriver(url, connections=1))
        await store.open()
        async with store.driver.reading() as reading:
            # Of the only connection: what opened the store may have been slow.
            await reading.raw("SET idle_in_transaction_session_timeout = '300ms'")  # type: ignore[attr-defined]  # of PostgreSQL's own
        with monkeypatch.context() as patched:
            stops = Stops(patched)
            stops.after = place
            settling = asyncio.create_task(store.settle(node, settlements))
            stopping = asyncio.create_task(stops.stopped.wait())
            await asyncio.wait({settling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stops.stopped.is_set() and isinstance(settling.exception(), StoreUnavailable):
                # The machine was so slow that it stood still too long elsewhere.
                await store.close()
                return await ended_after(place, settlements)
            if stops.stopped.is_set():
                async with asyncio.timeout(GUARD):
                    while in_transaction(databases, stops.session):
                        await asyncio.sleep(0.05)
            settling.cancel()
            stopping.cancel()
            await asyncio.gather(settling, stopping, return_exceptions=True)
        await store.close()
        return not stops.stopped.is_set()

    assert asyncio.run(main()) > 8


def in_transaction(databases: Databases, session: int) -> bool:
    asked = f"SELECT 1 FROM pg_stat_activity WHERE pid = {session} AND xact_start IS NOT NULL"
    return bool(databases.server.execute(asked))


def test_nothing_of_a_pipeline_is_sent_without_the_sync_that_has_the_server_count(
    databases_18: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg flushes between any two of the commands that it takes from the queue: a process may freeze there."""
    url, node = databases_18.emptied(), uuid4()
    taken: list[bool] = []
    communicate = vars(_pipeline_base)["pipeline_communicate"]

    def watched(pgconn: Any, commands: Any) -> Any:
        taken.extend(
            isinstance(each, _CommandGroup) and each._commands[-1] == pgconn.pipeline_sync for each in commands
        )
        return communicate(pgconn, commands)

    async def main() -> None:
        async with opened(url) as store:
            await store.join(node)
            await prepared(store)
            monkeypatch.setattr(_pipeline_base, "pipeline_communicate", watched)
            claims = (await store.claim_runs(Capacity(str(node), 9))).claims
            ends = (AttemptEnd(0, 1, AttemptState.SUCCESS),)
            await store.settle(node, [Settlement(each.run_id, each.run_no, each.fence, ends) for each in claims])

    asyncio.run(main())
    assert len(taken) > 8
    assert all(taken)


def test_a_transaction_that_stood_still_too_long_is_the_stores_failure(databases_18: Databases) -> None:
    url = databases_18.emptied()

    async def main() -> None:
        async with opened(url) as store:
            with pytest.raises(StoreUnavailable):  # noqa: PT012 - it may be any of them that finds the session ended
                async with store.driver.transaction() as transaction:
                    await transaction.raw("SET LOCAL idle_in_transaction_session_timeout = 1")  # type: ignore[attr-defined]  # of PostgreSQL's own
                    while True:
                        await asyncio.sleep(0.05)
                        await transaction.rows("has_credentials")
            assert await store.has_credentials() in (True, False)

    asyncio.run(main())
