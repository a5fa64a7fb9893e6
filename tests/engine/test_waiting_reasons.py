"""A run that has not started says what it waits for, and what exactly, whatever the reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import after, simulate

from horae import Cron, Every, Horae, Queue, Retry, Run, Window
from horae.core.job.definition import JobSpec, TaskSpec
from horae.services.queries import Queries
from horae.store.protocols.store import RunRecord
from horae.testing.simulation import Simulation


async def waiting(app: Horae, job: str) -> RunRecord:
    """The job's only run that has not started."""
    (found,) = [run for run in await app.runs(job=job) if run.state in ("PENDING", "QUEUED")]
    return found


async def verdict(sim: Simulation, app: Horae, job: str) -> str:
    """How EXPLAIN JOB ends."""
    assert sim.store is not None
    lines = await Queries(sim.store).explain(await app.get_job(job), sim.now)
    step, text = lines[-1]
    assert step == "verdict"
    return text


def test_a_window_a_retry_and_a_dependency_are_waited_for_with_their_times_and_names() -> None:
    app = Horae("sqlite://")

    @app.job("windowed", Cron("0 12 * * *"), window=Window.before("2h"))
    @app.job("flaky", Cron("0 11 * * *"), retry=Retry(3, "1h"))
    async def fail(run: Run) -> None:
        raise ValueError("no disk")

    @app.job("first", Cron("30 11 * * *"))
    async def first() -> None:
        await asyncio.sleep(7200)

    @app.job("second", Cron("35 11 * * *"), depends_on=["first"])
    async def second() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.jump(after("10h0m1s"))
        windowed = await waiting(app, "windowed")
        assert windowed.waiting_for == "window"
        assert windowed.chosen_time.strftime("%H:%M:%S") in str(windowed.waiting_detail)
        await sim.advance("1h39m")
        flaky = await waiting(app, "flaky")
        assert flaky.waiting_for == "retry"
        assert flaky.waiting_detail == "retry 1 at 2026-01-01T12:00:00Z, after ValueError: no disk"
        second = await waiting(app, "second")
        ends = "SKIPPED at 2026-01-02T11:35:00Z, unless COMPLETED by then"
        assert (second.waiting_for, second.waiting_detail) == ("dependencies", f"first (RUNNING); {ends}")

    simulate(app, body)


