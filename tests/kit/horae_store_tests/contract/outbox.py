"""The store contract, ends of runs: what is told of those that no node reports, and what hooks are called with.

However a run ends, the transaction that ends it writes a notice for each hook that asks for it.
"""

from __future__ import annotations

from datetime import timedelta

from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState, RunState
from horae.core.window.window import Window
from horae.store.records import Hook, Notice, Origin
from horae_store_tests.contract.builders import (
    FAILED,
    HOURLY,
    NODE,
    OTHER,
    SUCCESS,
    THIRD,
    Contract,
    Scene,
    at,
    ended,
    job,
    scenario,
    slot_id,
)

ALL = Hook("app.all")


async def noticed(scene: Scene, *hook_ids: str) -> list[str]:
    """Delivers what waits for these hooks (none given: ALL); each notice in one line."""
    notices = await scene.store.claim_notices(NODE, hook_ids or (ALL.hook_id,))
    await scene.store.delete_notices(NODE, [each.number for each in notices])
    return [line(each) for each in notices]


def line(notice: Notice) -> str:
    return f"{notice.run.job_name} {notice.run.state} {notice.run.reason}"


class OutboxContract(Contract):
    """Runs that end without their node, and hooks."""

    # ---- which ends ----------------------------------------------------------------------------------------------

    @scenario
    async def test_each_way_to_end_reaches_a_hook(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job("completed"), job("failed"), job("skipped"), job("kept"), job("cancelled", None))
        await scene.define(job("unschedulable", HOURLY, window=Window.after("10m", only={"hours": "3"})))
        await scene.define(job("late", HOURLY, deadline="30s"), job("none", HOURLY, recovery="none"))
        await scene.later("1m")
        claims = {claim.job_name: claim for claim in await scene.claim_runs()}
        await scene.finish(claims["completed"])
        await scene.settle(claims["failed"], ended(FAILED))
        assert await noticed(scene) == ["completed COMPLETED None", "failed FAILED None"]
        await scene.store.drop(["completed", "failed", "kept"], keep_history=True)
        await scene.later("1m")
        assert await noticed(scene) == ["skipped SKIPPED overlap"]
        await scene.store.drop(["skipped"])
        asked = await scene.trigger("cancelled")
        await scene.store.cancel([asked.run_id])
        assert await noticed(scene) == ["cancelled CANCELLED cancelled"]
        await scene.until("10:00")
        assert await noticed(scene) == ["unschedulable UNSCHEDULABLE no candidate accepted within MaxAttempts"]
        await scene.until("10:00:31")
        assert await noticed(scene) == ["late MISSED deadline"]
        for claim in await scene.claim_runs():
            await scene.finish(claim)
        assert await noticed(scene) == ["none COMPLETED None"]
        await scene.until("12:30")
        assert "none MISSED missed" in await noticed(scene)

    @scenario
    async def test_runs_that_the_reaper_or_a_take_over_ends_reach_a_hook(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.store.join(OTHER)
        await scene.define(
            job("stale", execution_timeout="10s", cancel_grace="5s"),
            job("asked", cancel_grace="5s"),
            job("once", delivery="at_most_once"),
            job("again"),
        )
        await scene.later("1m")
        await scene.claim_runs(node=OTHER)
        await scene.store.cancel([(await scene.run("asked")).run_id])
        scene.clock.advance("11s")
        assert await scene.store.reap() == 1
        scene.clock.advance("6s")
        assert await scene.store.reap() == 1
        assert await noticed(scene) == ["asked CANCELLED abandoned", "stale FAILED_STALE Execution exceeded timeout"]
        assert [(each.job_name, str(each.state), each.reason) for each in scene.passed()] == [
            ("asked", "CANCELLED", "abandoned"),
            ("stale", "FAILED_STALE", "Execution exceeded timeout"),
        ]
        assert await scene.store.take_over(NODE, OTHER, 0) == 2
        assert await noticed(scene) == ["once FAILED_STALE lost, and delivered at most once"]
        taken = {each.job_name: each for each in scene.passed()}
        assert (taken["once"].state, taken["once"].reason) == (
            RunState.FAILED_STALE,
            "lost, and delivered at most once",
        )
        assert (taken["again"].state, taken["again"].reason) == (RunState.PENDING, f"node {OTHER} died")
        assert taken["again"].run_id == slot_id("again", at("09:01"))
        assert taken["again"].elapsed == timedelta(seconds=17)

    @scenario
    async def test_a_job_that_is_dropped_with_its_history_is_told_of_all_the_same(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        await scene.store.drop(["a"])
        (passed,) = scene.passed()
        assert (passed.job_name, passed.state, passed.reason) == ("a", RunState.CANCELLED, "dropped")
        (notice,) = await scene.store.claim_notices(NODE, [ALL.hook_id])
        assert (line(notice), notice.run.run_id) == ("a CANCELLED dropped", slot_id("a", at("09:02")))
        assert (notice.run.scheduled_time, notice.run.completed_at) == (at("09:02"), at("09:02"))
        await scene.finish(claim)
        assert [line(each) for each in await scene.store.claim_notices(NODE, [ALL.hook_id], held=[notice.number])] == [
            "a COMPLETED None"
        ]

    @scenario
    async def test_a_run_that_goes_back_or_waits_for_a_retry_has_not_ended(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job("back"), job("retry", retry=Retry(1, "10s")))
        await scene.later("1m")
        for claim in await scene.claim_runs():
            if claim.job_name == "back":
                await scene.settle(claim, release=True)
            else:
                await scene.settle(claim, ended(FAILED))
        assert await noticed(scene) == []
        scene.clock.advance("10s")
        for claim in await scene.claim_runs():
            await scene.settle(claim, *(ended(SUCCESS, *start) for start in claim.starts))
        assert sorted(await noticed(scene)) == ["back COMPLETED None", "retry COMPLETED None"]

    @scenario
    async def test_the_owner_of_a_run_is_not_told_what_it_reports_itself(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", delivery="at_most_once"))
        await scene.later("1m")
        for claim in await scene.claim_runs():
            await scene.settle(claim, release=True)
        assert scene.passed() == []
        assert (await scene.run("b")).state is RunState.CANCELLED

    # ---- which hooks ---------------------------------------------------------------------------------------------

    @scenario
    async def test_a_hook_is_given_the_job_and_the_states_that_it_asks_for(self, scene: Scene) -> None:
        failures = Hook("app.failures", None, frozenset({RunState.FAILED, RunState.FAILED_STALE}))
        only_a = Hook("app.only@a", "a")
        await scene.store.register_hooks([failures, only_a])
        await scene.define(job("a"), job("b", tasks=(TaskSpec("work", handler="work"),)))
        await scene.later("1m")
        for claim in await scene.claim_runs():
            await scene.settle(claim, ended(FAILED if claim.job_name == "b" else SUCCESS))
        assert await noticed(scene, "app.failures") == ["b FAILED None"]
        assert await noticed(scene, "app.only@a") == ["a COMPLETED None"]

    @scenario
    async def test_slots_that_a_pause_skipped_are_only_for_hooks_that_ask_for_skipped_ones(self, scene: Scene) -> None:
        skips = Hook("app.skips", None, frozenset({RunState.SKIPPED}))
        await scene.store.register_hooks([ALL, skips])
        await scene.define(job())
        await scene.store.set_state("a", JobState.PAUSED)
        await scene.later("1m")
        assert await noticed(scene) == []
        assert await noticed(scene, "app.skips") == ["a SKIPPED paused"]

    @scenario
    async def test_a_span_of_slots_is_one_notice(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job(recovery="none", misfire_grace="1s"))
        await scene.until("15:00:30")
        notices = await scene.store.claim_notices(NODE, [ALL.hook_id])
        assert sum(each.count for each in notices) == 360
        assert len(notices) < 100

    @scenario
    async def test_without_a_hook_nothing_is_kept(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once()
        await scene.store.register_hooks([ALL])
        assert await noticed(scene) == []

    # ---- delivering ----------------------------------------------------------------------------------------------

    @scenario
    async def test_an_end_is_delivered_by_one_live_node(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.store.register_hooks([ALL])
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once()
        (notice,) = await scene.store.claim_notices(OTHER, [ALL.hook_id])
        assert await scene.store.claim_notices(NODE, [ALL.hook_id]) == ()
        assert await scene.store.claim_notices(OTHER, [ALL.hook_id], held=[notice.number]) == ()
        # The answer got lost: it asks again.
        assert await scene.store.claim_notices(OTHER, [ALL.hook_id]) == (notice,)
        await scene.store.take_over(NODE, OTHER, 0)
        assert await scene.store.claim_notices(NODE, [ALL.hook_id]) == (notice,)
        assert await scene.store.delete_notices(OTHER, [notice.number]) == 0
        assert await scene.store.delete_notices(NODE, [notice.number]) == 1
        assert await scene.store.delete_notices(NODE, [notice.number]) == 0
        assert await scene.store.claim_notices(THIRD, [ALL.hook_id]) == ()

    @scenario
    async def test_a_node_that_is_not_alive_is_given_nothing(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once()
        assert await scene.store.claim_notices(OTHER, [ALL.hook_id]) == ()
        await scene.store.leave(NODE)
        assert await scene.store.claim_notices(NODE, [ALL.hook_id]) == ()

    @scenario
    async def test_what_waits_for_a_hook_is_shown_and_kept_for_seven_days(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL, Hook("app.other@x", "x")])
        await scene.define(job("a", None))
        await scene.trigger()
        await scene.run_once()
        found = {each.hook.hook_id: each for each in await scene.store.hooks()}
        assert (found["app.all"].hook, found["app.all"].waiting, found["app.all"].oldest) == (ALL, 1, at("09:00"))
        assert (found["app.other@x"].hook.job_name, found["app.other@x"].waiting) == ("x", 0)
        scene.clock.advance("7d")
        await scene.store.sweep()
        assert [each.waiting for each in await scene.store.hooks()] == [1, 0]
        await scene.store.register_hooks([ALL])
        scene.clock.advance("1s")
        await scene.store.sweep()
        (kept,) = await scene.store.hooks()
        assert (kept.hook, kept.waiting, kept.oldest) == (ALL, 0, None)

    @scenario
    async def test_a_hook_that_is_dropped_takes_what_waits_for_it_along(self, scene: Scene) -> None:
        await scene.store.register_hooks([ALL])
        await scene.define(job("a", None))
        await scene.admit("a", Origin.TRIGGER)
        await scene.run_once()
        await scene.store.drop_hooks([ALL.hook_id])
        assert await scene.store.hooks() == ()
        assert await noticed(scene) == []
