"""The store contract, operations: what people ask for: drop, states, reschedule, trigger, replay, backfill, cancel."""

from __future__ import annotations

from datetime import timedelta

from horae.core.job import ids
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.schedules import Cron
from horae.errors import InvalidDefinition, InvalidInput, JobNotFound, RunNotFound
from horae.store.protocols.store import Admission, Origin
from horae_store_tests.contract.builders import (
    CANCELLED,
    FAILED,
    HOURLY,
    Contract,
    Scene,
    at,
    ended,
    job,
    raises,
    scenario,
    starts,
    unknown_run,
)


class OperationContract(Contract):
    """Dropping, pausing, disabling, moving a slot, asking for runs and stopping them."""

    # ---- drop and states -----------------------------------------------------------------------------------------

    @scenario
    async def test_a_dropped_job_is_gone_and_its_ended_runs_with_it(self, scene: Scene) -> None:
        await scene.define(job("a", overlap="queue"), job("b"))
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.store.drop(("a",)) == 1
        assert [record.name for record in await scene.store.jobs()] == ["b"]
        assert await scene.story("a") == []
        assert (await scene.later("10m")).jobs == 1

    @scenario
    async def test_history_can_be_kept(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        await scene.run_once()
        await scene.later("1m")
        await scene.later("1m")
        await scene.store.drop(("a",), keep_history=True)
        assert await scene.story() == ["09:01 COMPLETED", "09:02 CANCELLED dropped", "09:03 CANCELLED dropped"]

    @scenario
    async def test_a_running_run_of_a_dropped_job_is_asked_to_stop_and_can_still_end(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.store.drop(("a",), by="ann")
        run = await scene.run()
        assert (run.state, run.cancelled_by, run.cancel_requested_at) == ("RUNNING", "ann", at("09:01"))
        assert (await scene.finish(claim)).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED dropped"]

    @scenario
    async def test_nothing_is_dropped_where_one_name_is_unknown_or_depended_on(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", depends_on=("a",)))
        await scene.later("1m")
        before = await scene.everything()
        with raises(JobNotFound):
            await scene.store.drop(("b", "nobody"))
        with raises(InvalidDefinition):
            await scene.store.drop(("a",))
        assert await scene.everything() == before
        assert await scene.store.drop(("a", "b")) == 2

    @scenario
    async def test_a_change_of_state_first_plans_what_is_owed(self, scene: Scene) -> None:
        await scene.define(job())
        scene.clock.advance("1m")
        await scene.store.set_state("a", JobState.PAUSED)
        assert await scene.story() == ["09:01 PENDING"]
        scene.clock.advance("1m")
        await scene.store.set_state("a", JobState.ENABLED)
        assert await scene.story() == ["09:01 PENDING", "09:02 SKIPPED paused"]
        record = await scene.job()
        assert (record.state, record.next_run_time, record.updated_at) == (JobState.ENABLED, at("09:03"), at("09:02"))

    @scenario
    async def test_a_job_paused_without_an_end_shows_no_next_run(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.store.set_state("a", JobState.PAUSED, note="broken")
        assert (await scene.job()).next_run_time is None
        await scene.store.set_state("a", JobState.PAUSED, until=at("09:30"), note="still")
        record = await scene.job()
        assert (record.paused_until, record.pause_note, record.next_run_time) == (at("09:30"), "still", at("09:31"))

    @scenario
    async def test_a_state_is_changed_only_among_those_it_may_be_changed_from(self, scene: Scene) -> None:
        await scene.define(job())
        before = await scene.store.set_state("a", JobState.DISABLED)
        assert before == "ENABLED"
        version = (await scene.store.jobs(["a"]))[0].updated_at
        scene.clock.advance("1s")
        before = await scene.store.set_state("a", JobState.ENABLED, among=(JobState.PAUSED,))
        found = (await scene.store.jobs(["a"]))[0]
        assert (before, found.state, found.updated_at) == ("DISABLED", "DISABLED", version)
        assert await scene.store.set_state("a", JobState.ENABLED, among=(JobState.DISABLED,)) == "DISABLED"

    @scenario
    async def test_a_disabled_job_has_no_slots_and_enabling_starts_from_now(self, scene: Scene) -> None:
        await scene.define(job(recovery="all"))
        await scene.later("1m")
        await scene.run_once()
        await scene.store.set_state("a", JobState.DISABLED)
        record = await scene.job()
        assert (record.wake_at, record.next_run_time) == (None, None)
        assert (await scene.later("10m")).jobs == 0
        await scene.store.set_state("a", JobState.ENABLED)
        assert (await scene.job()).next_run_time == at("09:12")
        assert await scene.story() == ["09:01 COMPLETED"]

    @scenario
    async def test_the_next_slot_can_be_moved_earlier_and_nothing_else_moves(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        assert await scene.store.reschedule("a", at("09:30")) == at("10:00")
        record = await scene.job()
        assert (record.moved_slot, record.moved_to, record.next_run_time) == (at("10:00"), at("09:30"), at("09:30"))
        await scene.until("09:30")
        run = await scene.run()
        assert (run.scheduled_time, run.chosen_time, run.state) == (at("10:00"), at("09:30"), RunState.PENDING)
        record = await scene.job()
        assert (record.moved_slot, record.moved_to, record.next_run_time) == (None, None, at("11:00"))
        assert (await scene.until("10:00")).born == 0

    @scenario
    async def test_the_next_slot_can_be_moved_later(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.store.reschedule("a", at("10:20"))
        await scene.until("10:00")
        assert await scene.story() == ["10:00 PENDING (window)"]
        assert await scene.claim_runs() == ()
        await scene.until("10:20")
        assert (await scene.claim()).chosen_time == at("10:20")

    @scenario
    async def test_a_job_without_a_next_slot_cannot_be_rescheduled(self, scene: Scene) -> None:
        await scene.define(
            job("a", None), job("b", state=JobState.DISABLED), job("c", Cron("0 9 * * *", end=at("10:00")))
        )
        await scene.plan()
        for name in "abc":
            with raises(InvalidInput):
                await scene.store.reschedule(name, at("10:00"))

    # ---- runs people ask for -------------------------------------------------------------------------------------

    @scenario
    async def test_a_triggered_run_is_born_beside_the_schedule(self, scene: Scene) -> None:
        await scene.define(job(payload="usual"))
        scene.clock.advance("10s")
        before = await scene.job()
        admitted = await scene.trigger(key="k1", payload={"x": 1})
        run = await scene.run()
        key = ids.trigger_key("k1")
        assert (run.run_id, run.key, run.origin) == (ids.keyed_run_id(job().uuid, key), key, Origin.TRIGGER)
        assert (admitted.run_id, admitted.state, admitted.fresh) == (run.run_id, RunState.PENDING, True)
        assert run.scheduled_time == run.chosen_time == run.not_before == at("09:00:10")
        assert (run.payload, (await scene.job()).planned_until) == ({"x": 1}, before.planned_until)
        assert (await scene.claim()).payload == {"x": 1}

    @scenario
    async def test_a_known_key_answers_with_its_run_whatever_became_of_it(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b"))
        first = await scene.trigger(key="k")
        again = await scene.trigger(key="k", payload="other")
        assert (again.run_id, again.state, again.fresh) == (first.run_id, RunState.PENDING, False)
        await scene.run_once()
        again = await scene.trigger(key="k")
        assert (again.run_id, again.state, again.fresh) == (first.run_id, RunState.COMPLETED, False)
        assert (await scene.trigger("b", "k")).fresh

    @scenario
    async def test_one_key_twice_in_one_call_is_one_run(self, scene: Scene) -> None:
        await scene.define(job(overlap="allow"))
        asked = Admission("a", Origin.TRIGGER, "ann", key="k")
        first, second = await scene.store.admit((asked, asked))
        assert (first.run_id, first.fresh, second.fresh) == (second.run_id, True, False)

    @scenario
    async def test_triggers_without_a_key_are_runs_of_their_own_with_the_jobs_payload(self, scene: Scene) -> None:
        await scene.define(job(overlap="allow", payload="usual"))
        first, second = await scene.trigger(), await scene.trigger()
        assert first.run_id != second.run_id
        assert [run.payload for run in await scene.runs()] == ["usual", "usual"]

    @scenario
    async def test_paused_disabled_and_dependent_jobs_can_be_triggered(self, scene: Scene) -> None:
        await scene.define(
            job("a", state=JobState.PAUSED), job("b", state=JobState.DISABLED), job("c", depends_on=("a",))
        )
        assert [(await scene.trigger(name, "now")).state for name in "abc"] == ["PENDING"] * 3
        assert len(await scene.claim_runs()) == 3

    @scenario
    async def test_a_replay_runs_an_old_slot_again_under_the_present_version(self, scene: Scene) -> None:
        await scene.define(job(payload="then"))
        await scene.later("1m")
        await scene.run_once(FAILED)
        old = await scene.run()
        await scene.define(job(payload="now"))
        admitted = await scene.admit("a", Origin.REPLAY, replay_of=old.run_id, reason="fixed")
        run = next(each for each in await scene.runs() if each.run_id == admitted.run_id)
        assert (run.replay_of, run.origin, run.key, run.version) == (old.run_id, Origin.REPLAY, None, 2)
        assert (run.scheduled_time, run.payload) == (at("09:01"), "then")
        assert (run.reason, run.replay_reason) == (None, "fixed")
        claim = await scene.claim()
        assert (claim.run_id, claim.payload) == (run.run_id, "then")
        assert (await scene.finish(claim)).state == "COMPLETED"
        assert (await scene.store.history(old.run_id)).record == old
        history = await scene.store.history(run.run_id)
        assert (history.run.reason, history.run.replay_reason) == (None, "fixed")

    @scenario
    async def test_a_replay_that_fails_has_the_outcome_s_reason_and_its_own(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once(FAILED)
        old = await scene.run()
        admitted = await scene.admit("a", Origin.REPLAY, replay_of=old.run_id, reason="fixed")
        await scene.settle(await scene.claim(), ended(FAILED, error="KeyError: 1"))
        run = (await scene.store.history(admitted.run_id)).record
        assert (run.state, run.reason, run.replay_reason) == ("FAILED", "KeyError: 1", "fixed")

    @scenario
    async def test_a_run_that_was_asked_for_is_chosen_for_the_moment_of_the_request(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        scene.clock.advance("90.25s")
        await scene.trigger()
        run = await scene.run()
        assert (run.scheduled_time, run.chosen_time) == (at("09:01:30"), at("09:01:30") + timedelta(milliseconds=250))
        assert (await scene.claim()).chosen_time == run.chosen_time

    @scenario
    async def test_a_replay_of_some_tasks_leaves_the_others_out(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two", "three")))
        await scene.later("1m")
        await scene.run_once(FAILED)
        old = await scene.run()
        admitted = await scene.admit("a", Origin.REPLAY, replay_of=old.run_id, tasks=("two",))
        claim = await scene.claim()
        assert (claim.run_id, claim.starts) == (admitted.run_id, starts((1, 1)))
        assert (await scene.finish(claim)).state == "COMPLETED"
        assert [task.name for task in (await scene.store.history(claim.run_id)).tasks] == ["two"]

    @scenario
    async def test_a_replay_and_a_backfill_line_up_behind_what_is_active(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", overlap="allow"))
        await scene.later("1m", slots=2)
        for name, state in (("a", "QUEUED"), ("b", "PENDING")):
            old = await scene.run(name)
            assert (await scene.admit(name, Origin.REPLAY, replay_of=old.run_id)).state == state
            assert (await scene.admit(name, Origin.BACKFILL, scheduled_time=at("08:00"))).state == state

    @scenario
    async def test_a_backfill_bears_a_past_slot_once(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        scene.clock.advance("90s")
        slot = at("04:00")
        first = await scene.admit("a", Origin.BACKFILL, scheduled_time=slot)
        run = await scene.run()
        key = ids.backfill_key(slot)
        assert (run.run_id, run.key) == (ids.keyed_run_id(job().uuid, key), key)
        assert (run.scheduled_time, run.chosen_time, run.origin) == (slot, at("09:01:30"), Origin.BACKFILL)
        again = await scene.admit("a", Origin.BACKFILL, scheduled_time=slot)
        assert (again.run_id, again.fresh) == (first.run_id, False)
        assert (await scene.job()).planned_until == at("09:00")

    @scenario
    async def test_a_backfill_of_a_time_that_is_no_past_slot_is_refused(self, scene: Scene) -> None:
        await scene.define(job("a", HOURLY), job("b", None))
        for name, slot in (("a", at("08:30")), ("a", at("10:00")), ("b", at("08:00"))):
            with raises(InvalidInput):
                await scene.admit(name, Origin.BACKFILL, scheduled_time=slot)
        assert await scene.runs() == ()

    @scenario
    async def test_one_request_that_cannot_be_granted_and_none_is(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.trigger(key="old")
        (old,) = await scene.runs()
        before = await scene.everything()
        good = Admission("a", Origin.TRIGGER, "ann", key="good")
        for kind, bad in (
            (JobNotFound, Admission("nobody", Origin.TRIGGER, "ann", key="k")),
            (RunNotFound, Admission("a", Origin.REPLAY, "ann", replay_of=unknown_run())),
            (InvalidInput, Admission("a", Origin.REPLAY, "ann", replay_of=old.run_id, tasks=("nothing",))),
            (InvalidInput, Admission("a", Origin.BACKFILL, "ann", scheduled_time=at("08:00:30"))),
        ):
            with raises(kind):
                await scene.store.admit((good, bad))
        assert await scene.everything() == before

    # ---- cancel --------------------------------------------------------------------------------------------------

    @scenario
    async def test_what_has_not_started_is_cancelled_at_once_and_hands_over(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        for _ in range(3):
            await scene.later("1m")
        first, second, _ = await scene.runs()
        states = await scene.store.cancel((second.run_id, first.run_id), by="ann", reason="not today")
        assert states == (RunState.CANCELLED, RunState.CANCELLED)
        assert await scene.story() == ["09:01 CANCELLED not today", "09:02 CANCELLED not today", "09:03 PENDING"]
        first = (await scene.runs())[0]
        assert (first.cancelled_by, first.completed_at, first.not_before) == ("ann", at("09:03"), None)

    @scenario
    async def test_a_running_run_is_asked_once_and_its_owner_ends_it(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        assert await scene.store.cancel((claim.run_id,), by="ann", reason="stop") == (RunState.RUNNING,)
        scene.clock.advance("5s")
        await scene.store.cancel((claim.run_id,), by="bob", reason="please")
        run = await scene.run()
        assert (run.state, run.cancelled_by, run.cancel_requested_at) == ("RUNNING", "ann", at("09:01"))
        assert (await scene.finish(claim, CANCELLED)).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED stop"]

    @scenario
    async def test_a_request_to_stop_that_comes_too_late_changes_no_result(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        await scene.store.cancel((claim.run_id,))
        assert (await scene.finish(claim)).state == "COMPLETED"

    @scenario
    async def test_a_parked_run_is_cancelled_with_its_tasks(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), retry=Retry(1, "10m")))
        await scene.later("1m")
        await scene.run_once(FAILED)
        await scene.store.cancel(((await scene.run()).run_id,), reason="enough")
        assert await scene.story() == ["09:01 CANCELLED enough"]
        assert await scene.tasks() == [("one", "CANCELLED", "enough"), ("two", "SKIPPED", "enough")]

    @scenario
    async def test_an_ended_run_stays_as_it_is(self, scene: Scene) -> None:
        await scene.define(job(schedule=Cron("1 9 * * *")))
        await scene.later("1m")
        await scene.run_once()
        before = await scene.everything()
        assert await scene.store.cancel(((await scene.run()).run_id,)) == (RunState.COMPLETED,)
        assert await scene.everything() == before

    @scenario
    async def test_nothing_is_cancelled_where_one_run_is_unknown(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        with raises(RunNotFound):
            await scene.store.cancel(((await scene.run()).run_id, unknown_run()))
        assert await scene.story() == ["09:01 PENDING"]

    @scenario
    async def test_unknown_jobs_are_told_as_such(self, scene: Scene) -> None:
        with raises(JobNotFound):
            await scene.store.set_state("nobody", JobState.PAUSED)
        with raises(JobNotFound):
            await scene.store.reschedule("nobody", at("10:00"))
