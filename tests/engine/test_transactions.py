"""run.transaction: what a task writes through it happens exactly once, with the task's end, or never."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.engine import process_tasks
from tests.engine.world import ended, only_report, simulate, states

from horae import Every, Horae, Retry, Run
from horae.errors import Conflict, InvalidInput, TransactionExpired
from horae.testing.faults import Faults
from horae.testing.simulation import Simulation

INSERT = "INSERT INTO sys.effects VALUES (?, ?)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "horae.db"


def effects(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT * FROM effects ORDER BY 1, 2").fetchall()


def make(file: Path, **options: Any) -> Horae:
    """An app whose catalog's file has a table of the user's own."""
    app = Horae(f"sqlite:///{file}", **options)

    async def prepare() -> None:
        await app.jobs()
        await app.close()

    asyncio.run(prepare())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE effects (job TEXT, attempt INTEGER)")
        connection.commit()
    return app


def writing(asynchronous: bool, fails: int = 0) -> Callable[[Run], Any]:
    def write(run: Run) -> int:
        rows = run.transaction.execute(INSERT, (run.job_name, run.attempt))
        if run.attempt <= fails:
            raise ValueError("after the statement")
        return int(rows.rowcount)

    async def write_too(run: Run) -> int:
        rows = await run.transaction.execute(INSERT, (run.job_name, run.attempt))
        if run.attempt <= fails:
            raise ValueError("after the statement")
        return int(rows.rowcount)

    return write_too if asynchronous else write


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_work_is_committed_with_the_task_s_end(file: Path, asynchronous: bool) -> None:
    app = make(file)
    app.job("a", Every("1h"))(writing(asynchronous))

    async def body(sim: Simulation) -> None:
        await sim.advance("3h")
        assert await states(app) == ["COMPLETED"] * 3

    simulate(app, body)
    assert effects(file) == [("a", 1)] * 3


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_attempt_that_fails_leaves_nothing_and_the_retry_that_succeeds_one_effect(
    file: Path, asynchronous: bool
) -> None:
    app = make(file)
    app.job("a", Every("1d"), retry=Retry(2, "1m"))(writing(asynchronous, fails=2))

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        report = await only_report(app)
        assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED", "FAILED", "SUCCESS"]

    simulate(app, body)
    assert effects(file) == [("a", 3)]


def test_a_task_in_a_process_joins_the_transaction_as_well(file: Path) -> None:
    app = make(file)
    app.job("a", Every("1d"), isolation="process", retry=Retry(1, "1m"), payload={"fail": True})(process_tasks.write)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)
    assert effects(file) == [("a", 2)]


def test_a_crash_between_the_work_and_its_settling_leaves_no_effect(file: Path) -> None:
    app = make(file, settings={"transaction_limit": "10m"})
    steps: list[str] = []

    @app.job("a", Every("1d"))
    async def work(run: Run) -> None:
        await run.transaction.execute(INSERT, (run.job_name, run.attempt))
        steps.append(f"written {run.attempt}")
        await asyncio.sleep(60)

    async def body(sim: Simulation) -> None:
        await sim.advance("24h30s")
        assert steps == ["written 1"]
        await sim.crash()
        assert effects(file) == []
        await sim.advance("10m")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)
    assert effects(file) == [("a", 2)]


def test_a_cancelled_task_s_work_is_undone(file: Path) -> None:
    app = make(file, settings={"transaction_limit": "1h"})

    @app.job("a", Every("1d"), task_timeout="1m")
    async def work(run: Run) -> None:
        await run.transaction.execute(INSERT, (run.job_name, run.attempt))
        await asyncio.sleep(600)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert (await only_report(app)).tasks[0].state == "TIMEOUT"

    simulate(app, body)
    assert effects(file) == []


def test_several_statements_see_each_other_and_rows_come_back(file: Path) -> None:
    app = make(file)
    seen: list[Any] = []

    @app.job("a", Every("1d"))
    def work(run: Run) -> None:
        for number in range(3):
            run.transaction.execute(INSERT, ("x", number))
        seen.append(list(run.transaction.execute("SELECT count(*), max(attempt) FROM sys.effects")))
        seen.append(list(run.transaction.execute("SELECT attempt FROM sys.effects WHERE attempt = :n", {"n": 2})))

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")

    simulate(app, body)
    assert seen == [[(3, 2)], [(2,)]]
    assert len(effects(file)) == 3


@pytest.mark.parametrize("verb", ["commit", "rollback"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_commit_and_rollback_are_refused(file: Path, verb: str, asynchronous: bool) -> None:
    app = make(file)
    refused: list[str] = []

    def attempt(run: Run) -> None:
        with pytest.raises(Conflict) as caught:
            getattr(run.transaction, verb)()
        refused.append(str(caught.value))

    async def work(run: Run) -> None:
        await run.transaction.execute(INSERT, ("a", 1))
        attempt(run)
        with pytest.raises(InvalidInput):
            await run.transaction.execute(verb.upper())

    def work_too(run: Run) -> None:
        run.transaction.execute(INSERT, ("a", 1))
        attempt(run)
        with pytest.raises(InvalidInput):
            run.transaction.execute(verb.upper())

    app.job("a", Every("1d")).task(name="work")(work if asynchronous else work_too)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert await states(app) == ["COMPLETED"]

    simulate(app, body)
    assert refused == [f"run.transaction has no {verb} of its own"]
    assert effects(file) == [("a", 1)]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_calls_on_the_app_are_refused_while_the_transaction_is_open(file: Path, asynchronous: bool) -> None:
    app = make(file)
    refused: list[str] = []

    @app.job("other", None)
    async def other() -> None: ...

    async def work(run: Run) -> None:
        await app.trigger("other", key="before")
        await run.transaction.execute(INSERT, ("a", 1))
        with pytest.raises(Conflict, match="transaction is open"):
            await app.trigger("other")
        refused.append("async")

    def work_too(run: Run) -> None:
        app.sync.trigger("other", key="before")
        run.transaction.execute(INSERT, ("a", 1))
        with pytest.raises(Conflict, match="transaction is open"):
            app.sync.trigger("other")
        refused.append("sync")

    app.job("a", Every("1d")).task(name="work")(work if asynchronous else work_too)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert await states(app, "a") == ["COMPLETED"]
        assert len(await app.runs("other")) == 1

    simulate(app, body)
    assert refused == ["async" if asynchronous else "sync"]


def test_a_transaction_that_lasts_too_long_is_rolled_back_and_fails_the_attempt(file: Path) -> None:
    app = make(file)

    @app.job("a", Every("1d"))
    async def work(run: Run) -> None:
        await run.transaction.execute(INSERT, ("a", 1))
        await asyncio.sleep(6)

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        report = await only_report(app)
        assert report.outcome == "FAILED"
        assert TransactionExpired.__name__ in (report.tasks[0].attempts[0].error or "")

    simulate(app, body)
    assert effects(file) == []


def test_a_statement_after_that_is_told_so(file: Path) -> None:
    app = make(file)
    told: list[str] = []

    @app.job("a", Every("1d"))
    async def work(run: Run) -> None:
        await run.transaction.execute(INSERT, ("a", 1))
        await asyncio.sleep(6)
        with pytest.raises(TransactionExpired, match="5 s"):
            await run.transaction.execute(INSERT, ("a", 2))
        told.append("too late")

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert await states(app) == ["FAILED"]

    simulate(app, body)
    assert (told, effects(file)) == (["too late"], [])


def test_a_statement_that_is_wrong_fails_the_attempt_with_the_database_s_words(file: Path) -> None:
    app = make(file)

    @app.job("a", Every("1d"))
    def work(run: Run) -> None:
        run.transaction.execute(INSERT, ("a", 1))
        run.transaction.execute("INSERT INTO sys.nowhere VALUES (1)")

    async def body(sim: Simulation) -> None:
        await sim.advance("25h")
        assert "nowhere" in ((await only_report(app)).tasks[0].attempts[0].error or "")

    simulate(app, body)
    assert effects(file) == []


@pytest.mark.parametrize("seed", range(8))
def test_under_faults_and_crashes_every_slot_has_exactly_one_effect(file: Path, seed: int) -> None:
    app = make(file)

    @app.job("a", Every("10m"), overlap="queue", recovery="all", max_lost=None)
    async def work(run: Run) -> None:
        await asyncio.sleep(30)
        await run.transaction.execute(INSERT, (str(run.scheduled_time), run.attempt))

    async def body(sim: Simulation) -> None:
        for _ in range(3):
            await sim.advance("33m20s")
            await sim.crash()
        await sim.advance("2h")
        finished = [run for run in await app.runs(limit=1000) if run.state == "COMPLETED"]
        slots = [str(run.scheduled_time) for run in finished]
        assert sorted(slot for slot, _ in effects(file)) == sorted(slots)
        assert len(slots) == len(set(slots)) >= 18

    simulate(app, body, seed=seed, faults=Faults(lost=0.05, unknown=0.05, conflict=0.05))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_on_postgresql_a_retried_attempt_has_exactly_one_effect(databases_18: Any, asynchronous: bool) -> None:
    url = databases_18.emptied()
    databases_18.server.execute(
        "DROP TABLE IF EXISTS public.effects; CREATE TABLE public.effects (job TEXT, attempt INTEGER)",
        database=url.rsplit("/", 1)[1],
    )
    app = Horae(url)
    insert = "INSERT INTO effects VALUES (%s, %s)"

    async def work(run: Run) -> None:
        await run.transaction.execute(insert, (run.job_name, run.attempt))
        if run.attempt == 1:
            raise ValueError("after the statement")

    def work_too(run: Run) -> None:
        run.transaction.execute(insert, (run.job_name, run.attempt))
        if run.attempt == 1:
            raise ValueError("after the statement")

    app.job("a", None, retry=Retry(1, "10ms")).task(name="work")(work if asynchronous else work_too)
    counted: list[Any] = []

    @app.job("count", None)
    async def count(run: Run) -> None:
        counted.append(list(await run.transaction.execute("SELECT job, attempt FROM effects")))

    async def main() -> None:
        async with app:
            assert (await ended(app, await app.trigger("a"))).outcome == "COMPLETED"
            assert (await ended(app, await app.trigger("count"))).outcome == "COMPLETED"

    asyncio.run(main())
    assert counted == [[("a", 2)]]
