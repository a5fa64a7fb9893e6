"""isolation="process": end to end, killed when its time is up, and whatever becomes of the interpreter."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine import process_tasks
from tests.engine.world import ended, only_report, simulate, until

from horae import Every, Horae, Retry, Run
from horae.testing.simulation import Simulation


def test_a_task_in_a_process_knows_its_run_and_answers_as_any_other() -> None:
    app = Horae("sqlite://")
    etl = app.job("etl", Every("1h"), payload={"n": 1})
    seen: list[Any] = []

    @etl.task
    async def first() -> list[int]:
        return [1, 2]

    etl.task(isolation="process")(process_tasks.speak)

    @etl.task
    async def last(run: Run) -> None:
        seen.append(run.results["speak"])

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app)
        assert report.outcome == "COMPLETED"
        text = await app.output(report.tasks[1].attempts[0].attempt_id)
        for line in ("printed", "logged", "through run.log", "to stderr"):
            assert line in text

    simulate(app, body)
    assert seen[0]["pid"] != os.getpid()
    assert (seen[0]["payload"], seen[0]["results"]) == ({"n": 1}, {"first": [1, 2]})
    assert seen[0]["slot"] == "2026-01-01 01:00:00+00:00"


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (process_tasks.fail, "ValueError: in the child"),
        (process_tasks.leave, "code 3"),
        (process_tasks.vanish, "7"),
        (process_tasks.die, "SIGKILL"),
    ],
)
def test_whatever_happens_in_the_process_ends_its_attempt_and_the_next_one_works(
    task: Callable[[], None], told: str
) -> None:
    app = Horae("sqlite://")
    app.job("bad", Every("1h"), isolation="process")(task)
    app.job("good", Every("1h"), isolation="process")(process_tasks.speak)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")
        report = await only_report(app, "bad")
        assert report.outcome == "FAILED"
        assert told in (report.tasks[0].attempts[0].error or "")
        assert (await only_report(app, "good")).outcome == "COMPLETED"

    simulate(app, body)


def test_a_process_that_takes_too_long_is_killed_and_the_try_ends_timeout(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    file = tmp_path / "pid"
    # On a slow machine a process may not even have begun its task when the shorter times are up.
    limits = ("1s", "2s", "4s", "8s", "16s", "32s")
    for limit in limits:
        app.job(limit, None, isolation="process", task_timeout=limit, cancel_grace="200ms")(process_tasks.hang)

    async def main() -> None:
        async with app:
            for limit in limits:
                report = await ended(app, await app.trigger(limit, {"file": str(file)}))
                assert (report.outcome, report.tasks[0].state) == ("FAILED", "TIMEOUT")
                if file.exists():
                    return

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_process_is_cancelled_with_its_run(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    file = tmp_path / "pid"
    app.job("hang", None, isolation="process", cancel_grace="200ms")(process_tasks.hang)

    async def main() -> None:
        async with app:
            ref = await app.trigger("hang", {"file": str(file)})
            await until(file.exists)
            await app.cancel(ref)
            assert (await ended(app, ref)).outcome == "CANCELLED"

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_failed_process_is_retried_in_a_new_one() -> None:
    app = Horae("sqlite://")
    app.job("bad", Every("1h"), isolation="process", retry=Retry(1, "1m"))(process_tasks.vanish)

    async def body(sim: Simulation) -> None:
        await sim.advance("70m")
        report = await only_report(app)
        assert [str(each.state) for each in report.tasks[0].attempts] == ["FAILED", "FAILED"]

    simulate(app, body)
