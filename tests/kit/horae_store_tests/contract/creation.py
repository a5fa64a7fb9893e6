"""The store contract, creation: which runs `create_due_runs` creates, in which state, and what it does to those that
wait."""

from __future__ import annotations

import asyncio

from horae.core.job.ids import job_uuid, schedule_key
from horae.core.job.policies import Bounded, Queue
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.store.protocols.store import Capacity, Origin
from horae_store_tests.contract.builders import (
    FAILED,
    HOURLY,
    NODE,
    SUCCESS,
    Contract,
    Scene,
    at,
    ended,
    job,
    scenario,
    slot_id,
    starts,
)


class PlanningContract(Contract):
    """Births, recovery, pauses, windows, deadlines, dependencies and the fused start."""

    @scenario
    async def test_a_due_slot_is_born_pending_with_its_derived_id_and_key(self, scene: Scene) -> None:
        await scene.define(job(payload=[1]))
        planned = await scene.later("1m")
        assert (planned.now, planned.jobs, planned.born, planned.claims) == (at("09:01"), 1, 1, ())
        run = await scene.run()
        assert (run.run_id, run.key) == (slot_id("a", at("09:01")), schedule_key(at("09:01")))
        assert (run.state, run.origin, run.version, run.fence) == (RunState.PENDING, Origin.SCHEDULE, 1, 0)
        assert run.scheduled_time == run.chosen_time == run.not_before == run.created_at == at("09:01")
        assert (run.waiting_for, run.started_at, run.completed_at, run.owner) == (None, None, None, None)
        assert run.payload == [1]

    @scenario
    async def test_planning_moves_the_jobs_cursors(self, scene: Scene) -> None:
        await scene.define(job())
        planned = await scene.later("90s")
        record = await scene.job()
        assert (record.planned_until, record.last_enqueued_at) == (at("09:01"), at("09:01:30"))
        assert record.next_run_time == record.wake_at == planned.wake_at == at("09:02")

    @scenario
    async def test_nothing_is_born_before_its_time_or_twice(self, scene: Scene) -> None:
        await scene.define(job())
        early = await scene.later("59s")
        assert (early.jobs, early.born, early.wake_at) == (0, 0, at("09:01"))
        assert (await scene.later("1s")).born == 1
        assert (await scene.plan()).born == 0
        assert await scene.story() == ["09:01 PENDING"]

    @scenario
    async def test_two_stores_on_one_catalog_bear_a_slot_once(self, scene: Scene) -> None:
        peer = await scene.second()
        await scene.define(*(job(f"job{number}") for number in range(20)))
        scene.clock.advance("1m")
        passes = await asyncio.gather(*(store.create_due_runs() for store in (scene.store, peer) * 3))
        assert sum(planned.born for planned in passes) == len(await scene.runs()) == 20

    @scenario
    async def test_the_longest_waiting_jobs_are_planned_first_and_the_rest_is_announced(self, scene: Scene) -> None:
        await scene.define(job("a", Cron("2 * * * *")), job("b", Cron("1 * * * *")), job("c", Cron("1 * * * *")))
        scene.clock.advance("2m")
        first = await scene.store.create_due_runs(limit=2)
        assert (first.jobs, first.more) == (2, True)
        assert {run.job_name for run in await scene.runs()} == {"b", "c"}
        second = await scene.store.create_due_runs(limit=2)
        assert (second.jobs, second.born, second.more) == (1, 1, False)

    @scenario
    async def test_recovery_last_runs_the_newest_missed_slot_and_records_the_others(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="last"))
        await scene.until("10:00")
        await scene.run_once()
        await scene.until("13:30")
        lines = ["10:00 COMPLETED", "11:00 MISSED missed", "12:00 MISSED missed", "13:00 PENDING"]
        assert await scene.story() == lines
        assert [run.is_recovery for run in await scene.runs()] == [False, False, False, True]
        assert (await scene.runs())[1].completed_at == at("13:30")

    @scenario
    async def test_recovery_all_lines_every_missed_slot_up(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="all"))
        await scene.until("10:00")
        await scene.run_once()
        await scene.until("13:30")
        assert await scene.story() == ["10:00 COMPLETED", "11:00 PENDING", "12:00 QUEUED", "13:00 QUEUED"]
        for slot in ("11:00", "12:00", "13:00"):
            claim = await scene.claim()
            assert (claim.scheduled_time, claim.is_recovery) == (at(slot), True)
            await scene.finish(claim)
        assert await scene.count(RunState.COMPLETED) == 4

    @scenario
    async def test_slots_that_come_due_behind_a_line_that_catches_up_join_it(self, scene: Scene) -> None:
        late = Window.after("50m", Distribution("skewLate", {"shape": 1000}))
        for overlap in ("skip", "coalesce", "replace", Queue(1)):
            name = f"job {overlap}"
            await scene.define(job(name, HOURLY, recovery="all", overlap=overlap))
            await scene.define(job(f"{name} windowed", HOURLY, recovery="all", overlap=overlap, window=late))
        await scene.until("13:00")
        await scene.until("13:55")
        await scene.until("14:00")
        for overlap in ("skip", "coalesce", "replace", Queue(1)):
            lined = ["10:00 PENDING", "11:00 QUEUED", "12:00 QUEUED", "13:00 QUEUED"]
            assert await scene.story(f"job {overlap}") == [*lined, "14:00 QUEUED"]
            assert await scene.story(f"job {overlap} windowed") == [*lined, "14:00 PENDING (window)"]

    @scenario
    async def test_recovery_none_and_bounded_record_what_they_leave_out(self, scene: Scene) -> None:
        await scene.define(
            job("a", HOURLY, recovery="none"),
            job("b", HOURLY, recovery=Bounded(1)),
            job("c", HOURLY, recovery=Bounded(max_age="2h")),
        )
        await scene.until("10:00")
        await scene.until("13:30")
        assert [line for line in await scene.story("a") if "10:00" not in line] == [
            f"{hour}:00 MISSED missed" for hour in (11, 12, 13)
        ]
        few = "MISSED too many to catch up on"
        assert (await scene.story("b"))[1:] == [f"11:00 {few}", f"12:00 {few}", "13:00 QUEUED"]
        assert (await scene.story("c"))[1:] == ["11:00 MISSED too old to catch up on", "12:00 QUEUED", "13:00 QUEUED"]

    @scenario
    async def test_a_replay_of_one_task_covers_no_slot(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed", tasks=("first", "second")))
        await scene.until("10:00")
        claim = await scene.claim()
        await scene.settle(claim, ended(SUCCESS, 0))
        await scene.settle(claim, ended(FAILED, 1))
        await scene.admit("a", Origin.REPLAY, replay_of=claim.run_id, tasks=("first",), reason="again")
        await scene.finish(await scene.claim())
        await scene.until("11:00")
        (run,) = [run for run in await scene.runs() if run.scheduled_time == at("11:00")]
        assert (run.covers_from, run.covers_to) == (at("09:00"), at("11:00"))

    @scenario
    async def test_compressed_recovery_is_one_run_from_the_last_completed_one(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("10:00")
        await scene.run_once()
        assert (await scene.job()).covered_until == at("10:00")
        await scene.until("11:00")
        await scene.run_once(FAILED)
        await scene.until("14:30")
        run = (await scene.runs())[-1]
        assert (run.scheduled_time, run.covers_from, run.covers_to) == (at("14:00"), at("10:00"), at("14:00"))
        assert (run.count, run.is_recovery) == (3, True)
        claim = await scene.claim()
        assert (claim.covers_from_ms, claim.is_recovery) == (at("10:00").timestamp() * 1000, True)
        await scene.finish(claim)
        assert (await scene.job()).covered_until == at("14:00")

    @scenario
    async def test_a_span_stays_owed_until_a_run_that_carries_it_completes(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("10:00")
        await scene.run_once()
        await scene.until("14:30")
        await scene.run_once(FAILED)
        await scene.until("15:00")
        run = (await scene.runs())[-1]
        assert (run.is_recovery, run.count, run.covers_from, run.covers_to) == (False, 1, at("10:00"), at("15:00"))
        claim = await scene.claim()
        assert (claim.covers_from_ms, claim.covers_to_ms) == tuple(at(t).timestamp() * 1000 for t in ("10:00", "15:00"))
        await scene.finish(claim, FAILED)
        assert (await scene.job()).covered_until == at("10:00")
        await scene.until("16:00")
        await scene.run_once()
        assert (await scene.job()).covered_until == at("16:00")
        await scene.until("17:00")
        run = (await scene.runs())[-1]
        assert (run.covers_from, run.covers_to) == (None, None)

    @scenario
    async def test_the_very_first_slot_is_owed_like_any_other(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("10:00")
        await scene.run_once(FAILED)
        await scene.until("11:00")
        run = (await scene.runs())[-1]
        assert (run.covers_from, run.covers_to) == (at("09:00"), at("11:00"))

    @scenario
    async def test_a_run_beside_one_under_way_does_not_carry_its_slot_and_covers_nothing_before_it(
        self, scene: Scene
    ) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed", overlap="allow"))
        claims = []
        for time in ("10:00", "11:00", "12:00"):
            await scene.until(time)
            claims.append(await scene.claim())
        assert [run.covers_from for run in await scene.runs()] == [None, None, None]
        await scene.finish(claims[1])
        assert (await scene.job()).covered_until == at("09:00")
        await scene.finish(claims[0])
        assert (await scene.job()).covered_until == at("11:00")
        await scene.finish(claims[2], FAILED)
        await scene.until("13:00")
        assert (await scene.runs())[-1].covers_from == at("11:00")

    @scenario
    async def test_a_replay_carries_what_the_run_it_repeats_carried(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("14:30")
        await scene.run_once(FAILED)
        (failed,) = await scene.runs()
        await scene.admit("a", Origin.REPLAY, replay_of=failed.run_id, reason="mended")
        claim = await scene.claim()
        assert (claim.covers_from_ms, claim.covers_to_ms) == tuple(at(t).timestamp() * 1000 for t in ("09:00", "14:00"))
        await scene.finish(claim)
        assert (await scene.job()).covered_until == at("14:00")

    @scenario
    async def test_what_passed_while_a_job_was_disabled_is_not_carried(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("10:00")
        await scene.run_once()
        await scene.store.set_state("a", JobState.DISABLED)
        scene.clock.set(at("14:30"))
        await scene.store.set_state("a", JobState.ENABLED)
        await scene.until("15:00")
        assert (await scene.runs())[-1].covers_from is None

    @scenario
    async def test_a_run_that_was_triggered_covers_no_slot(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="compressed"))
        await scene.until("10:00")
        await scene.run_once()
        scene.clock.set(at("12:30"))
        await scene.trigger()
        await scene.run_once()
        assert (await scene.job()).covered_until == at("10:00")
        await scene.plan()
        (run,) = [each for each in await scene.runs() if each.is_recovery]
        assert (run.scheduled_time, run.covers_from, run.covers_to) == (at("12:00"), at("10:00"), at("12:00"))

    @scenario
    async def test_a_long_span_that_ends_the_same_way_is_one_row(self, scene: Scene) -> None:
        await scene.define(job(recovery="none"))
        await scene.later("1m")
        await scene.until("12:01:30")
        row = (await scene.runs())[1]
        # The slots after 09:01, which had a run, up to and with 12:00.
        assert (row.state, row.covers_from, row.covers_to) == (RunState.MISSED, at("09:01"), at("12:00"))
        assert (row.scheduled_time, row.count) == (at("12:00"), 179)

    @scenario
    async def test_a_job_that_was_never_planned_catches_up_from_its_definition_on(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, recovery="all"))
        await scene.until("12:30")
        assert await scene.story() == ["10:00 PENDING", "11:00 QUEUED", "12:00 QUEUED"]

    @scenario
    async def test_a_once_that_was_missed_after_it_was_defined_is_caught_up_on(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00")), recovery="last"))
        await scene.until("12:30")
        assert await scene.story() == ["10:00 PENDING"]

    @scenario
    async def test_slots_of_a_paused_job_are_skipped_until_it_resumes_by_itself(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.store.set_state("a", JobState.PAUSED, until=at("09:02:30"), note="moving")
        record = await scene.job()
        assert (record.state, record.paused_until, record.pause_note) == (JobState.PAUSED, at("09:02:30"), "moving")
        assert record.next_run_time == at("09:03")
        await scene.until("09:02")
        assert await scene.story() == ["09:01 SKIPPED paused", "09:02 SKIPPED paused"]
        await scene.until("09:03")
        assert (await scene.story())[2:] == ["09:03 PENDING"]
        record = await scene.job()
        assert (record.state, record.paused_until, record.pause_note) == (JobState.ENABLED, None, None)

    @scenario
    async def test_a_run_with_a_window_is_born_ahead_and_not_given_out_before_its_time(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.before("30m")))
        planned = await scene.until("09:30")
        run = await scene.run()
        assert at("09:30") < run.chosen_time <= at("10:00")
        assert (run.waiting_for, run.not_before) == ("window", run.chosen_time)
        assert planned.wake_at == run.chosen_time
        assert await scene.claim_runs() == ()
        scene.clock.set(run.chosen_time)
        await scene.plan()
        assert await scene.story() == ["10:00 PENDING"]
        assert (await scene.claim()).chosen_time == run.chosen_time

    @scenario
    async def test_a_windowed_run_is_judged_for_overlap_when_its_chosen_time_comes(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.before("30m")))
        await scene.until("09:30")
        await scene.trigger(key="long")
        await scene.claim()
        assert (await scene.runs())[-1].state == RunState.PENDING
        scene.clock.set((await scene.runs())[-1].chosen_time)
        await scene.plan()
        assert (await scene.story())[-1] == "10:00 SKIPPED overlap"

    @scenario
    async def test_a_slot_no_time_can_be_chosen_for_is_unschedulable(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.after("10m", only={"hours": "3"})))
        await scene.until("10:00")
        run = await scene.run()
        assert (run.state, run.completed_at) == (RunState.UNSCHEDULABLE, at("10:00"))

    @scenario
    async def test_a_run_past_its_deadline_is_missed_whether_born_waiting_or_queued(self, scene: Scene) -> None:
        await scene.define(
            job("a", deadline="30s", misfire_grace="10m"), job("b", deadline="2m", overlap="queue", misfire_grace="10m")
        )
        await scene.until("09:01")
        (first,) = [claim for claim in await scene.claim_runs() if claim.job_name == "b"]
        await scene.until("09:02:31")
        assert (await scene.story("a"))[1] == "09:02 MISSED deadline"
        assert await scene.story("b") == ["09:01 RUNNING", "09:02 QUEUED"]
        await scene.until("09:04:01")
        assert (await scene.story("b"))[:2] == ["09:01 RUNNING", "09:02 MISSED deadline"]
        assert first.run_id == slot_id("b", at("09:01"))

    @scenario
    async def test_a_pending_run_is_missed_once_its_deadline_has_passed(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, deadline="30s"))
        await scene.until("10:00")
        await scene.until("10:00:30")
        assert await scene.story() == ["10:00 PENDING"]
        scene.clock.advance("1s")
        assert await scene.claim_runs() == ()
        await scene.plan()
        assert await scene.story() == ["10:00 MISSED deadline"]
        assert (await scene.run()).completed_at == at("10:00:31")

    @scenario
    async def test_a_run_waits_for_its_dependencies_and_goes_on_when_they_complete(self, scene: Scene) -> None:
        await scene.define(job("down", HOURLY, depends_on=("up",)), job("up", HOURLY))
        await scene.until("10:00")
        assert await scene.story("down") == ["10:00 PENDING (dependencies)"]
        assert (await scene.run("down")).not_before is None
        claim = await scene.claim()
        assert claim.job_name == "up"
        scene.clock.advance("10s")
        await scene.finish(claim)
        run = await scene.run("down")
        assert (run.waiting_for, run.not_before) == (None, at("10:00:10"))
        assert (await scene.claim()).job_name == "down"

    @scenario
    async def test_a_dependency_that_failed_keeps_the_run_waiting_until_its_own_next_slot(self, scene: Scene) -> None:
        await scene.define(
            job("down", HOURLY, depends_on=("up",)), job("further", HOURLY, depends_on=("down",)), job("up", HOURLY)
        )
        await scene.until("10:00")
        await scene.run_once(FAILED)
        assert await scene.store.sweep() == 0
        assert await scene.story("down") == ["10:00 PENDING (dependencies)"]
        scene.clock.set(at("11:00"))
        assert await scene.store.sweep() == 2
        assert await scene.story("down") == await scene.story("further") == ["10:00 SKIPPED dependencies"]

    @scenario
    async def test_a_run_whose_dependencies_are_met_already_is_born_free(self, scene: Scene) -> None:
        await scene.define(job("down", Cron("5 10 * * *"), depends_on=("up",)), job("up", HOURLY))
        await scene.until("10:00")
        await scene.run_once()
        await scene.until("10:05")
        assert await scene.story("down") == ["10:05 PENDING"]

    @scenario
    async def test_only_the_latest_run_of_a_dependency_counts(self, scene: Scene) -> None:
        await scene.define(job("down", Cron("30 * * * *"), depends_on=("up",)), job("up", Cron("*/10 * * * *")))
        await scene.until("09:10")
        await scene.run_once()
        await scene.until("09:20")
        await scene.run_once(FAILED)
        await scene.until("09:30")
        assert await scene.story("down") == ["09:30 PENDING (dependencies)"]
        await scene.run_once()
        assert await scene.story("down") == ["09:30 PENDING"]

    @scenario
    async def test_runs_that_may_start_now_are_born_running_for_the_node_that_asks(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), mode="parallel"))
        planned = await scene.later("1m", slots=1)
        (claim,) = planned.claims
        run = await scene.run()
        assert (claim.run_id, claim.fence, claim.starts) == (run.run_id, 1, starts((0, 1), (1, 1)))
        assert (run.state, run.owner, run.fence, run.started_at) == (RunState.RUNNING, str(NODE), 1, at("09:01"))
        assert (run.not_before, planned.born) == (None, 1)
        assert await scene.tasks() == [("one", "RUNNING", None), ("two", "RUNNING", None)]
        await scene.finish(claim)
        assert await scene.story() == ["09:01 COMPLETED"]

    @scenario
    async def test_no_more_runs_are_born_running_than_the_node_has_slots(self, scene: Scene) -> None:
        await scene.define(*(job(f"job{number}") for number in range(3)))
        planned = await scene.later("1m", slots=2)
        assert len(planned.claims) == await scene.count(RunState.RUNNING) == 2
        assert (planned.born, await scene.count(RunState.PENDING)) == (3, 1)

    @scenario
    async def test_jobs_that_wake_together_are_planned_in_the_order_of_their_uuids(self, scene: Scene) -> None:
        names = [f"job{number}" for number in range(4)]
        await scene.define(*(job(name) for name in names))
        await scene.later("1m")
        planned = [run.job_name for run in reversed(await scene.store.runs())]
        assert planned == sorted(names, key=lambda name: str(job_uuid(name)))

    @scenario
    async def test_pools_limits_handlers_and_dependencies_are_left_to_dispatch(self, scene: Scene) -> None:
        await scene.store.set_pool("narrow", 5)
        await scene.define(
            job("a", pool="narrow"), job("b", max_concurrent=5), job("c", tasks=("rare",)), job("d", depends_on=("a",))
        )
        scene.clock.advance("1m")
        planned = await scene.store.create_due_runs(start=Capacity(str(NODE), 9, frozenset({"work"})))
        assert (planned.claims, planned.born) == ((), 4)
        assert await scene.count(RunState.PENDING) == 4

    @scenario
    async def test_a_run_that_overlaps_is_not_born_running(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m", slots=5)
        assert (await scene.later("1m", slots=5)).claims == ()
        assert await scene.story() == ["09:01 RUNNING", "09:02 QUEUED"]

    @scenario
    async def test_a_once_job_is_disabled_or_dropped_when_its_run_has_ended(self, scene: Scene) -> None:
        once = Once(at("09:01"))
        await scene.define(job("a", once), job("b", once, on_completion="drop"), job("c", Once(once.at, drop=True)))
        planned = await scene.later("1m", slots=3)
        assert [(await scene.job(name)).state for name in "abc"] == [JobState.ENABLED] * 3
        for claim in planned.claims:
            await scene.finish(claim)
        (left,) = await scene.store.jobs()
        assert (left.name, left.state, left.wake_at, left.next_run_time) == ("a", JobState.DISABLED, None, None)
        assert [run.job_name for run in await scene.runs()] == ["a", "b", "c"]

    @scenario
    async def test_the_next_alarm_is_the_earliest_of_all_jobs(self, scene: Scene) -> None:
        await scene.define(job("a", HOURLY), job("b", Cron("20 * * * *")), job("c", HOURLY, state=JobState.DISABLED))
        assert (await scene.plan()).wake_at == at("09:20")
