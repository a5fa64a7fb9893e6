"""Statements of a task's own on PostgreSQL: their settings, their connections, and commits whose answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.store.catalogs import PATIENCE, Place
from tests.store.databases import Databases
from tests.store.joining import Worker, with_worker
from tests.store.running import ADVISORY

from horae.core.run.lifecycle import RunState, TaskState
from horae.errors import Conflict, InvalidInput, StoreUnavailable
from horae.store.postgres.driver import MOST_JOINED, PostgresDriver
from horae.store.postgres.joined_run import PostgresJoinedTransaction
from horae.store.records import Capacity, SettlementVerdict

THINGS = "DROP TABLE IF EXISTS things; CREATE TABLE things (name TEXT PRIMARY KEY)"
NAMES = "SELECT name FROM things ORDER BY name"


@pytest.fixture
def place(databases_18: Databases) -> Place:
    return Place("postgres", databases_18.emptied())


async def waits_for_a_lock(place: Place, task: asyncio.Future[Any]) -> bool:
    """Whether the task comes to wait for a row of somebody else's, rather than to its end."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not task.done():
        if (await asyncio.to_thread(place.sql, asked))[0][0]:
            return True
    return False


# ---- what may be said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "ABORT",
        "START TRANSACTION",
        "PREPARE TRANSACTION 'mine'",
        "/* one /* in */ another */ COMMIT",
        "COMMIT PREPARED 'mine'",
        "COMMIT AND CHAIN",
    ],
)
def test_what_would_end_the_transaction_is_refused_and_it_goes_on(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('kept')")
            with pytest.raises(InvalidInput):
                await joined.execute(text)
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql(NAMES) == [("kept",)]


@pytest.mark.parametrize("text", ["DO $$ BEGIN COMMIT; END $$", "SELECT 1; COMMIT", "COPY things FROM STDIN"])
def test_what_would_get_round_that_fails_and_nothing_is_kept(place: Place, text: str) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('gone')")
            with pytest.raises((psycopg.Error, InvalidInput)):
                await joined.execute(text)
            for late in (joined.execute("SELECT 1"), joined.settle(worker.word(0))):
                with pytest.raises(InvalidInput, match="nothing of it can be kept"):
                    await late
        # The connection is as good as new, or another one.
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('kept')")
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql(NAMES) == [("kept",)]


def test_foreign_statements_run_under_the_servers_settings_and_settling_under_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    concluded = PostgresJoinedTransaction.conclude

    async def looked(self: PostgresJoinedTransaction) -> None:
        await concluded(self)
        seen.append(await self.raw("SELECT current_setting('enable_seqscan'), current_setting('search_path')"))

    monkeypatch.setattr(PostgresJoinedTransaction, "conclude", looked)

    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            asked = "SELECT current_setting('enable_seqscan'), current_setting('jit'), current_setting('search_path')"
            assert await joined.execute(asked) == [("on", place.sql("SHOW jit")[0][0], '"$user", public')]
            await joined.settle(worker.word(0))

    asyncio.run(with_worker(place, body))
    assert seen == [[("off", "pg_catalog, pg_temp")]]


def test_uuids_are_read_as_the_driver_reads_them(place: Place) -> None:
    async def body(worker: Worker) -> None:
        given = uuid4()
        async with worker.joins() as joined:
            [(read,)] = await joined.execute("SELECT %s::uuid", (given,))
            assert isinstance(read, UUID)
            assert read == given

    asyncio.run(with_worker(place, body))


def test_what_a_statement_leaves_in_its_session_meets_nobody_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several connections the next who comes may have another: while one is cleaned, a new one is opened."""
    monkeypatch.setattr("horae.store.postgres.driver.MOST_JOINED", 1)

    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            for text in (
                "SET search_path = pg_catalog",
                "SET enable_seqscan = on",
                "SET ROLE pg_monitor",
                "CREATE TEMP TABLE jobs (a int)",
                "SELECT pg_advisory_lock(42)",
            ):
                await joined.execute(text)
            [(first,)] = await joined.execute("SELECT pg_backend_pid()")
            assert (await joined.settle(worker.word(0))).verdict is SettlementVerdict.SETTLED
        async with worker.joins() as joined:
            [told] = await joined.execute(
                "SELECT pg_backend_pid(), current_setting('search_path'), current_user = session_user,"
                f" to_regclass('jobs'), (SELECT count(*) FROM pg_locks WHERE {ADVISORY})"
            )
            assert told == (first, '"$user", public', True, None, 0)

    asyncio.run(with_worker(place, body, tasks=("one", "two"), setup=THINGS))


def test_constraints_left_for_the_commit_are_checked_before_the_run_is_settled(place: Place) -> None:
    setup = THINGS.replace("PRIMARY KEY", "UNIQUE DEFERRABLE INITIALLY DEFERRED")

    async def body(worker: Worker) -> None:
        with pytest.raises(psycopg.errors.UniqueViolation):
            await worker.works("INSERT INTO things VALUES ('one'), ('one')")
        [run] = await worker.store.runs()
        assert run.state is RunState.RUNNING

    asyncio.run(with_worker(place, body, setup=setup))


# ---- whose run it is -------------------------------------------------------------------------------------------------


def test_a_run_that_was_taken_over_meanwhile_keeps_nothing(place: Place) -> None:
    async def body(worker: Worker) -> None:
        other = uuid4()
        await worker.store.join(other)
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('gone')")
            # Nobody waits for a task that is at work.
            assert await worker.store.take_over(other, worker.node, 0) == 1
            settled = await joined.settle(worker.word(0))
            assert (settled.verdict, settled.state) == (SettlementVerdict.FENCED, RunState.PENDING)
        [claim] = (await worker.store.claim_runs(Capacity(str(other), 5))).claims
        with pytest.raises(Conflict):
            await worker.joins().__aenter__()
        heir = Worker(worker.store, other, claim)
        async with heir.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('kept')")
            assert (await joined.settle(heir.word(0))).state is RunState.COMPLETED

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql(NAMES) == [("kept",)]


def test_tasks_at_work_leave_the_verbs_their_connections(place: Place) -> None:
    async def body(worker: Worker) -> None:
        entered, go_on = [asyncio.Event() for _ in range(MOST_JOINED)], asyncio.Event()

        async def held(number: int) -> None:
            async with worker.joins() as joined:
                await joined.execute("SELECT 1")
                entered[number].set()
                await go_on.wait()

        tasks = [asyncio.ensure_future(held(number)) for number in range(MOST_JOINED)]
        await asyncio.gather(*(each.wait() for each in entered))
        await asyncio.gather(*(worker.store.runs() for _ in range(10)))
        [settled] = await worker.store.settle(worker.node, [worker.word(0)])
        assert settled.state is RunState.COMPLETED
        go_on.set()
        await asyncio.gather(*tasks)

    asyncio.run(with_worker(place, body))


# ---- connections that break ------------------------------------------------------------------------------------------


def test_a_connection_lost_at_a_statement_is_a_store_that_cannot_be_reached(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('gone')")
            [(pid,)] = await joined.execute("SELECT pg_backend_pid()")
            place.sql(f"SELECT pg_terminate_backend({pid}, {PATIENCE * 1000:.0f})")
            with pytest.raises(StoreUnavailable) as lost:
                await joined.execute("SELECT 1")
            assert not lost.value.outcome_unknown
        await worker.works("INSERT INTO things VALUES ('kept')")

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql(NAMES) == [("kept",)]


Commit = Callable[[PostgresJoinedTransaction], Awaitable[None]]


def before_commit(commit: Commit, place: Place) -> Commit:
    """The server ends the session before it hears of the commit."""

    async def broken(self: PostgresJoinedTransaction) -> None:
        place.sql(f"SELECT pg_terminate_backend({self._connection.info.backend_pid}, {PATIENCE * 1000:.0f})")
        await commit(self)

    return broken


def after_commit(commit: Commit, place: Place) -> Commit:
    """The server commits, and its answer never arrives."""

    async def broken(self: PostgresJoinedTransaction) -> None:
        await commit(self)
        await self._connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    return broken


@pytest.mark.parametrize("breaks", [before_commit, after_commit], ids=["before", "after"])
@pytest.mark.parametrize("tasks", [("one",), ("one", "two")], ids=["at its end", "on its way"])
def test_a_commit_without_an_answer_is_made_out_by_handing_the_run_back(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[Commit, Place], Commit],
    tasks: tuple[str, ...],
) -> None:
    committed = breaks is after_commit

    async def body(worker: Worker) -> None:
        monkeypatch.setattr(PostgresJoinedTransaction, "commit", breaks(PostgresJoinedTransaction.commit, place))
        with pytest.raises(StoreUnavailable) as lost:
            await worker.works("INSERT INTO things VALUES ('once')")
        assert lost.value.outcome_unknown
        monkeypatch.undo()
        [answer] = await worker.store.settle(worker.node, [worker.word(release=True)])
        ended = committed and len(tasks) == 1
        assert answer.verdict is (SettlementVerdict.ALREADY if ended else SettlementVerdict.SETTLED)
        assert answer.state is (RunState.COMPLETED if ended else RunState.PENDING)
        history = await worker.store.history(worker.claim.run_id)
        assert history.tasks[0].state is (TaskState.SUCCESS if committed else TaskState.PENDING)
        if not ended:
            [claim] = (await worker.store.claim_runs(Capacity(str(worker.node), 5))).claims
            # What was committed is not done again.
            assert [start.position for start in claim.starts] == [1 if committed else 0]

    asyncio.run(with_worker(place, body, tasks=tasks, setup=THINGS))
    assert place.sql(NAMES) == ([("once",)] if committed else [])


def test_handing_a_run_back_waits_for_the_transaction_in_doubt(place: Place) -> None:
    async def body(worker: Worker) -> None:
        async with worker.joins() as joined:
            await joined.execute("INSERT INTO things VALUES ('kept')")
            await joined.settle(worker.word(0))
            release = asyncio.ensure_future(worker.store.settle(worker.node, [worker.word(release=True)]))
            assert await asyncio.wait_for(waits_for_a_lock(place, release), PATIENCE)
        [answer] = await release
        assert (answer.verdict, answer.state) == (SettlementVerdict.ALREADY, RunState.COMPLETED)

    asyncio.run(with_worker(place, body, setup=THINGS))
    assert place.sql(NAMES) == [("kept",)]


def test_the_connections_of_tasks_are_opened_at_first_use_and_closed_with_the_store(place: Place) -> None:
    async def body(worker: Worker) -> None:
        driver = worker.store.driver
        assert isinstance(driver, PostgresDriver)
        assert driver._joining is not None
        assert driver._joining.closed
        async with worker.joins():
            assert not driver._joining.closed
        pool = driver._joining
        await worker.store.close()
        assert pool.closed
        with pytest.raises(StoreUnavailable):
            await worker.joins().__aenter__()

    asyncio.run(with_worker(place, body))
