"""A stop that comes before the first step of what it stops: an asyncio.Task that is cancelled then never runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.engine.world import GUARD, ended, until

from horae import Horae
from horae.core.report.report import RunReport
from horae.engine.engine import Engine
from horae.events import RunAbandoned, RunStarted


def stopped_at_once(app: Horae) -> tuple[RunReport, Engine, list[RunAbandoned]]:
    """The report of a run that is stopped in the turn of the event loop in which its first task would begin."""
    abandoned: list[RunAbandoned] = []
    app.events.listen(abandoned.append, RunAbandoned)

    async def main() -> tuple[RunReport, Engine]:
        engine = await app.open()
        loop = asyncio.get_running_loop()

        def stop(event: RunStarted) -> None:
            # Before the first step of the task: this is in the loop's line already when that joins it.
            loop.call_soon(engine.runner.stop_run, engine.ledger.runs[event.run_id], "enough")

        app.events.listen(stop, RunStarted)
        try:
            report = await ended(app, await app.trigger("a"))
            await until(lambda: not engine.ledger.runs)
            assert not await app.home.call(lambda kept: kept.threads())
            return report, engine
        finally:
            await app.shut()

    report, engine = asyncio.run(main())
    return report, engine, abandoned


def make(tmp_path: Path, worked: list[str], **policies: Any) -> Horae:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")

    # A grace that would not be over when this test gives up.
    @app.job("a", None, cancel_grace=f"{GUARD * 10:.0f}s", **policies)
    async def work() -> None:
        worked.append("began")

    return app


def test_an_attempt_that_is_stopped_before_its_first_step_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    worked: list[str] = []
    report, engine, abandoned = stopped_at_once(make(tmp_path, worked))

    assert (report.outcome, report.run.reason, report.tasks[0].state) == ("CANCELLED", "enough", "CANCELLED")
    assert (worked, abandoned) == ([], [])
    assert (engine.ledger.working, engine.ledger.leftovers, engine.ledger.attempts) == (0, 0, set())


def test_the_same_of_work_that_somebody_has_to_be_asked_about_first(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")
    asyncio.run(app.sql("CREATE JOB a SCHEDULE = EVERY 1 DAY TIMEOUT = 1 HOUR AS 'SELECT 1'"))
    report, engine, abandoned = stopped_at_once(app)

    assert (report.outcome, report.tasks[0].state, abandoned) == ("CANCELLED", "CANCELLED", [])
    assert (engine.ledger.working, engine.ledger.leftovers, engine.ledger.attempts) == (0, 0, set())


def test_a_run_that_is_stopped_before_its_preparation_begins_gives_its_place_back(tmp_path: Path) -> None:
    worked: list[str] = []
    app = make(tmp_path, worked, on_start=lambda: worked.append("on_start"))

    async def main() -> tuple[RunReport, Engine]:
        engine = await app.open()
        try:
            prepare = engine.claimer._prepare

            async def prepare_and_stop(runs: Any) -> None:
                await prepare(runs)
                for run in runs:
                    engine.runner.stop_run(run, "enough")

            engine.claimer._prepare = prepare_and_stop  # type: ignore[method-assign]
            report = await ended(app, await app.trigger("a"))
            await until(lambda: not engine.ledger.runs)
            return report, engine
        finally:
            await app.shut()

    report, engine = asyncio.run(main())
    assert (report.outcome, report.run.reason) == ("CANCELLED", "enough")
    assert (engine.ledger.working, worked) == (0, [])