def test_a_run_that_somebody_moved_says_so_with_and_without_a_window() -> None:
    app = Horae("sqlite://")

    @app.job("plain", Cron("0 * * * *"))
    @app.job("windowed", Cron("0 * * * *"), window=Window.after("10m"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        for name in ("plain", "windowed"):
            await app.reschedule(name, sim.now + timedelta(hours=3, minutes=30))
        await sim.advance("1h20m")
        for name in ("plain", "windowed"):
            moved = await waiting(app, name)
            assert (moved.waiting_for, moved.waiting_detail) == (
                "rescheduled",
                "somebody moved it to 2026-01-01T03:30:00Z",
            )

    simulate(app, body)


def test_a_full_pool_a_job_s_limit_and_full_nodes_are_waited_for_by_name() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=3)
    app.pool("db", 1)

    async def work() -> None:
        await asyncio.sleep(3600)

    for name, policies in {
        "holder": {"pool": "db"},
        "pooled": {"pool": "db"},
        "limited": {"max_concurrent": 1, "overlap": "allow"},
    }.items():
        app.job(name, None, **policies)(work)  # type: ignore[arg-type]
    app.job("free", None, overlap="allow")(work)

    async def body(sim: Simulation) -> None:
        holder = await app.trigger("holder")
        await sim.advance("1s")
        await app.trigger("pooled")
        await app.trigger("limited")
        await sim.advance("1s")
        await app.trigger("limited", key="again")
        await sim.advance("1s")
        pooled = await waiting(app, "pooled")
        assert pooled.waiting_for == "pool"
        assert pooled.waiting_detail == f'the pool "db" is full (1 of 1: {holder.run_id} of holder, RUNNING)'
        limited = await waiting(app, "limited")
        assert limited.waiting_for == "capacity"
        assert str(limited.waiting_detail).startswith("limited runs 1 of 1 at once (occ_")
        await app.trigger("free")
        await sim.advance("1s")
        await app.trigger("free", key="too many")
        await sim.advance("1s")
        crowded = await waiting(app, "free")
        assert crowded.waiting_for == "capacity"
        assert "every node that can run it is full" in str(crowded.waiting_detail)

    simulate(app, body)


def test_a_queued_run_names_the_run_before_it() -> None:
    app = Horae("sqlite://")

    @app.job("slow", Every("1h"), overlap=Queue(), execution_timeout="3h")
    async def slow() -> None:
        await asyncio.sleep(5400)

    async def body(sim: Simulation) -> None:
        await sim.advance("2h1m")
        queued = await waiting(app, "slow")
        assert queued.waiting_for == "previous_run"
        assert str(queued.waiting_detail).endswith("of slow, RUNNING")

    simulate(app, body)


def test_a_handler_that_no_node_has_is_waited_for_and_explain_does_not_say_that_the_run_starts() -> None:
    app = Horae("sqlite://")

    async def body(sim: Simulation) -> None:
        assert sim.store is not None
        await sim.store.define([JobSpec("report", Every("1h"), (TaskSpec("nightly", "reports.nightly"),))])
        assert 'waits for handler, no live node has the task "reports.nightly"' in await verdict(sim, app, "report")
        await sim.advance("1h1m")
        stuck = await waiting(app, "report")
        assert (stuck.waiting_for, stuck.waiting_detail) == ("handler", 'no live node has the task "reports.nightly"')
        skipped = (
            f"would be SKIPPED (waiting for handler reports.nightly) at 2026-01-01T02:00:00Z because run {stuck.run_id}"
        )
        assert (await verdict(sim, app, "report")).startswith(skipped)

    simulate(app, body)


@pytest.mark.parametrize("overlap", ["skip", "coalesce", "allow", "replace"])
def test_a_stuck_run_of_an_earlier_version_is_what_explain_ends_in_where_the_next_run_minds_it(overlap: Any) -> None:
    app = Horae("sqlite://")

    @app.job("report", Every("1h"), overlap=overlap)
    async def nightly() -> None: ...

    async def body(sim: Simulation) -> None:
        assert sim.store is not None
        present = (await app.get_job("report")).definition.spec
        old = JobSpec("report", Every("1h"), (TaskSpec("gone", "gone"),), {"overlap": overlap})
        await sim.store.define([old])
        await sim.advance("1h1m")
        stuck = await waiting(app, "report")
        assert stuck.waiting_for == "handler"
        await sim.store.define([present])
        found = await verdict(sim, app, "report")
        expected = {
            "skip": f"would be SKIPPED (waiting for handler gone) at 2026-01-01T02:00:00Z because run {stuck.run_id}",
            "coalesce": f"waits at 2026-01-01T02:00:00Z for run {stuck.run_id} (waits for handler: no live node has",
            "allow": "starts at 2026-01-01T02:00:00Z (in 59m)",
            "replace": f"starts at 2026-01-01T02:00:00Z (in 59m); run {stuck.run_id} is cancelled for it",
        }
        assert found.startswith(expected[overlap])

    simulate(app, body)


def test_without_a_node_a_run_waits_for_one_and_so_does_the_next(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}")

    @app.job("a", Every("1h"))
    async def work() -> None: ...

    async def main() -> None:
        async with app:
            pass
        run = await app.trigger("a")
        found = await waiting(app, "a")
        assert (found.run_id, found.waiting_for, found.waiting_detail) == (run.run_id, "node", "no node is alive")
        step, text = list(await app.sql("EXPLAIN JOB a"))[-1]
        assert (step, text.partition(": ")[2]) == ("verdict", "it waits for node, no node is alive")
        await app.close()

    asyncio.run(main())


def test_a_handler_that_is_registered_while_the_node_runs_is_told_to_the_others() -> None:
    app = Horae("sqlite://")

    async def body(sim: Simulation) -> None:
        assert sim.store is not None
        app.task("late")(lambda: None)
        await sim.advance("1m")
        (node,) = await sim.store.nodes()
        assert node.handlers is not None
        assert "late" in node.handlers

    simulate(app, body, settings={"sweep_every": 5.0})
