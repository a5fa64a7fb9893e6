"""The store contract, owing once: jobs whose newest run stands for all that came due before it."""

from __future__ import annotations

from typing import Any

from horae.core.declarative import job_name
from horae.core.schedule.schedules import Cron
from horae.store.protocols.store import Origin
from horae_store_tests.contract.builders import FAILED, NODE, OTHER, Contract, Scene, at, job, scenario
from horae_store_tests.contract.registrations import A, declare, registered, run_at, story


class OwingContract(Contract):
    """What gives way to what, where one run is owed however many slots have passed."""

    @scenario
    async def test_a_retry_ends_where_the_run_that_waited_goes(self, scene: Scene) -> None:
        claim = await run_at(scene, "09:00")
        await scene.later("1m")
        await scene.finish(claim, FAILED)
        assert await story(scene) == ["09:00 FAILED superseded", "09:01 PENDING"]

    @scenario
    async def test_a_retry_ends_where_somebody_asks_for_a_run(self, scene: Scene) -> None:
        specs = [registered(name, "0 * * * *") for name in "abc"]
        await declare(scene, *specs)
        for claim in (await scene.plan(slots=3)).claims:
            await scene.finish(claim, FAILED)
        scene.clock.set(at("09:02"))
        await scene.trigger(A)
        await scene.admit(job_name("b"), Origin.BACKFILL, scheduled_time=at("09:00"))
        (failed,) = await scene.runs(job_name("c"))
        await scene.admit(job_name("c"), Origin.REPLAY, replay_of=failed.run_id, reason="again")
        assert await story(scene, "a") == ["09:00 FAILED superseded", "09:02 PENDING"]
        assert await story(scene, "b") == ["09:00 FAILED superseded", "09:00 PENDING"]
        assert await story(scene, "c") == ["09:00 FAILED superseded", "09:00 PENDING"]

    @scenario
    async def test_a_retry_ends_where_the_next_slot_is_born(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00"), FAILED)
        await scene.later("1m")
        assert await story(scene) == ["09:00 FAILED superseded", "09:01 PENDING"]

    @scenario
    async def test_a_run_that_never_started_gives_way_to_the_next_slot(self, scene: Scene) -> None:
        await declare(scene, registered())
        await scene.plan()
        await scene.later("1m")
        await scene.later("1m")
        assert await story(scene) == ["09:00 SKIPPED coalesced", "09:01 SKIPPED coalesced", "09:02 PENDING"]

    @scenario
    async def test_a_run_that_was_handed_back_gives_way_too(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await declare(scene, registered())
        await scene.plan()
        await scene.claim(OTHER)
        await scene.store.leave(OTHER)
        await scene.later("1m")
        await scene.later("1m")
        assert await story(scene) == ["09:00 SKIPPED coalesced", "09:01 SKIPPED coalesced", "09:02 PENDING"]

    @scenario
    async def test_a_recovery_run_that_waits_is_coalesced_only_where_one_run_is_owed(self, scene: Scene) -> None:
        # As a declarative task, but for an end of its retries.
        several: dict[str, Any] = {
            "overlap": "coalesce",
            "recovery": "last",
            "retry": {"max_retries": 3, "interval": "5m"},
        }
        await scene.define(job("b", Cron("0 * * * *"), **several))
        await declare(scene, registered(cron="0 * * * *"))
        for claim in (await scene.plan(slots=2)).claims:
            await scene.finish(claim)
        await scene.until("10:00")
        for claim in await scene.claim_runs():
            await scene.finish(claim)
        await scene.until("12:30")
        recovered = {run.job_name: run.state for run in await scene.runs() if run.is_recovery}
        assert recovered == {"b": "PENDING", A: "PENDING"}
        await scene.until("13:00")
        assert (await story(scene))[-2:] == ["12:00 SKIPPED coalesced", "13:00 PENDING"]
        assert (await scene.story("b"))[-2:] == ["12:00 PENDING", "13:00 QUEUED"]

    @scenario
    async def test_a_lost_run_stands_for_all_only_where_one_run_is_owed(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job("b", overlap="coalesce"))
        await scene.later("1m")
        await scene.claim(OTHER)
        await scene.later("1m")
        before = await scene.job("b")
        scene.clock.advance("30s")
        await scene.store.take_over(NODE, OTHER, 0)
        assert await scene.story("b") == ["09:01 PENDING", "09:02 QUEUED"]
        assert await scene.job("b") == before
