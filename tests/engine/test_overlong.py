"""Runs that last unusually long: nothing ends them by itself, and they are named everywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine.test_keeping import AWAKE
from tests.engine.world import only_run, simulate

from horae import Every, Horae
from horae.events import RunOverlong
from horae.services.doctor.doctor import examine
from horae.services.explain.overrun_facts import overlong_now
from horae.testing.simulation import Simulation


def told_by(app: Horae) -> list[RunOverlong]:
    told: list[RunOverlong] = []
    app.events.listen(told.append, RunOverlong)
    return told


def test_a_backup_of_two_hours_completes_with_its_clean_up_and_its_first_is_named_as_unusual() -> None:
    app = Horae("sqlite://")
    told = told_by(app)
    cleaned: list[int] = []
    job = app.job("backup", Every("4h"))

    @job.task
    async def copy() -> None:
        await asyncio.sleep(7200)

    @job.task(failure="continue")
    async def tidy() -> None:
        cleaned.append(1)

    @app.job("clock", Every("5m"))
    async def clock() -> None:
        """Makes moments at which the node looks around."""

    async def body(sim: Simulation) -> None:
        await sim.advance("4h30m")
        assert await app.home.call(overlong_now) == []
        await sim.advance("1h")
        (found,) = await app.home.call(overlong_now)
        assert (found.job, found.reason) == ("backup", "it has been running for 1h30m")
        findings = await app.home.call(examined)
        assert [each.message for each in findings if each.check == "running"] == [
            f"{found.run_id} lasts unusually long: it has been running for 1h30m"
        ]
        await sim.advance("2h")
        (run,) = await app.runs("backup")
        assert (run.state, cleaned) == ("COMPLETED", [1])
        assert await app.home.call(overlong_now) == []
        await sim.advance("4h")
        assert [str(each.state) for each in await app.runs("backup")] == ["COMPLETED", "COMPLETED"]

    simulate(app, body, settings=AWAKE)
    # Of the second, two hours are what its job takes.
    (only,) = told
    assert (only.job, only.seconds >= 3600) == ("backup", True)
    assert "scheduler_runs_overlong_total 1" in app.metrics.render()


async def examined(store: Any) -> Any:
    return (await examine(store)).findings


def test_a_run_that_makes_three_scheduled_times_be_skipped_is_told_of_once() -> None:
    app = Horae("sqlite://")
    told = told_by(app)

    @app.job("poll", Every("2m"))
    async def work() -> None:
        await asyncio.sleep(1500)

    async def body(sim: Simulation) -> None:
        for _ in range(20):
            await sim.advance("1m")
        assert await app.home.call(overlong_now)

    simulate(app, body, settings=AWAKE)
    (only,) = told
    assert only.reason.startswith("3 scheduled times in a row were skipped because of it")


def test_a_short_run_that_makes_three_scheduled_times_be_skipped_is_told_of_once_until_the_job_recovers() -> None:
    app = Horae("sqlite://")
    told = told_by(app)
    takes = [11.0]

    @app.job("poll", Every("3s"))
    async def work() -> None:
        await asyncio.sleep(takes[0])

    async def body(sim: Simulation) -> None:
        await sim.advance("5m")
        assert [(each.job, each.reason) for each in told] == [
            ("poll", "3 scheduled times in a row were skipped because of it, in 11s")
        ]
        assert 10 < told[0].seconds < 12
        (found,) = await app.home.call(overlong_now)
        assert found.job == "poll"
        takes[0] = 0.1
        await sim.advance("3m")
        assert await app.home.call(overlong_now) == []
        assert len(told) == 1
        takes[0] = 11.0
        await sim.advance("3m")
        assert len(told) == 2

    simulate(app, body, settings=AWAKE)
    assert "scheduler_runs_overlong_total 2" in app.metrics.render()


def test_a_single_short_run_that_made_others_be_skipped_is_told_of_after_its_end() -> None:
    app = Horae("sqlite://")
    told = told_by(app)
    lengths = iter([0.1] * 5 + [11.0])

    @app.job("poll", Every("3s"))
    async def work() -> None:
        await asyncio.sleep(next(lengths, 0.1))

    async def body(sim: Simulation) -> None:
        # A look comes once a minute: by then later runs have ended, and the job has recovered.
        await sim.advance("5m")

    simulate(app, body, settings=AWAKE)
    assert [each.job for each in told] == ["poll"]


def test_the_catalog_is_not_asked_about_jobs_whose_runs_no_scheduled_time_falls_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Horae("sqlite://")
    asked: list[str | None] = []

    @app.job("steady", Every("20s"))
    async def steady() -> None:
        await asyncio.sleep(15)

    @app.job("patient", Every("3s"), overlap="coalesce")
    async def patient() -> None:
        await asyncio.sleep(11)

    @app.job("poll", Every("3s"))
    async def poll() -> None:
        await asyncio.sleep(11)

    async def body(sim: Simulation) -> None:
        store = await app.home.store()
        real = store.runs

        async def runs(**chosen: Any) -> Any:
            asked.append(chosen.get("job"))
            return await real(**chosen)

        monkeypatch.setattr(store, "runs", runs)
        await sim.advance("5m")

    simulate(app, body, settings=AWAKE)
    assert {"steady", "patient", "poll"} & set(asked) == {"poll"}
    # Once a minute, and not once for each run.
    assert asked.count("poll") <= 5


def test_without_a_setting_no_run_is_ended_for_its_length() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("30d"))
    async def work() -> None:
        await asyncio.sleep(7 * 86_400)

    async def body(sim: Simulation) -> None:
        await sim.advance("40d")
        assert (await only_run(app)).state == "COMPLETED"

    simulate(app, body)
