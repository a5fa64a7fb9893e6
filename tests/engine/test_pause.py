"""A job that is paused for long, with an engine under it: rows, events, metrics, hooks, log lines."""

from __future__ import annotations

import logging

import pytest
from tests.engine.world import simulate
from tests.observing.exposition import parse

from horae import Cron, Horae
from horae.core.report.report import RunReport
from horae.events import RunPassed
from horae.testing.simulation import Simulation

MINUTELY = Cron("* * * * *")


def test_a_day_of_a_paused_minutely_job_is_two_rows_two_events_and_two_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Horae("sqlite://")
    passed: list[RunPassed] = []
    called: list[str | None] = []
    app.events.listen(passed.append, RunPassed)

    @app.on_complete(states={"SKIPPED"})
    def ended(report: RunReport) -> None:
        called.append(report.run.reason)

    @app.job("a", MINUTELY)
    def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.pause("a")
        await sim.advance("1d")
        runs = await app.runs("a")
        assert [(run.state, run.count) for run in runs] == [("SKIPPED", 1439), ("SKIPPED", 1)]
        assert runs[0].covers_from == runs[1].scheduled_time

    with caplog.at_level(logging.INFO, "horae.runs"):
        simulate(app, body)
    assert [(each.count, each.first_ms, each.last_ms - each.first_ms) for each in passed] == [
        (1, passed[0].first_ms, 0),
        (1, passed[0].first_ms + 60_000, 0),
    ]
    assert called == ["paused", "paused"]
    assert len([record for record in caplog.records if "SKIPPED" in record.getMessage()]) <= 2


def test_metrics_count_the_slots_of_a_pause_that_rows_are_born_with_and_not_its_growth() -> None:
    app = Horae("sqlite://")

    @app.job("a", MINUTELY)
    def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.pause("a")
        await sim.advance("1h")
        counted = parse(app.metrics.render())
        assert counted.value("scheduler_job_occurrences_total", job="a", status="skipped") == 2
        assert counted.value("scheduler_runs_skipped_total", job="a", reason="paused") == 2

    simulate(app, body)
