"""The store contract, updates: when a change takes effect, and whose the slots around it are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from horae.core.change.update_policy import Update
from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.store.protocols.store import DefinitionResult
from horae_store_tests.contract.builders import (
    FAILED,
    HOURLY,
    SUCCESS,
    Contract,
    Scene,
    at,
    ended,
    job,
    scenario,
    starts,
)

HALF_PAST = Cron("30 * * * *")
TWENTY_PAST = Cron("20 * * * *")
AHEAD = Window.before("3h", Distribution("skewLate", {"shape": 1000}))
"""Born three hours before their time, and started near it."""
GRACEFUL = Update("graceful")
LATE = Window.after("50m", Distribution("skewLate", {"shape": 1000}))
"""Born at their time, and started some 50 minutes after it."""


class UpdatingContract(Contract):
    """Changes that are immediate, graceful and windowed, alone and after each other."""

    @scenario
    async def test_a_graceful_change_leaves_the_announced_slot_to_the_version_before(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, tasks=("one",)))
        await scene.define(job(schedule=HALF_PAST, tasks=("two",)), update=GRACEFUL)
        record = await scene.job()
        assert (record.version, record.next_run_time) == (2, at("10:00"))
        for time in ("10:00", "10:30", "11:00", "11:30"):
            await scene.until(time)
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:00"), 1), (at("10:30"), 2), (at("11:30"), 2)]
        claims = await scene.claim_runs()
        assert {task.name for claim in claims for task in claim.definition.tasks} == {"one"}

    @scenario
    async def test_a_graceful_change_of_tasks_alone_keeps_the_announced_run_as_it_was(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, tasks=("one", "gone"), payload={"x": 1}))
        await scene.define(job(schedule=HOURLY, tasks=("new", "one")), update=GRACEFUL)
        await scene.until("10:00")
        claim = await scene.claim()
        assert [task.name for task in claim.definition.tasks] == ["one", "gone"]
        assert claim.payload == {"x": 1}
        await scene.settle(claim, release=True, started=False)
        await scene.until("11:00")
        assert [run.version for run in await scene.runs()] == [1, 2]

    @scenario
    async def test_a_graceful_change_until_a_moment_leaves_all_slots_before_it(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, overlap="allow"))
        await scene.define(job(schedule=HALF_PAST, overlap="allow"), update=Update("graceful", until=at("12:00")))
        for time in ("10:00", "11:00", "12:00", "12:30", "13:30"):
            await scene.until(time)
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:00"), 1), (at("11:00"), 1), (at("12:30"), 2), (at("13:30"), 2)]

    @scenario
    async def test_what_was_missed_around_a_graceful_change_is_caught_up_on_by_both_schedules(
        self, scene: Scene
    ) -> None:
        await scene.define(job(schedule=HOURLY, recovery="all"))
        await scene.define(job(schedule=HALF_PAST, recovery="all"), update=Update("graceful", until=at("11:15")))
        await scene.until("12:45")
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:00"), 1), (at("11:00"), 1), (at("11:30"), 2), (at("12:30"), 2)]

    @scenario
    async def test_a_graceful_change_is_read_back_by_another_process(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.after("1s")))
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        peer = await scene.peer()
        (record,) = await (peer or scene.store).jobs(("a",))
        assert [(stage.version, stage.until, stage.schedule) for stage in record.former] == [(1, at("10:00"), HOURLY)]
        assert record.schedule is not None
        assert list(record.schedule.between(at("09:00"), at("11:00"))) == [at("10:00"), at("10:30")]

    @scenario
    async def test_changes_that_wait_for_each_other_take_over_one_after_the_other(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, overlap="allow"))
        await scene.define(job(schedule=HALF_PAST, overlap="allow"), update=Update("graceful", until=at("10:15")))
        last = job(schedule=TWENTY_PAST, overlap="allow")
        await scene.define(last, update=Update("graceful", until=at("11:45")))
        for time in ("10:00", "10:30", "11:30", "12:20"):
            await scene.until(time)
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:00"), 1), (at("10:30"), 2), (at("11:30"), 2), (at("12:20"), 3)]

    @scenario
    async def test_an_immediate_change_ends_one_that_waits(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=HALF_PAST), update=Update("graceful", until=at("15:00")))
        await scene.define(job(schedule=TWENTY_PAST))
        record = await scene.job()
        assert (record.former, record.next_run_time) == ((), at("09:20"))

    @scenario
    async def test_a_graceful_change_of_something_else_cuts_nobody_short(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=HALF_PAST), update=Update("graceful", until=at("12:15")))
        await scene.define(job(schedule=HALF_PAST, description="new"), update=GRACEFUL)
        record = await scene.job()
        assert (record.version, record.next_run_time) == (3, at("10:00"))
        assert [(stage.version, stage.until) for stage in record.former] == [(1, at("12:14:59"))]
        await scene.define(job(schedule=HALF_PAST, description="newer"), update=Update("graceful", until=at("14:00")))
        assert [stage.version for stage in (await scene.job()).former] == [1, 3]
        await scene.define(job(schedule=HALF_PAST, description="newest"))
        record = await scene.job()
        assert (record.former, record.next_run_time) == ((), at("09:30"))

    @scenario
    async def test_what_an_earlier_version_spoke_for_stays_decided_when_it_is_forgotten(self, scene: Scene) -> None:
        await scene.define(job(schedule=Cron("0 0 1 * *"), recovery="all"))
        later = Update("graceful", until=at("11:05"))
        await scene.define(job(schedule=Cron("*/10 * * * *"), recovery="all"), update=later)
        scene.clock.set(at("11:06"))
        await scene.define(job(schedule=Cron("*/10 * * * *"), recovery="all", description="new"))
        await scene.until("11:10")
        assert await scene.story() == ["11:10 PENDING"]

    @scenario
    async def test_the_alarm_rings_for_whoever_speaks_next(self, scene: Scene) -> None:
        monthly, often = Cron("0 0 1 * *"), Cron("*/10 * * * *")
        await scene.define(job(schedule=monthly))
        await scene.define(job(schedule=often), update=Update("graceful", until=at("20:00")))
        assert (await scene.job()).wake_at == at("20:00")
        await scene.define(job(schedule=often, description="new"))
        assert (await scene.job()).wake_at == at("09:10")

    @scenario
    async def test_a_paused_job_bears_nothing_by_being_changed(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        await scene.store.set_state("a", JobState.PAUSED)
        await scene.define(job(schedule=Cron("*/30 * * * *"), window=AHEAD))
        assert await scene.story() == ["10:00 PENDING (window)", "11:00 PENDING (window)", "12:00 PENDING (window)"]

    @scenario
    async def test_windows_of_versions_that_have_spoken_open_nothing_early(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.before("50m")))
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        for time in ("10:00", "10:30", "10:40"):
            await scene.until(time)
        assert (await scene.job()).wake_at == at("11:30")

    @scenario
    async def test_the_announced_slot_is_the_next_that_has_not_been_decided(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.store.reschedule("a", at("09:10"))
        await scene.until("09:10")
        assert await scene.story() == ["10:00 PENDING"]
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        assert (await scene.job()).next_run_time == at("11:00")
        await scene.define(job("b", schedule=HOURLY))
        await scene.store.set_state("b", JobState.PAUSED, until=at("12:20"))
        await scene.define(job("b", schedule=HALF_PAST), update=GRACEFUL)
        assert (await scene.job("b")).next_run_time == at("13:00")

    @scenario
    async def test_a_run_that_somebody_moved_stays_moved_where_no_slot_changes(self, scene: Scene) -> None:
        near = Window.before("30m")
        await scene.define(job(schedule=HOURLY, window=near))
        await scene.store.reschedule("a", at("09:50"))
        await scene.until("09:40")
        run = (await scene.runs())[0]
        assert (run.scheduled_time, run.chosen_time) == (at("10:00"), at("09:50"))
        await scene.define(job(schedule=HOURLY, window=near, description="new"))
        run = (await scene.runs())[0]
        assert (run.scheduled_time, run.chosen_time, run.version) == (at("10:00"), at("09:50"), 2)
        await scene.define(job(schedule=HOURLY, window=Window.after("1s")))
        assert (await scene.runs())[0].chosen_time >= at("10:00")

    @scenario
    async def test_a_moment_with_a_fraction_leaves_the_slot_before_it(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        moment = at("10:00").replace(microsecond=500_000)
        await scene.define(job(schedule=HALF_PAST), update=Update("graceful", until=moment))
        assert (await scene.job()).next_run_time == at("10:00")

    @scenario
    async def test_a_graceful_change_made_again_changes_nothing(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        before = await scene.everything()
        again = await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        assert again == (DefinitionResult("a", 2, "unchanged"),)
        assert await scene.everything() == before

    @scenario
    async def test_a_moved_slot_that_was_announced_stays_moved_through_a_graceful_change(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.store.reschedule("a", at("09:40"))
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        assert (await scene.job()).next_run_time == at("09:40")
        await scene.until("09:40")
        assert await scene.story() == ["10:00 PENDING"]
        await scene.define(job(schedule=TWENTY_PAST))
        assert (await scene.job()).moved_slot is None

    @scenario
    async def test_a_job_may_say_itself_how_its_changes_take_effect(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=HALF_PAST, update_policy="graceful"))
        assert (await scene.job()).next_run_time == at("10:00")
        await scene.define(job(schedule=TWENTY_PAST, update_policy="graceful"), update=Update())
        assert (await scene.job()).next_run_time == at("09:20")

    @scenario
    async def test_a_job_that_loses_its_schedule_gracefully_runs_once_more(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=None), update=GRACEFUL)
        assert (await scene.job()).next_run_time == at("10:00")
        await scene.until("10:00")
        record = await scene.job()
        assert (record.next_run_time, record.wake_at) == (None, None)
        assert await scene.story() == ["10:00 PENDING"]

    @scenario
    async def test_a_job_that_becomes_a_once_gracefully_is_done_after_it(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.define(job(schedule=Once(at("10:10"))), update=GRACEFUL)
        await scene.until("10:00")
        await scene.run_once()
        assert (await scene.job()).next_run_time == at("10:10")
        await scene.until("10:10")
        await scene.run_once()
        assert (await scene.job()).state == JobState.DISABLED

    @scenario
    async def test_a_disabled_job_has_announced_nothing(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, state=JobState.DISABLED))
        await scene.define(job(schedule=HALF_PAST, state=JobState.DISABLED), update=GRACEFUL)
        assert (await scene.job()).former == ()

    @scenario
    async def test_runs_born_ahead_get_the_tasks_of_the_new_version(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD, tasks=("one",), deadline="1h"))
        await scene.until("09:30")
        before = {run.run_id for run in await scene.runs()}
        steps = (TaskSpec("two", "two"), TaskSpec("one", "one"))
        await scene.define(job(schedule=HOURLY, window=AHEAD, tasks=steps, pool=None, deadline="5m"))
        runs = await scene.runs()
        assert {run.run_id for run in runs} == before
        assert [(run.scheduled_time, run.version) for run in runs] == [
            (at("10:00"), 2), (at("11:00"), 2), (at("12:00"), 2)
        ]  # fmt: skip

    @scenario
    async def test_a_windowed_change_leaves_runs_beyond_its_horizon(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        near = Update("windowed", horizon=timedelta(minutes=80))
        await scene.define(job(schedule=TWENTY_PAST, window=AHEAD), update=near)
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:20"), 2), (at("11:00"), 1), (at("12:00"), 1)]
        assert (await scene.job()).planned_until == at("12:00")

    @scenario
    async def test_a_graceful_change_keeps_the_run_born_ahead_that_was_announced(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        await scene.define(job(schedule=TWENTY_PAST, window=AHEAD), update=GRACEFUL)
        found = [(told.scheduled_time, told.version) for told in await scene.runs()]
        assert found == [(at("10:00"), 1), (at("10:20"), 2), (at("11:20"), 2)]

    @scenario
    async def test_a_change_reaches_a_run_that_waits_in_a_window_after_its_time(self, scene: Scene) -> None:
        modes = {"after": LATE, "around": Window.around("98m", LATE.distribution)}
        for name, mode in modes.items():
            await scene.define(job(name, schedule=HOURLY, window=mode, tasks=("one",), deadline="1m"))
        await scene.until("10:10")
        before = {run.run_id for name in modes for run in await scene.runs(name)}
        steps = (TaskSpec("two", "two"), TaskSpec("one", "one"))
        for name, mode in modes.items():
            await scene.define(job(name, schedule=HOURLY, window=mode, tasks=steps, deadline="5m"))
            run = (await scene.runs(name))[0]
            assert (run.version, run.scheduled_time, run.waiting_for) == (2, at("10:00"), "window")
            assert run.chosen_time > at("10:40")
            assert run.run_id in before
        await scene.until("10:53")
        # Past the deadline of the version before, within that of the new one.
        assert len(await scene.claim_runs()) == 2

    @scenario
    async def test_a_run_whose_slot_is_no_longer_there_goes_though_its_time_has_passed(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=LATE))
        await scene.until("10:10")
        await scene.define(job(schedule=HALF_PAST, window=LATE))
        assert await scene.runs() == ()
        await scene.until("10:31")
        assert [(run.scheduled_time, run.version) for run in await scene.runs()] == [(at("10:30"), 2)]

    @scenario
    async def test_a_run_whose_new_window_is_over_starts_at_once(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=LATE, deadline="1m"))
        await scene.until("10:10")
        await scene.define(job(schedule=HOURLY, deadline="1m"))
        (run,) = await scene.runs()
        assert (run.scheduled_time, run.chosen_time, run.version) == (at("10:00"), at("10:10"), 2)
        await scene.store.create_due_runs()
        assert (await scene.claim()).run_id == run.run_id

    @scenario
    async def test_a_windowed_change_reaches_runs_whose_nominal_time_has_passed(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=LATE))
        await scene.until("10:10")
        near = Update("windowed", horizon=timedelta(minutes=80))
        await scene.define(job(schedule=HOURLY, window=LATE, description="new"), update=near)
        assert [run.version for run in await scene.runs()] == [2]

    @scenario
    async def test_a_graceful_change_leaves_a_run_whose_nominal_time_has_passed(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=LATE))
        await scene.until("10:10")
        before = await scene.runs()
        await scene.define(job(schedule=HALF_PAST), update=GRACEFUL)
        assert await scene.runs() == before

    @scenario
    async def test_a_run_that_waits_in_its_window_is_the_announced_one_before_and_after_its_nominal_time(
        self, scene: Scene
    ) -> None:
        early = Window.before("50m", Distribution("skewLate", {"shape": 1000}))
        await scene.define(job("late", HOURLY, window=LATE), job("early", HOURLY, window=early))
        await scene.until("10:00")
        await scene.until("10:15")
        await scene.define(job("late", HALF_PAST), job("early", HALF_PAST), update=GRACEFUL)
        assert (await scene.job("late")).next_run_time == at("10:30")
        assert (await scene.job("early")).next_run_time == at("11:30")
        await scene.until("10:30")
        assert await scene.story("late") == ["10:00 PENDING (window)", "10:30 PENDING"]

    @scenario
    async def test_a_run_whose_chosen_time_has_come_keeps_its_version(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=LATE))
        await scene.until("10:10")
        scene.clock.set(at("10:50"))
        await scene.define(job(schedule=HALF_PAST))
        assert [(run.scheduled_time, run.version) for run in await scene.runs()] == [(at("10:00"), 1)]

    @scenario
    async def test_a_run_that_somebody_put_off_beyond_its_slot_stays_put_off(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.store.reschedule("a", at("10:40"))
        await scene.until("10:10")
        await scene.define(job(schedule=HOURLY, description="new"))
        (run,) = await scene.runs()
        assert (run.scheduled_time, run.chosen_time, run.version) == (at("10:00"), at("10:40"), 2)

    @scenario
    async def test_an_immediate_change_reaches_a_run_that_waits_for_a_retry(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, tasks=("one", "two"), retry=Retry(1, "10m")))
        await scene.until("10:00")
        await scene.settle(await scene.claim(), ended(FAILED))
        steps = (TaskSpec("zero", "zero"), TaskSpec("two", "two"), TaskSpec("one", "mended"))
        await scene.define(job(schedule=HALF_PAST, tasks=steps, retry=Retry(3, "1m")))
        (run,) = await scene.runs()
        assert (run.version, run.waiting_for, run.not_before) == (2, "retry", at("10:10"))
        assert [name for name, _, _ in await scene.tasks()] == ["zero", "two", "one"]
        await scene.until("10:10")
        claim = await scene.claim()
        assert claim.definition.handlers == {"zero", "two", "mended"}
        assert claim.starts == starts((0, 1))

    @scenario
    async def test_every_other_run_that_has_started_ends_under_the_version_it_started_with(self, scene: Scene) -> None:
        retry = Retry(3, "10m")
        begun: dict[str, Any] = {"schedule": HOURLY, "retry": retry}
        await scene.define(
            job("succeeded", tasks=("one", "two"), **begun),
            job("renamed", tasks=("one",), **begun),
            job("once", tasks=("one",), delivery="at_most_once", **begun),
            job("graceful", tasks=("one",), **begun),
            job("windowed", tasks=("one",), **begun),
            job("running", tasks=("one",), **begun),
        )
        await scene.until("10:00")
        for claim in await scene.claim_runs():
            if claim.job_name == "succeeded":
                await scene.settle(claim, ended(SUCCESS, 0))
            if claim.job_name != "running":
                await scene.settle(claim, ended(FAILED, 1 if claim.job_name == "succeeded" else 0))
        await scene.define(job("succeeded", tasks=("one", "two"), description="new", **begun))
        await scene.define(job("renamed", tasks=("other",), **begun))
        await scene.define(job("once", tasks=("one",), delivery="at_most_once", description="new", **begun))
        await scene.define(job("graceful", tasks=("one",), description="new", **begun), update=GRACEFUL)
        await scene.define(job("windowed", tasks=("one",), description="new", **begun), update=Update("windowed"))
        await scene.define(job("running", tasks=("one",), description="new", **begun))
        found = {run.job_name: (run.version, run.waiting_for) for run in await scene.store.runs()}
        assert found.pop("running") == (1, None)
        assert set(found.values()) == {(1, "retry")}
        assert len(found) == 5
