"""The store contract, definitions: what `define` writes, refuses, leaves alone, and decides anew."""

from __future__ import annotations

from datetime import timedelta

from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.window import Window
from horae.errors import DependencyCycle, InvalidDefinition, NamespaceConflict, VersionConflict
from horae.store.protocols.store import DefinitionResult
from horae_store_tests.contract.builders import BEGINNING, HOURLY, MINUTELY, Contract, Scene, at, job, raises, scenario

QUARTERLY = Cron("*/15 * * * *")
AHEAD = Window.before("30m")


class DefinitionContract(Contract):
    """Jobs: creating, changing, versions, namespaces, sources, and the runs a changed schedule takes along."""

    @scenario
    async def test_a_new_job_begins_at_version_1_and_is_planned_from_now(self, scene: Scene) -> None:
        assert await scene.define(job(owner="local"), by="ann") == (DefinitionResult("a", 1, "created"),)
        record = await scene.job()
        assert (record.version, record.state, record.created_by) == (1, JobState.ENABLED, "ann")
        assert record.created_at == record.updated_at == record.planned_until == BEGINNING
        assert record.next_run_time == record.wake_at == at("09:01")

    @scenario
    async def test_a_definition_is_read_back_as_it_was_given(self, scene: Scene) -> None:
        steps = (TaskSpec("load", "load", settings={"failure": "continue"}), TaskSpec("clean", "DELETE", "SQL"))
        spec = job(
            tasks=steps, payload={"x": [1, None, "é"]}, tags=("t", "u"), description="daily", retry=Retry(2, "5s", 2.0),
            overlap="queue", recovery="all", window=Window.after("10m"), deadline="1h",
        )  # fmt: skip
        await scene.define(spec)
        definition = (await scene.job()).definition
        assert definition.spec == spec
        assert definition.handlers == {"load"}
        assert definition.settings.deadline == timedelta(hours=1)
        assert [own.failure for own in definition.task_settings] == ["continue", "fail_fast"]

    @scenario
    async def test_an_equal_definition_changes_nothing(self, scene: Scene) -> None:
        await scene.define(job(), job("b", Every("7m")))
        before = await scene.everything()
        scene.clock.advance("90s")
        again = await scene.define(job(), job("b", Every("7m")))
        assert again == (DefinitionResult("a", 1, "unchanged"), DefinitionResult("b", 1, "unchanged"))
        assert await scene.everything() == before

    @scenario
    async def test_a_changed_definition_raises_the_version_and_keeps_the_creation(self, scene: Scene) -> None:
        await scene.define(job(owner="local"), by="ann")
        scene.clock.advance("10s")
        assert await scene.define(job(description="new"), by="bob") == (DefinitionResult("a", 2, "changed"),)
        record = await scene.job()
        assert (record.created_at, record.created_by) == (BEGINNING, "ann")
        assert record.updated_at == at("09:00:10")
        assert record.definition.spec.description == "new"
        assert record.planned_until == BEGINNING

    @scenario
    async def test_answers_come_in_the_order_given(self, scene: Scene) -> None:
        defined = await scene.define(job("c"), job("a"), job("b"))
        assert [each.name for each in defined] == ["c", "a", "b"]

    @scenario
    async def test_one_bad_definition_and_none_is_written(self, scene: Scene) -> None:
        await scene.define(job("old"))
        before = await scene.everything()
        with raises(InvalidDefinition):
            await scene.define(job("a"), job("old", description="new"), job("b", depends_on=("nobody",)))
        assert await scene.everything() == before

    @scenario
    async def test_a_name_twice_no_task_an_unknown_pool_and_a_payload_that_is_no_json_are_refused(
        self, scene: Scene
    ) -> None:
        refused = ((job(), job()), (job(tasks=()),), (job(pool="nowhere"),), (job(payload={1, 2}),))
        for specs in refused:
            with raises(InvalidDefinition):
                await scene.define(*specs)
        assert await scene.store.jobs() == ()

    @scenario
    async def test_a_pool_that_exists_can_be_named(self, scene: Scene) -> None:
        await scene.store.set_pool("narrow", 1)
        await scene.define(job(pool="narrow"))
        assert (await scene.job()).definition.settings.pool == "narrow"

    @scenario
    async def test_jobs_of_one_call_may_depend_on_each_other_in_any_order(self, scene: Scene) -> None:
        await scene.define(job("a", depends_on=("b",)), job("b"))
        assert (await scene.job("a")).definition.spec.depends_on == ("b",)

    @scenario
    async def test_a_cycle_over_the_whole_catalog_is_refused_and_named(self, scene: Scene) -> None:
        await scene.define(job("a", depends_on=("b",)), job("b"))
        with raises(DependencyCycle) as caught:
            await scene.define(job("b", depends_on=("a",)))
        assert caught.error.cycle == ("a", "b", "a")
        assert (await scene.job("b")).version == 1

    @scenario
    async def test_an_expected_version_that_is_not_there_is_a_conflict_with_both_versions(self, scene: Scene) -> None:
        await scene.define(job())
        for name, expected, found in (("a", 2, 1), ("a", 0, 1), ("b", 1, 0)):
            with raises(VersionConflict) as caught:
                await scene.define(job(name, description="new"), expected={name: expected})
            assert (caught.error.name, caught.error.expected, caught.error.found) == (name, expected, found)
        assert (await scene.job()).version == 1

    @scenario
    async def test_an_expected_version_that_is_there_is_no_conflict(self, scene: Scene) -> None:
        await scene.define(job(), expected={"a": 0})
        await scene.define(job(description="new"), expected={"a": 1})
        assert (await scene.job()).version == 2

    @scenario
    async def test_a_job_of_another_namespace_is_not_touched(self, scene: Scene) -> None:
        await scene.define(job(namespace="ours"))
        with raises(NamespaceConflict):
            await scene.define(job(namespace="theirs", description="mine now"))
        assert (await scene.job()).version == 1

    @scenario
    async def test_registering_from_code_again_does_not_undo_an_operators_change(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.define(job(schedule=HOURLY), source="sql")
        assert await scene.define(job()) == (DefinitionResult("a", 2, "unchanged"),)
        assert (await scene.job()).definition.spec.schedule == HOURLY

    @scenario
    async def test_code_that_has_itself_changed_is_registered(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.define(job(schedule=HOURLY), source="sql")
        assert await scene.define(job(schedule=QUARTERLY)) == (DefinitionResult("a", 3, "changed"),)
        assert (await scene.job()).definition.spec.schedule == QUARTERLY

    @scenario
    async def test_a_state_given_in_code_counts_for_a_new_job_only(self, scene: Scene) -> None:
        await scene.define(job(state=JobState.PAUSED))
        assert (await scene.job()).state == JobState.PAUSED
        await scene.store.set_state("a", JobState.ENABLED)
        await scene.define(job(state=JobState.PAUSED, description="new"))
        record = await scene.job()
        assert (record.version, record.state) == (2, JobState.ENABLED)

    @scenario
    async def test_a_state_given_by_an_operators_definition_counts(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.define(job(state=JobState.DISABLED), source="sql")
        record = await scene.job()
        assert (record.state, record.wake_at, record.next_run_time) == (JobState.DISABLED, None, None)
        scene.clock.advance("5m")
        await scene.define(job(description="new"), source="sql")
        record = await scene.job()
        assert (record.state, record.next_run_time) == (JobState.ENABLED, at("09:06"))

    @scenario
    async def test_a_definition_that_keeps_states_leaves_what_an_operator_made_of_them(self, scene: Scene) -> None:
        await scene.define(job(), job("b"))
        await scene.store.set_state("a", JobState.DISABLED)
        both = (job(description="new"), job("b", state=JobState.PAUSED))
        await scene.define(*both, job("c", state=JobState.PAUSED), source="sql", keeps_state=("a", "c"))
        assert [(await scene.job(name)).state for name in "abc"] == ["DISABLED", "PAUSED", "PAUSED"]
        assert (await scene.job()).version == 2

    @scenario
    async def test_a_changed_schedule_first_bears_what_the_old_one_owes(self, scene: Scene) -> None:
        await scene.define(job())
        scene.clock.advance("1m")
        await scene.define(job(schedule=HOURLY))
        assert await scene.story() == ["09:01 PENDING"]
        assert (await scene.run()).version == 1
        assert (await scene.job()).next_run_time == at("10:00")

    @scenario
    async def test_a_run_keeps_the_version_it_was_born_under(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        await scene.define(job(tasks=("three",)))
        claim = await scene.claim()
        assert (claim.definition.version, [task.name for task in claim.definition.tasks]) == (1, ["one", "two"])
        assert claim.definition.handlers == {"one", "two"}

    @scenario
    async def test_no_slot_is_born_again_however_often_the_schedule_changes(self, scene: Scene) -> None:
        for schedule in (MINUTELY, Every("30s", start=BEGINNING), Cron("*/2 * * * *"), MINUTELY, HOURLY, MINUTELY):
            await scene.define(job(schedule=schedule, overlap="allow"))
            await scene.later("1m")
        slots = [run.scheduled_time for run in await scene.runs("a")]
        assert len(slots) == len(set(slots))
        assert at("09:01") in slots

    @scenario
    async def test_a_run_born_ahead_goes_where_the_new_schedule_has_no_such_slot(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        assert await scene.story() == ["10:00 PENDING (window)"]
        await scene.define(job(schedule=Cron("20 * * * *"), window=AHEAD))
        assert await scene.story() == []

    @scenario
    async def test_a_run_born_ahead_is_decided_anew_by_a_new_window(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        await scene.define(job(schedule=HOURLY, window=Window.after("1s")))
        run = await scene.run()
        assert at("10:00") <= run.chosen_time <= at("10:00:01")
        assert (run.not_before, run.waiting_for) == (run.chosen_time, "window")

    @scenario
    async def test_a_new_slot_behind_the_cursor_is_born_with_the_change(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.until("09:30")
        await scene.define(job(schedule=QUARTERLY, window=Window.after("10m")))
        assert await scene.story() == ["09:45 PENDING (window)", "10:00 PENDING (window)"]
        assert (await scene.job()).planned_until == at("10:00")

    @scenario
    async def test_a_dropped_job_comes_back_with_a_higher_version_and_repeats_no_slot(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=AHEAD))
        await scene.define(job(schedule=HOURLY, window=AHEAD, description="second"))
        await scene.until("09:30")
        await scene.store.drop(("a",))
        assert await scene.define(job(schedule=HOURLY)) == (DefinitionResult("a", 3, "created"),)
        assert (await scene.job()).planned_until == at("10:00")
        await scene.until("10:00")
        assert await scene.story() == []
        assert (await scene.job()).next_run_time == at("11:00")

    @scenario
    async def test_an_interval_counts_from_the_jobs_first_definition(self, scene: Scene) -> None:
        await scene.define(job(schedule=Every("7m")))
        scene.clock.advance("5m")
        await scene.define(job(schedule=Every("7m"), description="new"))
        assert (await scene.job()).next_run_time == at("09:07")

    @scenario
    async def test_a_once_in_the_past_runs_within_its_grace(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("08:59:30"))))
        assert (await scene.job()).wake_at == BEGINNING
        await scene.plan()
        assert await scene.story() == ["08:59:30 PENDING"]

    @scenario
    async def test_a_once_further_in_the_past_is_missed_and_done(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("07:00"))))
        await scene.plan()
        assert await scene.story() == ["07:00 MISSED missed"]
        assert (await scene.job()).state == JobState.DISABLED

    @scenario
    async def test_the_schedulers_defaults_hold_where_the_job_says_nothing(self, scene: Scene) -> None:
        await scene.define(job(), job("b", overlap="skip"), defaults={"overlap": "allow"})
        assert (await scene.job("a")).definition.settings.overlap == "allow"
        assert (await scene.job("b")).definition.settings.overlap == "skip"
        assert (await scene.define(job(), defaults={"overlap": "coalesce"}))[0].change == "changed"

    @scenario
    async def test_a_job_without_a_schedule_waits_for_people(self, scene: Scene) -> None:
        await scene.define(job(schedule=None))
        record = await scene.job()
        assert (record.next_run_time, record.wake_at) == (None, None)
        assert (await scene.later("1h")).jobs == 0
        assert (await scene.trigger(key="now")).state == "PENDING"
