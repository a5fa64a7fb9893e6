"""Overlap: a slot that comes while an earlier run is still about, under every policy."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.engine.world import after, clock, offsets, oldest_first, only_run, reports, simulate, states

from horae import Every, Horae, Queue, Retry, Run, Window
from horae.testing.simulation import Simulation


def busy(app: Horae, overlap: Any, seconds: float, **policies: Any) -> list[str | None]:
    """An hourly job that works for `seconds`; what it answers fills with the slots that were worked to their end."""
    done: list[str | None] = []

    @app.job("busy", Every("1h"), overlap=overlap, execution_timeout=None, **policies)
    async def work(run: Run) -> None:
        await asyncio.sleep(seconds)
        done.append(clock(run.scheduled_time))

    return done


def test_skip_records_the_slot_and_the_running_one_is_not_disturbed() -> None:
    app = Horae("sqlite://")
    done = busy(app, "skip", 9000)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("4h30m")) == ["1:00:00", "4:00:00"]
        assert await states(app) == ["COMPLETED", "SKIPPED (overlap)", "SKIPPED (overlap)", "RUNNING"]
        await sim.advance("3h")

    simulate(app, body)
    assert done == ["1:00:00", "4:00:00"]


def test_allow_runs_beside() -> None:
    app = Horae("sqlite://")
    done = busy(app, "allow", 9000)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("3h15m")) == ["1:00:00", "2:00:00", "3:00:00"]
        assert await states(app) == ["RUNNING"] * 3
        await sim.advance("30m")

    simulate(app, body)
    assert done == ["1:00:00"]


def test_queue_lines_up_in_order_and_each_starts_when_the_one_before_has_ended() -> None:
    app = Horae("sqlite://")
    done = busy(app, "queue", 5400)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("4h15m")) == ["1:00:00", "2:30:00", "4:00:00"]
        assert await states(app) == ["COMPLETED", "COMPLETED", "RUNNING", "QUEUED"]

    simulate(app, body)
    assert done == ["1:00:00", "2:00:00"]


def test_a_full_queue_records_what_does_not_fit_as_skipped() -> None:
    app = Horae("sqlite://")
    busy(app, Queue(1), 4 * 3600 - 60)

    async def body(sim: Simulation) -> None:
        await sim.advance("4h30m")
        assert await states(app) == ["RUNNING", "QUEUED", "SKIPPED (queue full)", "SKIPPED (queue full)"]
        await sim.advance("45m")
        assert (await states(app))[:2] == ["COMPLETED", "RUNNING"]

    simulate(app, body)


def test_coalesce_lets_the_newest_wait_and_skips_the_ones_that_waited_before() -> None:
    app = Horae("sqlite://")
    done = busy(app, "coalesce", 3 * 3600 + 1800)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("4h15m")) == ["1:00:00"]
        assert await states(app) == ["RUNNING", "SKIPPED (coalesced)", "SKIPPED (coalesced)", "QUEUED"]
        assert offsets(await sim.advance("30m")) == ["4:30:00"]

    simulate(app, body)
    assert done == ["1:00:00"]


def test_replace_asks_the_running_one_to_stop_and_starts_in_its_place() -> None:
    app = Horae("sqlite://")
    done = busy(app, "replace", 5400)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("3h15m")) == ["1:00:00", "2:00:00", "3:00:00"]
        assert await states(app) == ["CANCELLED (replaced)", "CANCELLED (replaced)", "RUNNING"]
        stopped = (await reports(app))[0]
        assert stopped.tasks[0].state == "CANCELLED"

    simulate(app, body)
    assert done == []


def test_under_replace_one_that_does_not_stop_is_given_up_after_its_grace_and_the_next_starts_then() -> None:
    app = Horae("sqlite://")

    @app.job("deaf", Every("1h", end=after("2h")), overlap="replace", cancel_grace="5m", execution_timeout=None)
    async def deaf() -> None:
        ends = asyncio.get_running_loop().time() + 5000
        while (left := ends - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("2h20m")) == ["1:00:00", "2:05:00"]
        assert await states(app) == ["CANCELLED (replaced)", "RUNNING"]
        await sim.advance("2h")
        assert await states(app) == ["CANCELLED (replaced)", "COMPLETED"]

    simulate(app, body)


@pytest.mark.parametrize("policy", ["skip", "queue", "coalesce"])
def test_a_run_parked_for_a_retry_counts_as_being_about(policy: str) -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), overlap=policy, retry=Retry(1, "90m"))
    async def work(run: Run) -> None:
        if run.attempt == 1 and clock(run.scheduled_time) == "1:00:00":
            raise ValueError("once")

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("2h45m"))
        if policy == "skip":
            assert starts == ["1:00:00", "2:30:00"]
            assert await states(app) == ["COMPLETED", "SKIPPED (overlap)"]
        else:
            assert starts == ["1:00:00", "2:30:00", "2:30:00"]
            assert await states(app) == ["COMPLETED", "COMPLETED"]

    simulate(app, body)


def test_two_windowed_runs_that_overlap_are_judged_at_their_chosen_times() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), overlap="skip", window=Window.after("50m"), execution_timeout=None)
    async def work(run: Run) -> None:
        await asyncio.sleep(3000)

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("24h")
        runs = [run for run in await oldest_first(app) if run.state != "PENDING"]
        started = [each.time for each in starts]
        for before, run in pairwise(runs):
            if run.state == "SKIPPED":
                assert any((run.chosen_time - at).total_seconds() < 3000 for at in started if at <= run.chosen_time)
            elif before.state in ("COMPLETED", "RUNNING"):
                assert (run.chosen_time - before.chosen_time).total_seconds() >= 3000
        assert {str(run.state) for run in runs} >= {"COMPLETED", "SKIPPED"}

    simulate(app, body)


def test_triggers_obey_the_policy_as_slots_do() -> None:
    app = Horae("sqlite://")
    busy(app, "skip", 600)

    async def body(sim: Simulation) -> None:
        first = await app.trigger("busy")
        await sim.advance("1m")
        second = await app.trigger("busy")
        assert (first.state, second.state) == ("PENDING", "SKIPPED")
        await sim.advance("1h30m")
        assert await states(app) == ["COMPLETED", "SKIPPED (overlap)", "COMPLETED"]

    simulate(app, body)


def test_the_line_survives_a_crash() -> None:
    app = Horae("sqlite://")
    done = busy(app, "queue", 5400)

    async def body(sim: Simulation) -> None:
        await sim.advance("2h15m")
        await sim.crash()
        await sim.advance("10h")

    simulate(app, body)
    assert done[:3] == ["1:00:00", "2:00:00", "3:00:00"]


def test_the_overlap_policy_of_one_job_says_nothing_about_others() -> None:
    app = Horae("sqlite://")
    busy(app, "skip", 9000)

    @app.job("other", Every("1h"))
    async def other() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("3h")
        assert await states(app, "other") == ["COMPLETED"] * 3

    simulate(app, body)


def test_is_running_asks_the_catalog() -> None:
    app = Horae("sqlite://")
    busy(app, "skip", 600)

    async def body(sim: Simulation) -> None:
        assert not await app.is_running("busy")
        await sim.advance("65m")
        assert await app.is_running("busy")
        await sim.advance("10m")
        assert not await app.is_running("busy")
        assert (await only_run(app)).owner is not None

    simulate(app, body)
