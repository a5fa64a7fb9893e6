"""The store contract, arrival: runs that waited in their windows while no node was there to start them."""

from __future__ import annotations

from typing import Any

from horae.core.window.window import Window
from horae_store_tests.contract.builders import HOURLY, NODE, Contract, Scene, at, job, scenario

WINDOW = Window.after("20m")


async def missed(scene: Scene, until: str, **policies: Any) -> list[str]:
    """The runs at `until`, of an hourly job whose run of 10:00 waited in its window while nobody looked."""
    await scene.define(job(schedule=HOURLY, window=WINDOW, **policies))
    await scene.until("10:00")
    assert await scene.story() == ["10:00 PENDING (window)"]
    await scene.until(until)
    return await scene.story()


class ArrivalContract(Contract):
    """In time they are judged by overlap; later the recovery policy decides."""

    @scenario
    async def test_a_run_that_was_missed_in_its_window_starts_late_and_is_flagged(self, scene: Scene) -> None:
        assert await missed(scene, "10:40") == ["10:00 PENDING"]
        (run,) = await scene.runs()
        assert (run.is_recovery, run.waiting_for) == (True, None)
        assert (await scene.claim()).is_recovery

    @scenario
    async def test_one_that_is_looked_at_within_its_grace_is_an_ordinary_run(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=WINDOW))
        await scene.until("10:00")
        (waiting,) = await scene.runs()
        scene.clock.set(waiting.chosen_time)
        scene.clock.advance("30s")
        await scene.plan()
        assert [(each.state, each.is_recovery) for each in await scene.runs()] == [("PENDING", False)]

    @scenario
    async def test_under_last_it_gives_way_to_a_newer_slot(self, scene: Scene) -> None:
        story = await missed(scene, "11:40", recovery="last")
        assert story == ["10:00 MISSED missed", "11:00 PENDING"]
        assert (await scene.claim()).scheduled_time == at("11:00")

    @scenario
    async def test_under_none_it_is_recorded_missed(self, scene: Scene) -> None:
        assert await missed(scene, "10:40", recovery="none") == ["10:00 MISSED missed"]
        assert await scene.claim_runs() == ()

    @scenario
    async def test_under_all_missed_runs_line_up_and_none_is_skipped(self, scene: Scene) -> None:
        story = await missed(scene, "12:40", recovery="all")
        assert story == ["10:00 PENDING", "11:00 QUEUED", "12:00 QUEUED"]
        for slot in ("10:00", "11:00", "12:00"):
            claim = await scene.claim(NODE)
            assert (claim.scheduled_time, claim.is_recovery) == (at(slot), True)
            await scene.finish(claim)
