"""A task that knows that it is to stop and returns is interrupted; one that never looked, or says done(), succeeded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine import process_tasks
from tests.engine.world import GUARD, ended, expire, only_report, running, simulate, tasks, until

from horae import Cancelled, Every, Horae, HoraeError, Retry, Run
from horae.core.report.report import RunReport
from horae.testing.simulation import Simulation


def make(tmp_path: Path, **options: Any) -> Horae:
    return Horae(f"sqlite:///{tmp_path / 'horae.db'}", **options)


def wait_for_stop(run: Run) -> None:
    """In a thread: until it reads that it is to stop."""
    pause = threading.Event()
    for _ in range(int(GUARD * 200)):
        if run.cancelled:
            return
        pause.wait(0.005)
    raise AssertionError("nobody asked it to stop")


def obey_by_returning(run: Run) -> str:
    wait_for_stop(run)
    return "half done"


def obey_by_raising(run: Run) -> str:
    wait_for_stop(run)
    try:
        run.check_cancelled()
    except Exception:  # noqa: BLE001 - what a task does that goes on after every error
        return "swallowed"
    return "whole"


def finish_all_the_same(run: Run) -> str:
    wait_for_stop(run)
    run.done()
    return "whole"


def fail_after_the_stop(run: Run) -> str:
    wait_for_stop(run)
    raise ValueError("could not roll back")


async def obey_by_returning_later(run: Run) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "half done"
    return "never"


async def obey_by_checking_later(run: Run) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        run.check_cancelled()
    return "never"


INTERRUPTED = [
    obey_by_returning,
    obey_by_raising,
    fail_after_the_stop,
    obey_by_returning_later,
    obey_by_checking_later,
]


def begun_first(work: Callable[[Run], Any], begun: threading.Event) -> Callable[[Run], Any]:
    """The task, which succeeds at its second try."""
    if asyncio.iscoroutinefunction(work):

        async def later(run: Run) -> Any:
            if run.attempt > 1:
                return "again"
            begun.set()
            return await work(run)

        return later

    def now(run: Run) -> Any:
        if run.attempt > 1:
            return "again"
        begun.set()
        return work(run)

    return now


def stopped_by_cancel(tmp_path: Path, work: Callable[[Run], Any]) -> RunReport:
    app, begun = make(tmp_path), threading.Event()
    app.job("a", None, retry=Retry(3, "0s"))(begun_first(work, begun))

    async def main() -> RunReport:
        async with app:
            run_id = await app.trigger("a")
            await until(begun.is_set)
            await app.cancel(run_id)
            return await ended(app, run_id)

    return asyncio.run(main())


@pytest.mark.parametrize("work", INTERRUPTED)
def test_a_task_that_saw_a_cancel_and_ends_is_cancelled(tmp_path: Path, work: Callable[[Run], Any]) -> None:
    report = stopped_by_cancel(tmp_path, work)
    assert (report.outcome, len(report.tasks[0].attempts), report.tasks[0].result) == ("CANCELLED", 1, None)
    assert report.tasks[0].attempts[0].state == "CANCELLED"
    error = report.tasks[0].attempts[0].error
    assert error == ("ValueError: could not roll back" if work is fail_after_the_stop else None)


def test_a_task_that_saw_a_cancel_and_says_that_it_is_done_has_succeeded(tmp_path: Path) -> None:
    report = stopped_by_cancel(tmp_path, finish_all_the_same)
    assert (report.outcome, report.tasks[0].result) == ("COMPLETED", "whole")


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("work", INTERRUPTED)
def test_a_task_that_saw_a_shutdown_and_ends_is_put_back_and_done_again(
    tmp_path: Path, work: Callable[[Run], Any], delivery: str
) -> None:
    begun = threading.Event()
    app = make(tmp_path, grace_period="50ms")
    app.job("a", None, delivery=delivery)(begun_first(work, begun))

    async def first() -> str:
        async with app:
            run_id = await app.trigger("a")
            await until(begun.is_set)
        return run_id

    async def second(run_id: str) -> RunReport:
        async with app:
            return await ended(app, run_id)

    run_id = asyncio.run(first())
    report = asyncio.run(second(run_id))
    states = [str(each.state) for each in report.tasks[0].attempts]
    error = report.tasks[0].attempts[0].error
    assert error == ("ValueError: could not roll back" if work is fail_after_the_stop else None)
    if delivery == "at_most_once":
        assert (report.outcome, report.run.reason, states) == ("CANCELLED", "released", ["CANCELLED"])
    else:
        assert (report.outcome, report.tasks[0].result, states) == ("COMPLETED", "again", ["CANCELLED", "SUCCESS"])


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_a_task_that_never_saw_the_shutdown_or_says_that_it_is_done_is_not_done_again(
    tmp_path: Path, *, looks: bool, joined: bool
) -> None:
    app, begun, go_on = make(tmp_path, grace_period="50ms"), threading.Event(), threading.Event()

    @app.job("a", None)
    def work(run: Run) -> str:
        assert run.attempt == 1
        assert not run.cancelled  # looked, and saw nothing
        if joined:
            run.transaction.execute("CREATE TABLE sys.effects (n INTEGER)")
        begun.set()
        if looks:
            wait_for_stop(run)
            run.done()
        else:
            go_on.wait(GUARD)
        return "whole"

    async def main() -> str:
        engine = await app.open()
        run_id = await app.trigger("a")
        await until(begun.is_set)
        (live,) = engine.ledger.runs.values()
        shutdown = asyncio.create_task(app.shut())
        await until(lambda: any(attempt.asked for attempt in live.attempts.values()) or not live.attempts)
        go_on.set()
        await shutdown
        return run_id

    async def look(run_id: str) -> RunReport:
        try:
            return await app.report(run_id)
        finally:
            await app.close()

    report = asyncio.run(look(asyncio.run(main())))
    assert (report.outcome, report.tasks[0].result, len(report.tasks[0].attempts)) == ("COMPLETED", "whole", 1)


@pytest.mark.parametrize("work", [obey_by_returning, obey_by_raising])
def test_a_sibling_that_saw_the_failure_of_another_and_returns_is_cancelled(
    tmp_path: Path, work: Callable[[Run], Any]
) -> None:
    app, begun = make(tmp_path), threading.Event()
    job = app.job("a", None, mode="parallel")

    @job.task
    def sibling(run: Run) -> Any:
        begun.set()
        return work(run)

    @job.task
    def failing() -> None:
        begun.wait(GUARD)
        raise ValueError("for good")

    async def main() -> RunReport:
        async with app:
            return await ended(app, await app.trigger("a"))

    report = asyncio.run(main())
    assert (report.outcome, tasks(report)) == ("FAILED", {"sibling": "CANCELLED", "failing": "FAILED"})
    assert report.tasks[0].cancelled_by == "failing"


def test_a_run_that_saw_that_another_replaces_it_and_returns_is_cancelled(tmp_path: Path) -> None:
    app, begun = make(tmp_path), threading.Event()

    @app.job("a", None, overlap="replace")
    def work(run: Run) -> str:
        if begun.is_set():
            return "the new one"
        begun.set()
        wait_for_stop(run)
        return "half done"

    async def main() -> list[RunReport]:
        async with app:
            first = await app.trigger("a")
            await until(begun.is_set)
            second = await app.trigger("a")
            return [await ended(app, first), await ended(app, second)]

    old, new = asyncio.run(main())
    assert (old.outcome, old.run.reason, new.outcome) == ("CANCELLED", "replaced", "COMPLETED")


@pytest.mark.parametrize("says_done", [False, True])
def test_a_task_timeout_stays_a_timeout_whatever_the_task_says(tmp_path: Path, *, says_done: bool) -> None:
    app = make(tmp_path)

    begun = threading.Event()

    @app.job("a", None, task_timeout="1h", retry=Retry(1, "0s"))
    def work(run: Run) -> str:
        if run.attempt == 1:
            begun.set()
            wait_for_stop(run)
            if says_done:
                run.done()
        return "value"

    async def main() -> RunReport:
        async with running(app) as engine:
            run_id = await app.trigger("a")
            await until(begun.is_set)
            expire(engine)
            return await ended(app, run_id)

    report = asyncio.run(main())
    assert [str(each.state) for each in report.tasks[0].attempts] == ["TIMEOUT", "SUCCESS"]


@pytest.mark.parametrize(
    ("work", "outcome", "reason"),
    [(obey_by_returning, "CANCELLED", "timeout"), (finish_all_the_same, "COMPLETED", None)],
)
def test_an_execution_timeout_ends_a_run_cancelled_unless_its_last_task_is_done(
    tmp_path: Path, work: Callable[[Run], Any], outcome: str, reason: str | None
) -> None:
    app, begun = make(tmp_path), threading.Event()

    @app.job("a", None, execution_timeout="1h")
    def begins(run: Run) -> Any:
        begun.set()
        return work(run)

    async def main() -> RunReport:
        async with running(app) as engine:
            run_id = await app.trigger("a")
            await until(begun.is_set)
            expire(engine)
            return await ended(app, run_id)

    report = asyncio.run(main())
    assert (report.outcome, report.run.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (process_tasks.swallow_the_stop, "CANCELLED"),
        (process_tasks.swallow_the_stop_later, "CANCELLED"),
        (process_tasks.finish_all_the_same, "COMPLETED"),
    ],
)
def test_the_same_holds_for_a_task_in_a_process_of_its_own(
    tmp_path: Path, work: Callable[[Run], Any], outcome: str
) -> None:
    app, file = make(tmp_path), tmp_path / "told"
    app.job("a", None, isolation="process", payload={"file": str(file)})(work)

    async def main() -> RunReport:
        async with app:
            run_id = await app.trigger("a")
            await until(file.exists)
            await app.cancel(run_id)
            return await ended(app, run_id)

    report = asyncio.run(main())
    assert (report.outcome, report.tasks[0].result) == (outcome, "whole" if outcome == "COMPLETED" else None)


def test_a_task_in_a_process_that_returns_at_shutdown_is_done_again(tmp_path: Path) -> None:
    app, file = make(tmp_path, grace_period="50ms"), tmp_path / "told"
    app.job("a", None, isolation="process", payload={"file": str(file)})(process_tasks.swallow_the_stop)

    async def first() -> str:
        async with app:
            run_id = await app.trigger("a")
            await until(file.exists)
        return run_id

    async def second(run_id: str) -> RunReport:
        async with app:
            return await ended(app, run_id)

    report = asyncio.run(second(asyncio.run(first())))
    assert (report.outcome, report.tasks[0].result) == ("COMPLETED", "again")


def test_a_task_that_raises_cancelled_of_its_own_accord_has_failed() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    def work() -> None:
        raise Cancelled

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        assert report.outcome == "FAILED"
        assert "by nobody" in (report.tasks[0].attempts[0].error or "")

    simulate(app, body)


def test_check_cancelled_does_nothing_while_nobody_asks_and_done_changes_nothing_then() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    def work(run: Run) -> str:
        run.check_cancelled()
        run.done()
        return "whole"

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        assert (await only_report(app)).tasks[0].result == "whole"

    simulate(app, body)


def test_a_plain_function_whose_coroutine_begins_after_the_stop_is_cancelled(tmp_path: Path) -> None:
    app, begun, go_on = make(tmp_path), threading.Event(), threading.Event()
    told: list[str] = []

    async def later() -> None:
        told.append("never")

    @app.job("a", None)
    def work() -> Any:
        begun.set()
        go_on.wait(GUARD)
        return later()

    async def main() -> RunReport:
        engine = await app.open()
        try:
            run_id = await app.trigger("a")
            await until(begun.is_set)
            (live,) = engine.ledger.runs.values()
            await app.cancel(run_id)
            await until(lambda: any(attempt.asked for attempt in live.attempts.values()))
            go_on.set()
            return await ended(app, run_id)
        finally:
            go_on.set()
            await app.shut()

    assert (asyncio.run(main()).outcome, told) == ("CANCELLED", [])


def test_cancelled_is_no_exception_that_a_task_would_catch_with_its_errors() -> None:
    assert not issubclass(Cancelled, Exception)
    assert not issubclass(Cancelled, HoraeError)
