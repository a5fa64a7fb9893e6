"""A clock that jumps ahead and comes back: what ran early is not run again, every surface says so, and jobs go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.engine.world import START, simulate
from tests.store.catalogs import Place, minutely
from tests.web.serving import eventually, serving

from horae import Horae
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import AttemptState
from horae.core.schedule.schedules import Cron
from horae.events import ClockSetBack
from horae.services.doctor.doctor import examine
from horae.services.queries import Queries
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import AttemptEnd, Capacity, Settlement
from horae.testing.clock import ManualClock
from horae.testing.simulation import Simulation

NODE = UUID("00000000-0000-4000-8000-000000000001")
END = (AttemptEnd(0, 1, AttemptState.SUCCESS),)


def with_store(place: Place, body: Callable[[Catalog, ManualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = ManualClock(START)
        store = place.store(clock)
        await store.open()
        try:
            await store.join(NODE)
            await body(store, clock)
        finally:
            await store.close()

    asyncio.run(main())


async def ran(store: Catalog) -> list[str]:
    """Runs all that is due; the slots that ran."""
    found = []
    while True:
        done = await store.create_due_runs(start=Capacity(str(NODE), 50))
        claims = [*done.claims, *(await store.claim_runs(Capacity(str(NODE), 50))).claims]
        await store.settle(NODE, [Settlement(each.run_id, each.run_no, each.fence, END) for each in claims])
        found += [str(datetime.fromtimestamp(each.scheduled_ms / 1000, UTC).time()) for each in claims]
        if not done.more and not claims:
            return found


def test_what_ran_early_is_not_run_again_and_the_job_goes_on_when_the_clock_is_there(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely(recovery="all")])
        clock.advance("1m")
        assert await ran(store) == ["00:01:00"]
        assert (await store.set_back()).ahead == 0
        clock.advance("10m")
        assert len(await ran(store)) == 10
        clock.set(START + timedelta(minutes=1, seconds=8))
        assert await ran(store) == []
        found = await store.set_back()
        assert (found.ahead, found.until) == (1, START + timedelta(minutes=11))
        # Also for a process that never saw the clock as it was.
        other = place.store(clock)
        await other.open()
        try:
            assert (await other.set_back()) == found
            assert (await other.set_back("b")).ahead == 0
            examined = await examine(other)
            (finding,) = [each for each in examined.findings if each.check == "cursors"]
            assert "nothing of it starts until it is past 2026-01-01T00:11:00Z" in finding.message
            (job,) = await other.jobs(["a"])
            explained = dict(await Queries(other).explain(job, clock.now()))
            assert "the clock was set back since" in explained["clock"]
        finally:
            await other.close()
        clock.set(START + timedelta(minutes=12))
        assert await ran(store) == ["00:12:00"]
        assert (await store.set_back()).ahead == 0

    with_store(place, body)


def test_a_window_before_its_time_and_a_run_moved_to_before_its_time_are_no_clocks_set_back(place: Place) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        window: JobSpec = minutely("w", window={"mode": "before", "duration": "50s"})
        await store.define([window, minutely("moved")])
        await store.reschedule("moved", START + timedelta(seconds=20))
        clock.advance("30s")
        await ran(store)
        jobs = {job.name: job.planned_until for job in await store.jobs()}
        assert jobs == dict.fromkeys(("w", "moved"), START + timedelta(minutes=1))
        assert (await store.set_back()).ahead == 0

    with_store(place, body)


def test_a_node_tells_of_it_once_until_it_is_over(place: Place) -> None:
    app = Horae(place.url)
    told: list[ClockSetBack] = []

    @app.job("a", Cron("* * * * *"))
    async def work() -> None: ...

    async def body(sim: Simulation) -> None:
        app.events.listen(told.append, ClockSetBack)
        await sim.advance("90s")
        await sim.jump("10m")
        await sim.set_clock(START + timedelta(seconds=98))
        await sim.advance("5m")
        assert told == [ClockSetBack(1, "2026-01-01T00:11:00Z", "a")]
        starts = await sim.advance("8m")
        assert [str(each.time - START) for each in starts if each.job == "a"][:1] == ["0:12:00"]

    simulate(app, body, settings={"sweep_every": 10})


def test_health_is_degraded_while_jobs_are_ahead_of_the_clock(place: Place) -> None:
    async def planned() -> None:
        clock = ManualClock(datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=2))
        store = place.store(clock)
        await store.open()
        try:
            await store.define([minutely("ahead")])
            clock.advance("1h")
            await store.create_due_runs()
        finally:
            await store.close()

    asyncio.run(planned())
    with serving(place.url) as served, served.client() as client:
        answer = eventually(lambda: next((r for r in [client.get("/healthz")] if r.json()["status"] != "ok"), None))
        assert answer.status_code == 200
        assert any("1 job ahead of a clock that was set back" in each for each in answer.json()["reasons"])
        assert answer.json()["details"]["ahead"][0]["job"] == "ahead"


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_clock_put_right_by_a_moment_is_not_worth_a_word(place: Place, seconds: int) -> None:
    async def body(store: Catalog, clock: ManualClock) -> None:
        await store.define([minutely()])
        clock.advance("1m")
        await ran(store)
        clock.set(clock.now() - timedelta(seconds=seconds))
        assert (await store.set_back()).ahead == 0

    with_store(place, body)
