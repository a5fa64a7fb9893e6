"""EXPLAIN JOB ends in "starts" only where nothing but time stands in the way, on real runs and for every policy."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engine.world import GUARD, after, oldest_first, simulate, until

from horae import Cron, Every, Horae, Queue, Retry, Run, Window
from horae.core.time.instant import rfc3339
from horae.services.queries import Queries
from horae.testing.simulation import Simulation


async def explained(sim: Simulation, app: Horae, job: str, **options: Any) -> tuple[str, str]:
    """What EXPLAIN JOB says of the overlap, and how it ends."""
    assert sim.store is not None
    lines = dict(await Queries(sim.store).explain(await app.get_job(job), sim.now, **options))
    return lines["overlap"], lines["verdict"]


@pytest.mark.parametrize(
    ("overlap", "said"),
    [
        ("skip", "would be SKIPPED (overlap) at 2026-01-01T02:00:00Z because run {run} is RUNNING"),
        ("allow", "starts at 2026-01-01T02:00:00Z (in 10m)"),
        ("coalesce", "waits at 2026-01-01T02:00:00Z for run {run} (RUNNING) to end, and stands for all that wait"),
        ("replace", "replaces run {run}: starts at 2026-01-01T02:00:00Z (in 10m) once that has stopped"),
        (Queue(), "lines up at 2026-01-01T02:00:00Z behind run {run} (RUNNING)"),
    ],
    ids=str,
)
def test_a_run_that_lasts_longer_than_the_interval_is_what_every_policy_judges_by(overlap: Any, said: str) -> None:
    app = Horae("sqlite://")

    @app.job("slow", Every("1h"), overlap=overlap)
    async def slow() -> None:
        await asyncio.sleep(7200)

    async def body(sim: Simulation) -> None:
        await sim.advance("1h5m")
        (run,) = await oldest_first(app)
        _, early = await explained(sim, app, "slow")
        if overlap == "replace":
            assert early.endswith(f"(in 55m); run {run.run_id} is stopped first if not ended by then")
        elif overlap != "allow":
            assert early.startswith(f"starts at 2026-01-01T02:00:00Z (in 55m) if run {run.run_id} has ended by then; ")
        await sim.advance("45m")
        line, late = await explained(sim, app, "slow")
        assert late == said.format(run=run.run_id)
        assert line.startswith("1 run not ended (1 RUNNING): ")
        assert ("SKIPPED" in line) == ("SKIPPED" in late)
        assert list(await app.sql("EXPLAIN JOB slow"))[-1] == ("verdict", late)

    simulate(app, body)


def test_a_run_that_waits_for_capacity_is_named_and_so_is_a_full_queue() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=1)

    @app.job("long", None)
    async def long() -> None:
        await asyncio.sleep(36_000)

    @app.job("behind", Cron("0 * * * *"))
    @app.job("line", Cron("0 * * * *"), overlap=Queue(3))
    async def quick() -> None: ...

    async def body(sim: Simulation) -> None:
        await app.trigger("long")
        await sim.advance("1h40m")
        (run,) = await oldest_first(app, "behind")
        _, verdict = await explained(sim, app, "behind")
        waits = f"run {run.run_id} waits for capacity: every node that can run it is full"
        assert verdict.startswith(f"would be SKIPPED (overlap) at 2026-01-01T02:00:00Z because {waits}")
        await sim.advance("5h")
        line, verdict = await explained(sim, app, "line")
        full = "because of 3 runs in line already, and its queue takes 3 (queue full)"
        assert verdict == f"would be SKIPPED at 2026-01-01T07:00:00Z {full}"
        assert line.endswith("the new run would be recorded SKIPPED (queue full)")

    simulate(app, body)


@pytest.mark.parametrize("retry", [Retry(3, "2h"), Retry(None, "2h")], ids=["counted", "until the next"])
def test_a_retry_that_waits_is_in_the_way_unless_the_next_run_supersedes_it(retry: Retry) -> None:
    app = Horae("sqlite://")

    @app.job("flaky", Every("1h"), retry=retry)
    async def fail(run: Run) -> None:
        raise ValueError("no disk")

    async def body(sim: Simulation) -> None:
        await sim.advance("1h1m")
        (run,) = await oldest_first(app)
        line, verdict = await explained(sim, app, "flaky")
        if retry.max_retries is None:
            assert verdict == "starts at 2026-01-01T02:00:00Z (in 59m)"
            assert line.endswith(f"run {run.run_id}, which waits for a retry, would end FAILED (superseded)")
        else:
            retried = f"run {run.run_id} waits for retry: retry 1 at 2026-01-01T03:00:00Z, after ValueError: no disk"
            assert verdict == f"would be SKIPPED (overlap) at 2026-01-01T02:00:00Z because {retried}"
            _, far = await explained(sim, app, "flaky", at=after("9h"))
            assert far == (
                f"starts at 2026-01-01T09:00:00Z (in 7h59m) if run {run.run_id} has ended by then; "
                "otherwise it would be SKIPPED (overlap)"
            )

    simulate(app, body)


def test_dependencies_that_may_or_cannot_be_met_are_named() -> None:
    app = Horae("sqlite://")

    async def work() -> None: ...

    app.job("never", None)(work)
    app.job("before", Cron("30 11 * * *"))(work)
    app.job("a", Cron("0 12 * * *"), depends_on=["never"])(work)
    app.job("b", Cron("0 12 * * *"), depends_on=["before"])(work)

    async def body(sim: Simulation) -> None:
        _, verdict = await explained(sim, app, "a")
        waits = "it waits for dependencies, never (no run yet)"
        assert verdict == f"does not start at 2026-01-01T12:00:00Z as things are: {waits}"
        _, verdict = await explained(sim, app, "b")
        condition = "if before (no run yet, the next is to come) has COMPLETED by then; otherwise it waits for that"
        assert verdict == f"starts at 2026-01-01T12:00:00Z (in 12h) {condition}"
        await sim.advance("11h40m")
        assert (await explained(sim, app, "b"))[1] == "starts at 2026-01-01T12:00:00Z (in 20m)"

    simulate(app, body)


def test_a_full_pool_is_a_condition_of_the_next_run() -> None:
    app = Horae("sqlite://")
    app.pool("db", 1)

    @app.job("holder", None, pool="db")
    @app.job("next", Every("1h"), pool="db")
    async def work() -> None:
        await asyncio.sleep(36_000)

    async def body(sim: Simulation) -> None:
        run = await app.trigger("holder")
        await sim.advance("1m")
        _, verdict = await explained(sim, app, "next")
        full = f'the pool "db" is full (1 of 1: {run.run_id} of holder, RUNNING)'
        assert verdict == (
            f"starts at 2026-01-01T01:00:00Z (in 59m) if there is room by then; otherwise it waits for pool: {full}"
        )

    simulate(app, body)


def test_a_time_that_has_its_run_already_says_how_that_run_is() -> None:
    app = Horae("sqlite://")

    @app.job("windowed", Cron("0 12 * * *"), window=Window.before("2h"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.jump(after("10h0m1s"))
        (run,) = await oldest_first(app)
        _, verdict = await explained(sim, app, "windowed", at=after("12h"))
        chosen = rfc3339(run.chosen_time)
        assert verdict == f"run {run.run_id} of this time waits for window: {chosen}, chosen within its window"

    simulate(app, body)


def test_a_thread_that_was_left_behind_keeps_the_next_run_from_starting(tmp_path: Path) -> None:
    app = Horae(f"sqlite:///{tmp_path / 'horae.db'}", node="north")
    begun, go_on = threading.Event(), threading.Event()

    @app.job("deaf", Every("1h"), cancel_grace="30ms")
    def work() -> None:
        begun.set()
        go_on.wait(GUARD)

    async def main() -> None:
        await app.open()
        try:
            run = await app.trigger("deaf")
            await until(begun.is_set)
            await app.cancel(run)
            async with asyncio.timeout(GUARD):
                while not await app.home.call(lambda kept: kept.threads()):
                    await asyncio.sleep(0.005)
            lines: dict[str, str] = dict(await app.sql("EXPLAIN JOB deaf"))
            reason = f"thread of run {run} still working on node north"
            thread = "1 thread of earlier attempts still working: the new run would be recorded SKIPPED"
            assert lines["overlap"] == f"{thread} ({reason})"
            may = f"if the thread of run {run} has ended by then; otherwise it would be SKIPPED ({reason})"
            assert lines["verdict"].endswith(may)
        finally:
            go_on.set()
            await app.shut()

    asyncio.run(main())
