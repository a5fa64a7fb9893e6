"""A node's slots, a job's max_concurrent and a pool's limit are never exceeded, and nothing waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.engine.world import offsets, simulate, states

from horae import Cron, Every, Horae, Run
from horae.errors import InvalidDefinition, InvalidPolicy
from horae.store.protocols.store import Admission, Origin
from horae.testing.simulation import Simulation


class Count:
    """How many tasks are at work at once, and the most there ever were."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.done = 0

    def task(self, seconds: float) -> Callable[[], Any]:
        async def work() -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1
            self.done += 1

        return work


def test_a_node_with_many_slots_fills_them_at_once_however_many_it_takes_at_a_time() -> None:
    app, count = Horae("sqlite://", max_concurrent_jobs=500), Count()
    app.job("job", None, overlap="allow")(count.task(3600))

    async def body(sim: Simulation) -> None:
        assert sim.store is not None
        await sim.store.admit([Admission("job", Origin.TRIGGER, "local", key=str(each)) for each in range(450)])
        await sim.advance("1s")
        assert count.now == 450

    simulate(app, body)


def test_the_next_run_starts_when_a_task_ends_and_not_when_that_is_written() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=1)

    @app.job("job", None, overlap="allow")
    async def work() -> None:
        await asyncio.sleep(1)

    async def body(sim: Simulation) -> None:
        store = sim.store
        assert store is not None
        settle = store.settle

        async def settle_late(*given: Any) -> Any:
            await asyncio.sleep(60)
            return await settle(*given)

        store.settle = settle_late  # type: ignore[method-assign, assignment]
        await store.admit([Admission("job", Origin.TRIGGER, "local", key=str(each)) for each in range(2)])
        first, second = await sim.advance("10m")
        assert second.time - first.time < timedelta(seconds=30)

    simulate(app, body)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_node_never_runs_more_than_its_slots_and_gets_through_everything(slots: int) -> None:
    app, count = Horae("sqlite://", max_concurrent_jobs=slots), Count()
    for index in range(12):
        app.job(f"job-{index:02}", Cron("0 1 * * *"))(count.task(60))

    async def body(sim: Simulation) -> None:
        starts = await sim.advance("3h")
        assert len(starts) == 12
        assert [each.time for each in starts] == sorted(each.time for each in starts)
        assert await states(app) == ["COMPLETED"] * 12
        gaps = {(later.time - earlier.time).total_seconds() for earlier, later in pairwise(starts)}
        assert gaps <= {0.0, 60.0, 60.004, 59.996, 0.004}

    simulate(app, body)
    assert (count.most, count.done) == (slots, 12)


def test_a_slot_that_comes_due_as_another_run_waits_is_not_started_beside_it() -> None:
    app, count = Horae("sqlite://", max_concurrent_jobs=1), Count()
    app.job("long", None)(count.task(1800))
    app.job("waiting", None)(count.task(600))
    app.job("due", Cron("0 1 * * *"))(count.task(600))

    async def body(sim: Simulation) -> None:
        await sim.advance("30m")
        await app.trigger("long")
        await sim.advance("10m")
        await app.trigger("waiting")
        await sim.advance("2h")
        assert await states(app) == ["COMPLETED"] * 3

    simulate(app, body)
    assert (count.most, count.done) == (1, 3)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_a_node_that_wakes_up_late_to_more_than_it_can_start_does_not_spin(slots: int) -> None:
    app, count = Horae("sqlite://", max_concurrent_jobs=slots), Count()
    for index in range(20):
        app.job(f"job-{index:02}", Cron("0 1 * * *"))(count.task(10))

    async def body(sim: Simulation) -> None:
        await sim.jump("1h20s")
        await sim.advance("10m")
        assert await states(app) == ["COMPLETED"] * 20

    simulate(app, body)
    assert (count.most, count.done) == (slots, 20)


def test_due_jobs_are_planned_even_while_no_slot_is_free_so_that_deadlines_are_judged() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=1)

    @app.job("long", Cron("0 1 * * *"), execution_timeout=None)
    async def long() -> None:
        await asyncio.sleep(4 * 3600)

    @app.job("urgent", Cron("30 1 * * *"), deadline="10m")
    async def urgent() -> None: ...

    async def body(sim: Simulation) -> None:
        await sim.advance("95m")
        assert await states(app, "urgent") == ["PENDING"]
        await sim.advance("10m")
        assert await states(app, "urgent") == ["MISSED (deadline)"]

    simulate(app, body)


