"""The store contract, a pause: its first slot is a row of its own, its others are one row that grows."""

from __future__ import annotations

from datetime import datetime, timedelta

from horae.core.run.lifecycle import JobState, RunState
from horae.store.protocols.store import Hook, RunRecord
from horae_store_tests.contract.builders import HOURLY, NODE, Contract, Scene, at, job, scenario, slot_id


def row(run: RunRecord) -> str:
    """A row of a pause in one line: `09:01 x1`, `09:02 x3 (09:01, 09:04]`."""
    assert (run.state, run.started_at) == (RunState.SKIPPED, None)
    assert run.reason == "paused"
    alone = f"{run.scheduled_time:%H:%M} x{run.count}"
    if run.covers_from is None or run.covers_to is None:
        assert run.covers_from is run.covers_to is None
        return alone
    return f"{alone} ({run.covers_from:%H:%M}, {run.covers_to:%H:%M}]"


async def rows(scene: Scene, name: str = "a") -> list[str]:
    """The rows of its pauses, the oldest first."""
    return [row(run) for run in await scene.runs(name) if run.reason == "paused"]


async def minutes(scene: Scene, count: int) -> None:
    """Lets minutes pass and plans in each of them."""
    for _ in range(count):
        await scene.later("1m")


async def paused(scene: Scene, count: int = 0, until: datetime | None = None) -> None:
    """A job that is paused from 09:00, and planned in each of so many minutes."""
    await scene.define(job())
    await scene.store.set_state("a", JobState.PAUSED, until=until)
    await minutes(scene, count)


