"""The store contract, jobs that fire once: times that have passed, and times that are replaced."""

from __future__ import annotations

from horae.core.job.policies import Queue
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once
from horae.errors import InvalidTime
from horae_store_tests.contract.builders import HOURLY, Contract, Scene, at, job, raises, scenario


class OnceContract(Contract):
    """A Once gets another time, whatever became of the old one; a time that is older than its grace is refused."""

    @scenario
    async def test_a_missed_once_that_gets_another_time_fires_at_that_alone(self, scene: Scene) -> None:
        for name, source in (("a", "schedule"), ("b", "sql"), ("c", "code")):
            await scene.define(job(name, Once(at("10:00"))), source=source)
        scene.clock.set(at("12:00"))
        for name, source in (("a", "schedule"), ("b", "sql"), ("c", "code")):
            await scene.define(job(name, Once(at("13:00"))), source=source)
        await scene.plan()
        assert await scene.store.runs() == ()
        await scene.until("13:00")
        assert [await scene.story(name) for name in "abc"] == [["13:00 PENDING"]] * 3

    @scenario
    async def test_a_once_that_has_not_started_is_withdrawn_when_it_gets_another_time(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00")), overlap=Queue()))
        await scene.until("10:00")
        assert await scene.story() == ["10:00 PENDING"]
        await scene.trigger(key="behind")
        await scene.define(job(schedule=Once(at("11:00")), overlap=Queue()))
        assert len(await scene.runs()) == 1
        await scene.run_once()
        await scene.until("11:00")
        assert (await scene.claim()).scheduled_time == at("11:00")

    @scenario
    async def test_a_once_that_is_under_way_goes_on_beside_its_new_time(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00"))))
        await scene.until("10:00")
        claim = await scene.claim()
        await scene.define(job(schedule=Once(at("11:00"))))
        await scene.finish(claim)
        assert (await scene.job()).state == JobState.ENABLED
        await scene.until("11:00")
        assert await scene.story() == ["10:00 COMPLETED", "11:00 PENDING"]

    @scenario
    async def test_a_once_that_is_done_is_enabled_again_by_another_time(self, scene: Scene) -> None:
        for name, source in (("a", "schedule"), ("b", "code"), ("c", "sql")):
            await scene.define(job(name, Once(at("10:00"))), source=source)
        await scene.until("10:00")
        for claim in await scene.claim_runs():
            await scene.finish(claim)
        assert {(await scene.job(name)).state for name in "abc"} == {JobState.DISABLED}
        for name, source in (("a", "schedule"), ("b", "code"), ("c", "sql")):
            await scene.define(job(name, Once(at("11:00"))), source=source)
            record = await scene.job(name)
            assert (record.state, record.next_run_time) == (JobState.ENABLED, at("11:00"))

    @scenario
    async def test_a_once_that_somebody_disabled_stays_disabled(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00"))))
        await scene.store.set_state("a", JobState.DISABLED)
        await scene.define(job(schedule=Once(at("11:00"))))
        assert (await scene.job()).state == JobState.DISABLED

    @scenario
    async def test_a_once_may_be_put_off_whatever_became_of_its_time(self, scene: Scene) -> None:
        await scene.define(job("missed", Once(at("10:00"))), job("done", Once(at("10:00"))))
        await scene.until("10:00")
        for claim in await scene.claim_runs():
            await scene.finish(claim)
        assert await scene.store.reschedule("done", at("11:00")) == at("11:00")
        await scene.define(job("late", Once(at("10:30"))))
        scene.clock.set(at("10:50"))
        assert await scene.store.reschedule("late", at("11:00")) == at("10:30")
        await scene.until("11:00")
        assert await scene.story("done") == ["10:00 COMPLETED", "11:00 PENDING"]
        assert await scene.story("late") == ["10:30 PENDING"]
        with raises(InvalidTime):
            await scene.store.reschedule("missed", at("10:00:30"))

    @scenario
    async def test_a_time_older_than_its_grace_is_refused_unless_code_registers_it(self, scene: Scene) -> None:
        past = job(schedule=Once(at("08:58")))
        for source in ("schedule", "sql", "http", "apply"):
            with raises(InvalidTime):
                await scene.define(past, source=source)
            assert await scene.store.jobs() == ()
        await scene.define(past)
        await scene.plan()
        await scene.define(past)
        await scene.plan()
        assert await scene.story() == ["08:58 MISSED missed"]

    @scenario
    async def test_a_schedule_whose_every_time_is_older_than_its_grace_is_refused_unless_code_registers_it(
        self, scene: Scene
    ) -> None:
        ended = {
            "union": Once(at("08:00")) | Once(at("08:30")),
            "iso": Iso8601("R2/2026-03-02T07:30:00Z/PT1H"),
            "cron": Cron("30 * * * *", end=at("08:40")),
            "every": Every("30m", start=at("07:00"), end=at("08:40")),
        }
        for source in ("schedule", "sql", "http", "apply"):
            for name, schedule in ended.items():
                with raises(InvalidTime):
                    await scene.define(job(name, schedule), source=source)
        assert await scene.store.jobs() == ()
        for _ in range(2):
            await scene.define(*(job(name, schedule) for name, schedule in ended.items()))
            await scene.plan()
        assert [await scene.story(name) for name in ended] == [["08:30 MISSED missed"]] * 4

    @scenario
    async def test_the_last_of_several_times_runs_at_once_within_its_grace(self, scene: Scene) -> None:
        both = Once(at("08:00")) | Once(at("08:59:30"))
        await scene.define(job("new", both), source="schedule")
        await scene.define(job("changed", Every("1h")), job("had", Every("30s", start=at("08:00"))))
        await scene.define(job("changed", both), source="schedule")
        await scene.define(job("had", Every("30s", start=at("08:00"), end=at("09:00"))), source="schedule")
        await scene.plan()
        assert [await scene.story(name) for name in ("new", "changed")] == [["08:59:30 PENDING"]] * 2
        assert await scene.story("had") == []

    @scenario
    async def test_a_schedule_with_a_time_to_come_is_taken_whatever_has_passed(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("08:00")) | Once(at("09:30"))), source="schedule")
        # An interval without a start counts from the job's first definition: the next is at ten, and then it ends.
        await scene.define(job("b", Every("1h")))
        scene.clock.set(at("09:50"))
        await scene.define(job("b", Every("1h", end=at("10:05"))), source="sql")
        await scene.until("10:00")
        assert [await scene.story(name) for name in "ab"] == [["09:30 PENDING"], ["10:00 PENDING"]]

    @scenario
    async def test_a_run_is_not_moved_to_a_time_that_is_older_than_its_grace(self, scene: Scene) -> None:
        specs = (job("once", Once(at("12:00"))), job("often", HOURLY), job("wide", HOURLY, misfire_grace="1h"))
        await scene.define(*specs)
        for name in ("once", "often"):
            with raises(InvalidTime):
                await scene.store.reschedule(name, at("08:58:59"))
            assert (await scene.job(name)).next_run_time in (at("10:00"), at("12:00"))
        assert await scene.store.reschedule("often", at("08:59:30")) == at("10:00")
        assert await scene.store.reschedule("wide", at("08:10")) == at("10:00")
        await scene.plan()
        assert [await scene.story(name) for name in ("once", "often", "wide")] == [
            [],
            ["10:00 PENDING"],
            ["10:00 PENDING"],
        ]

    @scenario
    async def test_a_time_within_its_grace_is_taken_for_new_jobs_and_for_others(self, scene: Scene) -> None:
        await scene.define(job("new", Once(at("08:59:30"))), source="schedule")
        await scene.define(job("wide", Once(at("08:50")), misfire_grace="1h"), source="sql")
        await scene.define(job("retimed", Once(at("12:00"))), job("often", Every("1h")))
        await scene.define(job("retimed", Once(at("08:59:30"))), source="schedule")
        await scene.define(job("often", Once(at("08:59:30"))), source="schedule")
        await scene.plan()
        for name in ("new", "retimed", "often"):
            assert await scene.story(name) == ["08:59:30 PENDING"]
        assert await scene.story("wide") == ["08:50 PENDING"]

    @scenario
    async def test_a_time_that_was_decided_before_is_not_decided_again(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00"))))
        await scene.until("10:00")
        await scene.run_once()
        await scene.define(job(schedule=Once(at("11:00"))))
        await scene.define(job(schedule=Once(at("10:00"))))
        await scene.define(job(schedule=Every("1h")))
        await scene.plan()
        assert await scene.story() == ["10:00 COMPLETED"]

    @scenario
    async def test_a_registered_time_that_changes_to_one_long_past_is_missed_once(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("12:00"))))
        await scene.define(job(schedule=Once(at("08:00"))))
        await scene.plan()
        await scene.plan()
        assert await scene.story() == ["08:00 MISSED missed"]

    @scenario
    async def test_a_job_whose_old_time_has_passed_may_be_changed_in_other_ways(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("10:00"))))
        await scene.until("10:00")
        await scene.run_once()
        scene.clock.set(at("12:00"))
        state = JobState.DISABLED
        await scene.define(job(schedule=Once(at("10:00")), description="new", state=state), source="sql")
        assert (await scene.job()).version == 2
