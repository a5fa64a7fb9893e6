"""`app.wait`, `app.trigger(wait=True)` and `app.trigger_many`; and the command that waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.engine.world import simulate
from tests.web.serving import serving

from horae import Every, Horae, Run
from horae.errors import InvalidInput, JobNotFound, RunNotFound, WaitExpired
from horae.testing.simulation import Simulation


def jobs(app: Horae) -> None:
    @app.job("adds", Every("1d"), overlap="allow")
    async def adds(run: Run) -> Any:
        return {"sum": sum(run.payload or ())}

    @app.job("fails", Every("1d"))
    async def fails() -> None:
        raise ValueError("no luck")


def an_app() -> Horae:
    app = Horae("sqlite://")
    jobs(app)
    return app


def test_a_run_is_waited_for_until_it_has_ended_however_it_ends() -> None:
    app = an_app()

    async def body(sim: Simulation) -> None:
        report = await app.trigger("adds", [1, 2], wait=True)
        assert (report.state, report.tasks[0].result) == ("COMPLETED", {"sum": 3})
        assert (await app.wait(report.run_id)).outcome == "COMPLETED", "that it ended long ago makes no difference"
        failed = await app.wait(await app.trigger("fails"), timeout="1m")
        assert (failed.state, failed.failed_tasks) == ("FAILED", ("fails",))

    simulate(app, body)


def test_who_waits_too_long_is_told_and_the_run_goes_on() -> None:
    app = Horae("sqlite://")
    go_on = asyncio.Event()

    @app.job("long", Every("1d"))
    async def long() -> None:
        await go_on.wait()

    async def body(sim: Simulation) -> None:
        run = await app.trigger("long")
        with pytest.raises(WaitExpired, match=f'Run {run} of job "long" is still RUNNING after 5s'):
            await app.wait(run, timeout="5s")
        go_on.set()
        assert (await app.wait(run, timeout="5s")).state == "COMPLETED"
        with pytest.raises(RunNotFound):
            await app.wait("occ_00000000-0000-4000-8000-000000000000")
        with pytest.raises(InvalidInput):
            await app.trigger("long", timeout="5s")  # type: ignore[call-overload]

    simulate(app, body)


def test_many_are_asked_for_in_one_transaction_and_answered_in_order() -> None:
    app = an_app()

    async def body(sim: Simulation) -> None:
        asked = [("adds", [number], f"k{number}") for number in range(600)]
        runs = await app.trigger_many(asked)
        assert len(set(runs)) == 600
        for number in (0, 1, 599):
            assert (await app.wait(runs[number])).tasks[0].result == {"sum": number}
        again = await app.trigger_many([*asked[:2], ("adds",), ("adds", [7]), asked[0]])
        assert (again[0], again[1], again[4]) == (runs[0], runs[1], runs[0])
        assert [each.fresh for each in again] == [False, False, True, True, False]
        assert await app.trigger_many([]) == ()
        before = len(await app.runs(limit=10_000))
        with pytest.raises(JobNotFound):
            await app.trigger_many([("adds", [1], "new"), ("nope", None, None)])
        assert len(await app.runs(limit=10_000)) == before, "all of them or none"
        for wrong in ([("adds", 1, "k", "more")], ["adds"], [()], [7]):
            with pytest.raises(InvalidInput):
                await app.trigger_many(wrong)  # type: ignore[arg-type]

    simulate(app, body)


def test_sync_code_waits_too(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    jobs(app)
    app.start()
    try:
        assert app.sync.wait(app.sync.trigger("adds", [4]), timeout="60s").tasks[0].result == {"sum": 4}
        assert app.sync.trigger("fails", wait=True, timeout="60s").state == "FAILED"
        (run,) = app.sync.trigger_many([("adds", [5], None)])
        assert app.sync.wait(run, "60s").state == "COMPLETED"
    finally:
        app.stop()


def test_the_command_waits_shows_the_report_and_tells_how_it_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    with serving(url, define=jobs, is_running=True) as server:
        for where in (("--server", server.url), ("--store", url)):
            done = inside("job", "trigger", "adds", "--payload", "[1, 2]", "--wait", "--timeout", "60s", *where)
            assert (done.code, ": COMPLETED" in done.out) == (0, True), done
            assert "run occ_" in done.errors, "which run it is is told at once, and not in the report's way"
            failed = inside("job", "trigger", "fails", "--wait", *where, "--json")
            assert (failed.code, json.loads(failed.out)["outcome"]) == (1, "FAILED")
    inside("sql", "CREATE JOB idle SCHEDULE = NONE AS 'SELECT 1'", "--store", url)
    expired = inside("job", "trigger", "idle", "--wait", "--timeout", "10ms", "--store", url)
    assert (expired.code, "is still PENDING after" in expired.errors) == (1, True), "no node runs it"
    assert inside("job", "trigger", "idle", "--timeout", "1s", "--store", url).code == 2
