"""A connection that is lost inside `run.transaction` is the store's failure: the attempt is LOST, and tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.store.databases import Databases

from horae import Every, Horae, Run
from horae.core.report.report import RunReport
from horae.errors import StoreUnavailable

PATIENCE = 60.0
KILL = "SELECT pg_terminate_backend(%s, 60000)"


def cut(url: str, process: int) -> None:
    """Ends the session, and waits until the server has."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(KILL, (process,)).fetchone() == (True,)


def sync_task(url: str, *, times: int, swallows: bool) -> Callable[[Run], Any]:
    def work(run: Run) -> str:
        run.transaction.execute("INSERT INTO effects VALUES (%s)", (run.attempt,))
        if run.attempt <= times:
            process = run.transaction.execute("SELECT pg_backend_pid()")[0][0]
            cut(url, process)
            try:
                run.transaction.execute("SELECT 1")
            except StoreUnavailable:
                if not swallows:
                    raise
                with pytest.raises(StoreUnavailable):
                    run.transaction.execute("INSERT INTO effects VALUES (99)")
        return "done"

    return work


def async_task(url: str, *, times: int, swallows: bool) -> Callable[[Run], Any]:
    async def work(run: Run) -> str:
        await run.transaction.execute("INSERT INTO effects VALUES (%s)", (run.attempt,))
        if run.attempt <= times:
            process = (await run.transaction.execute("SELECT pg_backend_pid()"))[0][0]
            await asyncio.to_thread(cut, url, process)
            try:
                await run.transaction.execute("SELECT 1")
            except StoreUnavailable:
                if not swallows:
                    raise
        return "done"

    return work


def ending_task(url: str, *, times: int) -> Callable[[Run], Any]:
    """Its connection is lost after its last statement: only the end finds out."""

    async def work(run: Run) -> str:
        await run.transaction.execute("INSERT INTO effects VALUES (%s)", (run.attempt,))
        process = (await run.transaction.execute("SELECT pg_backend_pid()"))[0][0]
        if run.attempt <= times:
            await asyncio.to_thread(cut, url, process)
        return "done"

    return work


def outcome(url: str, work: Callable[[Run], Any], **policies: Any) -> tuple[RunReport, list[int]]:
    """The report of one run of it, and what it wrote."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (attempt INTEGER)")
    app = Horae(url, settings={"tee": False})
    app.job("a", Every("1d"), **policies)(work)

    async def main() -> RunReport:
        async with app:
            run = await app.trigger("a")
            return await asyncio.wait_for(app.wait(run.run_id), PATIENCE)

    report = asyncio.run(main())
    with psycopg.connect(url) as connection:
        return report, [row[0] for row in connection.execute("SELECT attempt FROM effects").fetchall()]


def attempts(report: RunReport) -> list[str]:
    return [str(attempt.state) for task in report.tasks for attempt in task.attempts]


@pytest.mark.parametrize("swallows", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize("make", [sync_task, async_task])
def test_an_attempt_whose_connection_is_lost_is_tried_again_though_no_retries_are_set(
    databases_18: Databases, make: Callable[..., Any], swallows: bool
) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, make(url, times=1, swallows=swallows))
    assert attempts(report) == ["LOST", "SUCCESS"]
    assert str(report.state) == "COMPLETED"
    assert effects == [2]
    assert "was lost (" in report.summary


def test_connections_lost_again_and_again_fail_the_run_when_max_lost_is_used_up(databases_18: Databases) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, async_task(url, times=9, swallows=False), max_lost=2)
    assert attempts(report) == ["LOST", "LOST"]
    assert (str(report.state), effects) == ("FAILED", [])
    assert "lost 2 times" in report.summary


def test_a_task_delivered_at_most_once_is_not_tried_again_after_its_connection_was_lost(
    databases_18: Databases,
) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, async_task(url, times=9, swallows=False), delivery="at_most_once")
    assert attempts(report) == ["LOST"]
    assert (str(report.state), effects) == ("FAILED_STALE", [])


def test_an_attempt_whose_connection_is_lost_after_its_last_statement_is_tried_again(databases_18: Databases) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, ending_task(url, times=1))
    assert attempts(report) == ["LOST", "SUCCESS"]
    assert (str(report.state), effects) == ("COMPLETED", [2])


def test_connections_lost_after_the_last_statement_again_and_again_fail_the_run_when_max_lost_is_used_up(
    databases_18: Databases,
) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, ending_task(url, times=99))
    assert attempts(report) == ["LOST", "LOST", "LOST"]
    assert (str(report.state), effects) == ("FAILED", [])
    assert "lost 3 times" in report.summary


def test_a_task_delivered_at_most_once_whose_connection_is_lost_after_its_last_statement_is_not_tried_again(
    databases_18: Databases,
) -> None:
    url = databases_18.fresh()
    report, effects = outcome(url, ending_task(url, times=99), delivery="at_most_once")
    assert attempts(report) == ["LOST"]
    assert (str(report.state), effects) == ("FAILED_STALE", [])


def test_an_error_of_the_task_s_own_statement_is_still_its_failure(databases_18: Databases) -> None:
    async def work(run: Run) -> None:
        await run.transaction.execute("SELECT * FROM there_is_no_such_table")

    report, effects = outcome(databases_18.fresh(), work)
    assert attempts(report) == ["FAILED"]
    assert effects == []
