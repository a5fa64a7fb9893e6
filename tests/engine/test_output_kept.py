"""What tasks print and log is kept with their attempt: by async tasks, by threads, each with its own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.world import only_report, simulate

from horae import Every, Horae, Retry, Run
from horae.testing.simulation import Simulation

LOG = logging.getLogger("somebody.else")


def speaking(asynchronous: bool) -> Callable[[Run], Any]:
    def speak(run: Run) -> None:
        print("printed")
        print("to stderr", file=sys.stderr)
        LOG.warning("logged %d", 7)
        run.log.info("through run.log for %s", run.job_name)

    async def speak_too(run: Run) -> None:
        speak(run)

    return speak_too if asynchronous else speak


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
def test_prints_logs_and_run_log_are_kept_in_order(asynchronous: bool) -> None:
    app = Horae("sqlite://")
    app.job("a", Every("1h")).task(name="work")(speaking(asynchronous))

    async def body(sim: Simulation) -> str:
        await sim.advance("1h")
        return await app.output((await only_report(app)).tasks[0].attempts[0].attempt_id)

    lines = simulate(app, body).splitlines()
    assert lines[:2] == ["printed", "to stderr"]
    assert "logged 7" in lines[2]
    assert "through run.log for a" in lines[3]
    assert len(lines) == 4


def test_tasks_that_print_at_the_same_time_are_kept_apart() -> None:
    app = Horae("sqlite://", settings={"tee": False})
    job = app.job("a", Every("1h"), mode="parallel")
    for name in ("one", "two", "three"):

        async def work(run: Run) -> None:
            for number in range(3):
                print(run.task_name, number)
                await asyncio.sleep(10)

        job.task(name=name)(work)

    async def body(sim: Simulation) -> None:
        await sim.advance("2h")
        runs = await app.runs()
        report = await app.report(runs[-1].run_id)
        for task in report.tasks:
            text = await app.output(task.attempts[0].attempt_id)
            assert text == "".join(f"{task.name} {number}\n" for number in range(3))

    simulate(app, body)


def test_each_try_has_an_output_of_its_own_with_the_traceback_of_its_error() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), retry=Retry(1, "1m"))
    def work(run: Run) -> None:
        print(f"try {run.attempt}")
        if run.attempt == 1:
            raise ValueError("the first fails")

    async def body(sim: Simulation) -> None:
        await sim.advance("90m")
        first, second = (await only_report(app)).tasks[0].attempts
        text = await app.output(first.attempt_id)
        assert text.startswith("try 1\nTraceback")
        assert text.endswith("ValueError: the first fails\n")
        assert "horae/engine" not in text
        assert await app.output(second.attempt_id) == "try 2\n"

    simulate(app, body)


def test_output_can_be_read_while_the_task_still_runs_and_survives_a_crash() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"))
    async def work(run: Run) -> None:
        print("begun", run.attempt)
        await asyncio.sleep(600)
        print("done")

    async def body(sim: Simulation) -> None:
        await sim.advance("65m")
        (attempt,) = (await only_report(app)).tasks[0].attempts
        assert await app.output(attempt.attempt_id) == "begun 1\n"
        await sim.crash()
        await sim.advance("30m")
        first, second = (await only_report(app)).tasks[0].attempts
        assert await app.output(first.attempt_id) == "begun 1\n"
        assert await app.output(second.attempt_id) == "begun 2\ndone\n"

    simulate(app, body)


def test_what_the_program_prints_outside_of_tasks_is_nobody_s_output(capsys: pytest.CaptureFixture[str]) -> None:
    app = Horae("sqlite://")

    @app.job("quiet", Every("1h"))
    async def quiet() -> None:
        await asyncio.sleep(60)

    async def body(sim: Simulation) -> str:
        await sim.advance("60m30s")
        print("from outside")
        await sim.advance("10m")
        return await app.output((await only_report(app)).tasks[0].attempts[0].attempt_id)

    assert simulate(app, body) == ""
    assert "from outside" in capsys.readouterr().out


@pytest.mark.parametrize("tee", [True, False])
def test_tee_says_whether_it_also_goes_where_it_would_have_gone(tee: bool, capsys: pytest.CaptureFixture[str]) -> None:
    app = Horae("sqlite://", settings={"tee": tee})

    @app.job("a", Every("1h"))
    async def work() -> None:
        print("hello from the task")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h")

    simulate(app, body)
    assert ("hello from the task" in capsys.readouterr().out) is tee