def test_max_concurrent_holds_for_one_job_and_the_rest_wait_in_pending() -> None:
    app, count = Horae("sqlite://"), Count()
    app.job("a", Every("10m"), overlap="allow", max_concurrent=2)(count.task(3000))

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("65m"))
        assert starts == ["0:10:00", "0:20:00", "1:00:00"]
        assert await states(app) == ["COMPLETED", "RUNNING", "RUNNING", "PENDING", "PENDING", "PENDING"]
        await sim.advance("10h")

    simulate(app, body)
    assert count.most == 2


def test_a_pool_s_limit_holds_across_jobs_and_no_slot_of_it_is_left_idle() -> None:
    app, count = Horae("sqlite://"), Count()
    app.pool("database", 2)
    for index in range(7):
        app.job(f"job-{index}", Cron("0 1 * * *"), pool="database")(count.task(60))

    async def body(sim: Simulation) -> None:
        starts = offsets(await sim.advance("2h"))
        assert starts == ["1:00:00", "1:00:00", "1:01:00", "1:01:00", "1:02:00", "1:02:00", "1:03:00"]
        assert await states(app) == ["COMPLETED"] * 7

    simulate(app, body)
    assert (count.most, count.done) == (2, 7)


def test_a_pool_is_not_exceeded_across_a_crash_and_its_places_come_back() -> None:
    app, count = Horae("sqlite://"), Count()
    app.pool("database", 1)
    for index in range(4):
        app.job(f"job-{index}", Cron("0 1 * * *"), pool="database")(count.task(600))

    async def body(sim: Simulation) -> None:
        await sim.advance("65m")
        await sim.crash()
        assert count.now == 0
        await sim.advance("2h")
        assert await states(app) == ["COMPLETED"] * 4

    simulate(app, body)
    assert count.most == 1


def test_a_job_in_no_pool_does_not_wait_for_a_full_one() -> None:
    app, count = Horae("sqlite://"), Count()
    app.pool("slow", 1)
    app.job("a", Cron("0 1 * * *"), pool="slow")(count.task(1800))
    app.job("b", Cron("0 1 * * *"), pool="slow")(count.task(1800))
    app.job("free", Cron("5 1 * * *"))(count.task(1))

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("2h"), "free") == ["1:05:00"]

    simulate(app, body)


def test_a_pool_that_nobody_defined_is_refused_by_name() -> None:
    app = Horae("sqlite://")

    @app.job("a", Every("1h"), pool="nowhere")
    async def work() -> None: ...

    async def body(sim: Simulation) -> None: ...

    with pytest.raises(InvalidDefinition, match="nowhere"):
        simulate(app, body)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2"])
def test_a_pool_s_limit_is_a_whole_number_from_1(limit: Any) -> None:
    with pytest.raises(InvalidPolicy, match="whole number"):
        Horae("sqlite://").pool("p", limit)


def test_recovery_of_many_jobs_at_once_stays_within_the_node_s_slots() -> None:
    app, count = Horae("sqlite://", max_concurrent_jobs=4), Count()
    for index in range(6):
        app.job(f"job-{index}", Every("1h"), recovery="all")(count.task(30))

    async def body(sim: Simulation) -> None:
        await sim.advance("1h30m")
        await sim.jump("9h")
        await sim.advance("1h")
        assert await states(app) == ["COMPLETED"] * 66

    simulate(app, body)
    assert (count.most, count.done) == (4, 66)


def test_a_sync_task_counts_as_any_other() -> None:
    app = Horae("sqlite://", max_concurrent_jobs=2)
    seen: list[str] = []
    for index in range(5):

        @app.job(f"job-{index}", Cron("0 1 * * *"))
        def work(run: Run) -> None:
            seen.append(run.job_name)

    async def body(sim: Simulation) -> None:
        assert offsets(await sim.advance("61m")) == ["1:00:00"] * 5

    simulate(app, body)
    assert len(seen) == 5