class PauseContract(Contract):
    """How a pause is recorded, what ends its span, and what becomes of that."""

    @scenario
    async def test_from_the_second_slot_of_a_pause_one_row_grows(self, scene: Scene) -> None:
        await paused(scene, 1)
        assert await rows(scene) == ["09:01 x1"]
        await minutes(scene, 1)
        assert await rows(scene) == ["09:01 x1", "09:02 x1 (09:01, 09:02]"]
        born = (await scene.runs())[-1]
        await minutes(scene, 3)
        assert await rows(scene) == ["09:01 x1", "09:02 x4 (09:01, 09:05]"]
        grown = (await scene.runs())[-1]
        assert (grown.run_id, grown.key) == (born.run_id, born.key)
        assert grown.run_id == slot_id("a", at("09:02"))
        assert (grown.created_at, grown.completed_at) == (at("09:02"), at("09:05"))
        record = await scene.job()
        assert (record.planned_until, record.wake_at) == (at("09:05"), at("09:06"))

    @scenario
    async def test_the_rows_are_the_same_where_nobody_planned_meanwhile(self, scene: Scene) -> None:
        await paused(scene)
        await scene.until("13:00:30")
        assert await rows(scene) == ["09:01 x1", "09:02 x239 (09:01, 13:00]"]
        await scene.later("3h")
        assert await rows(scene) == ["09:01 x1", "09:02 x419 (09:01, 16:00]"]

    @scenario
    async def test_planning_again_changes_nothing(self, scene: Scene) -> None:
        await paused(scene, 4)
        before = await scene.everything()
        planned = await scene.plan()
        assert (planned.born, planned.wake_at) == (0, at("09:05"))
        assert await scene.everything() == before

    @scenario
    async def test_ninety_days_of_a_paused_minutely_job_are_two_rows(self, scene: Scene) -> None:
        await paused(scene)
        for _ in range(90):
            await scene.later("1d")
        assert [run.count for run in await scene.runs()] == [1, 129_599]

    # ---- what ends it --------------------------------------------------------------------------------------------

    @scenario
    async def test_a_second_pause_begins_anew(self, scene: Scene) -> None:
        await paused(scene, 3)
        await scene.store.set_state("a", JobState.ENABLED)
        await scene.store.set_state("a", JobState.PAUSED)
        await minutes(scene, 3)
        assert await rows(scene) == ["09:01 x1", "09:02 x2 (09:01, 09:03]", "09:04 x1", "09:05 x2 (09:04, 09:06]"]

    @scenario
    async def test_what_is_owed_when_a_pause_ends_is_part_of_it(self, scene: Scene) -> None:
        await paused(scene, 3)
        scene.clock.set(at("09:05:30"))
        await scene.store.set_state("a", JobState.ENABLED)
        assert await rows(scene) == ["09:01 x1", "09:02 x4 (09:01, 09:05]"]
        await scene.later("1m", slots=1)
        assert (await scene.story())[-1] == "09:06 RUNNING"
        assert await rows(scene) == ["09:01 x1", "09:02 x4 (09:01, 09:05]"]

    @scenario
    async def test_a_pause_that_ends_by_itself_closes_its_span(self, scene: Scene) -> None:
        await paused(scene, 3, until=at("09:04:30"))
        await scene.until("09:05")
        assert (await scene.job()).state == JobState.ENABLED
        assert await rows(scene) == ["09:01 x1", "09:02 x3 (09:01, 09:04]"]
        assert (await scene.story())[-1] == "09:05 PENDING"
        scene.clock.set(at("09:05:10"))
        await scene.store.set_state("a", JobState.PAUSED)
        await minutes(scene, 2)
        assert (await rows(scene))[2:] == ["09:06 x1", "09:07 x1 (09:06, 09:07]"]

    @scenario
    async def test_disabling_closes_it_and_nothing_is_recorded_until_the_next_pause(self, scene: Scene) -> None:
        await paused(scene, 3)
        await scene.store.set_state("a", JobState.DISABLED)
        await minutes(scene, 3)
        await scene.store.set_state("a", JobState.PAUSED)
        await minutes(scene, 2)
        assert await rows(scene) == ["09:01 x1", "09:02 x2 (09:01, 09:03]", "09:07 x1", "09:08 x1 (09:07, 09:08]"]

    @scenario
    async def test_another_version_closes_it(self, scene: Scene) -> None:
        await paused(scene, 3)
        await scene.define(job(description="new", state=JobState.PAUSED))
        await minutes(scene, 3)
        assert await rows(scene) == ["09:01 x1", "09:02 x2 (09:01, 09:03]", "09:04 x1", "09:05 x2 (09:04, 09:06]"]
        assert [run.version for run in await scene.runs()] == [1, 1, 2, 2]

    @scenario
    async def test_pausing_a_paused_job_goes_on_with_its_span(self, scene: Scene) -> None:
        await paused(scene, 3)
        await scene.store.set_state("a", JobState.PAUSED, until=at("12:00"), note="longer")
        await minutes(scene, 2)
        assert await rows(scene) == ["09:01 x1", "09:02 x4 (09:01, 09:05]"]

    @scenario
    async def test_a_job_that_is_dropped_and_comes_back_paused_begins_anew(self, scene: Scene) -> None:
        await paused(scene, 3)
        await scene.store.drop(["a"], keep_history=True, by="ann")
        await scene.define(job(state=JobState.PAUSED))
        await minutes(scene, 2)
        assert await rows(scene) == ["09:01 x1", "09:02 x2 (09:01, 09:03]", "09:04 x1", "09:05 x1 (09:04, 09:05]"]

    # ---- retention, several nodes ----------------------------------------------------------------------------------

    @scenario
    async def test_retention_leaves_a_span_that_grows(self, scene: Scene) -> None:
        await paused(scene, 2)
        await scene.until("12:00")
        assert await scene.store.retain(timedelta(hours=1)) == 1
        await minutes(scene, 1)
        assert await rows(scene) == ["09:02 x180 (09:01, 12:01]"]

    @scenario
    async def test_a_span_that_retention_removed_begins_anew(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.store.set_state("a", JobState.PAUSED)
        for hour in ("10:00", "11:00"):
            await scene.until(hour)
        scene.clock.set(at("11:30"))
        assert await scene.store.retain(timedelta(minutes=5)) == 2
        for hour in ("12:00", "13:00", "14:00"):
            await scene.until(hour)
        assert await rows(scene) == ["12:00 x1", "13:00 x2 (12:00, 14:00]"]

    @scenario
    async def test_any_node_grows_it(self, scene: Scene) -> None:
        other = await scene.second()
        await paused(scene, 2)
        for store in (other, scene.store, other, other):
            scene.clock.advance("1m")
            await store.create_due_runs()
        assert await rows(scene) == ["09:01 x1", "09:02 x5 (09:01, 09:06]"]
        await other.set_state("a", JobState.ENABLED)
        await scene.store.set_state("a", JobState.PAUSED)
        await minutes(scene, 1)
        assert (await rows(scene))[2:] == ["09:07 x1"]

    # ---- who hears of it -------------------------------------------------------------------------------------------

    @scenario
    async def test_its_rows_are_told_when_they_are_born_and_not_when_they_grow(self, scene: Scene) -> None:
        await paused(scene, 2)
        told = [(each.run_id, each.count) for each in scene.passed()]
        assert told == [(slot_id("a", at("09:01")), 1), (slot_id("a", at("09:02")), 1)]
        await minutes(scene, 5)
        await scene.store.set_state("a", JobState.ENABLED)
        assert scene.passed() == []

    @scenario
    async def test_a_span_that_is_born_of_many_slots_says_which(self, scene: Scene) -> None:
        await paused(scene)
        await scene.until("09:30")
        first, span = scene.passed()
        assert (first.scheduled_time, first.first, first.covers_to) == (at("09:01"), None, None)
        assert (span.scheduled_time, span.first, span.covers_to) == (at("09:02"), at("09:02"), at("09:30"))

    @scenario
    async def test_a_hook_that_asks_for_skipped_runs_is_called_once_for_a_span(self, scene: Scene) -> None:
        hook = Hook("app.skips", None, frozenset({RunState.SKIPPED}))
        await scene.store.register_hooks([hook])
        await paused(scene, 6)
        notices = await scene.store.claim_notices(NODE, [hook.hook_id])
        assert [each.run.run_id for each in notices] == [slot_id("a", at("09:01")), slot_id("a", at("09:02"))]
