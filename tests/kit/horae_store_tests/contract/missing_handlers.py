"""The store contract, handlers that are gone: a run of an earlier version does not wait for them for ever."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from horae.core.change.update_policy import Update
from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Queue, Retry
from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.store.records import Admission, Origin
from horae_store_tests.contract.builders import (
    FAILED,
    NODE,
    OTHER,
    SUCCESS,
    Contract,
    Scene,
    at,
    ended,
    job,
    scenario,
    starts,
)

_OVERLAPS = ("skip", "allow", "coalesce", "replace", Queue())


async def _replaced(scene: Scene, *handlers: str) -> None:
    """Another node takes the place of the first, with these handlers."""
    await scene.store.leave(NODE)
    await scene.store.join(OTHER, details={"handlers": list(handlers)})


class GoneContract(Contract):
    """A release renamed or removed a task while a run of the version before it waits."""

    @scenario
    async def test_a_run_that_has_not_started_goes_on_under_the_present_version_after_the_grace(
        self, scene: Scene
    ) -> None:
        for overlap in _OVERLAPS:
            name = f"job {overlap}"
            await scene.define(job(name, tasks=("old",), overlap=overlap))
        await scene.later("1m")
        await _replaced(scene, "new")
        for overlap in _OVERLAPS:
            await scene.define(job(f"job {overlap}", tasks=("new",), overlap=overlap))
        scene.clock.advance("4m59s")
        assert await scene.store.sweep() == 0
        scene.clock.advance("1s")
        assert await scene.store.sweep() == len(_OVERLAPS)
        claims = await scene.claim_runs(handlers=frozenset({"new"}), node=OTHER)
        assert sorted(claim.job_name for claim in claims) == sorted(f"job {overlap}" for overlap in _OVERLAPS)
        assert {claim.definition.version for claim in claims} == {2}

    @scenario
    async def test_a_handler_of_the_present_version_is_waited_for(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.define(job(tasks=("old",), description="other"))
        scene.clock.advance("1h")
        assert await scene.store.sweep() == 0
        assert (await scene.run()).state == "PENDING"

    @scenario
    async def test_the_grace_counts_from_the_end_of_the_last_node_that_had_it(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.store.leave(NODE)
        await scene.store.join(OTHER, details={"handlers": ["old"]})
        await scene.later("1m")
        scene.clock.advance("10m")
        await scene.store.leave(OTHER)
        await scene.store.join(uuid4(), details={"handlers": ["new"]})
        await scene.define(job(tasks=("new",)))
        scene.clock.advance("4m")
        assert await scene.store.sweep() == 0
        scene.clock.advance("1m")
        assert await scene.store.sweep() == 1

    @scenario
    async def test_nothing_is_gone_while_a_live_node_has_not_reported_what_it_has(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.store.join(uuid4())
        await scene.define(job(tasks=("new",)))
        scene.clock.advance("1h")
        assert await scene.store.sweep() == 0

    @scenario
    async def test_a_started_run_goes_on_by_task_name_and_keeps_what_is_done(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), retry=Retry(3, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended(SUCCESS, 0))
        await scene.settle(claim, ended(FAILED, 1))
        await _replaced(scene, "zero", "one", "new")
        present = job(tasks=("zero", "one", TaskSpec("two", "new")), retry=Retry(3, "10s"))
        await scene.define(present)
        scene.clock.advance("6m")
        assert await scene.store.sweep() == 1
        assert [(name, state) for name, state, _ in await scene.tasks()] == [
            ("zero", "PENDING"),
            ("one", "SUCCESS"),
            ("two", "PENDING"),
        ]
        (claim,) = await scene.claim_runs(handlers=frozenset({"zero", "one", "new"}), node=OTHER)
        assert claim.starts == starts((0, 1))
        assert (await scene.settle(claim, ended(SUCCESS, 0), node=OTHER)).starts == starts((2, 2))
        assert (await scene.settle(claim, ended(SUCCESS, 2, 2), node=OTHER)).state == "COMPLETED"
        assert await scene.attempts(task=2) == ["FAILED", "SUCCESS"]

    @scenario
    async def test_a_started_run_goes_on_by_position_where_nothing_of_it_succeeded(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",), retry=Retry(3, "10s")))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",), retry=Retry(3, "10s")))
        scene.clock.advance("6m")
        assert await scene.store.sweep() == 1
        (claim,) = await scene.claim_runs(handlers=frozenset({"new"}), node=OTHER)
        assert claim.starts == starts((0, 2))
        assert (await scene.settle(claim, ended(SUCCESS, 0, 2), node=OTHER)).state == "COMPLETED"
        assert [name for name, _, _ in await scene.tasks()] == ["new"]
        assert await scene.attempts() == ["FAILED", "SUCCESS"]

    @scenario
    async def test_a_run_that_waits_for_a_retry_goes_on_after_the_grace_whenever_its_retry_is(
        self, scene: Scene
    ) -> None:
        names = {f"job {overlap}": overlap for overlap in _OVERLAPS}
        retry = Retry(5, "30m")
        await scene.define(*(job(name, tasks=("old",), overlap=each, retry=retry) for name, each in names.items()))
        await scene.later("1m")
        for claim in await scene.claim_runs():
            await scene.settle(claim, ended(FAILED))
        await _replaced(scene, "new")
        await scene.define(*(job(name, tasks=("new",), overlap=each, retry=retry) for name, each in names.items()))
        scene.clock.advance("4m59s")
        assert await scene.store.sweep() == 0
        scene.clock.advance("1s")
        assert await scene.store.sweep() == len(names)
        for name in names:
            run = await scene.run(name)
            assert (run.version, run.state, run.waiting_for, run.not_before) == (2, "PENDING", "retry", at("09:31"))
        scene.clock.set(at("09:31"))
        claims = await scene.claim_runs(handlers=frozenset({"new"}), node=OTHER)
        assert {(claim.definition.version, *claim.starts) for claim in claims} == {(2, *starts((0, 2)))}
        assert len(claims) == len(names)

    @scenario
    async def test_a_retry_that_may_not_be_tried_again_fails_after_the_grace_and_the_next_one_has_its_turn(
        self, scene: Scene
    ) -> None:
        policies: dict[str, Any] = {"delivery": "at_most_once", "retry": Retry(5, "30m"), "overlap": Queue()}
        await scene.define(job(tasks=("old",), **policies))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",), **policies))
        scene.clock.advance("5m")
        await scene.store.sweep()
        first, second = (await scene.runs())[:2]
        assert (first.state, first.reason) == (RunState.FAILED, "handler gone")
        assert (second.state, second.version) == (RunState.PENDING, 2)

    @scenario
    async def test_a_run_in_line_moves_too_so_that_its_turn_is_not_the_next_wait(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old", "same"), overlap=Queue(), retry=Retry(5, "30m")))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await scene.later("1m")
        await _replaced(scene, "new", "same")
        await scene.define(job(tasks=("new", "same"), overlap=Queue(), retry=Retry(5, "30m")))
        scene.clock.advance("5m")
        assert await scene.store.sweep() == 2
        assert [(run.state, run.version) for run in await scene.runs()] == [("PENDING", 2), ("QUEUED", 2)]

    @scenario
    async def test_a_run_that_waits_for_other_jobs_moves_and_then_waits_for_those_of_the_present_version(
        self, scene: Scene
    ) -> None:
        hourly = Cron("0 * * * *")
        await scene.define(job("b", None), job("c", None))
        await scene.define(job("a", hourly, tasks=("old",), depends_on=("b",)))
        await scene.define(job("d", hourly, tasks=("old",), depends_on=("b",)))
        await scene.until("10:00")
        assert [run.waiting_for for run in await scene.runs()] == ["dependencies", "dependencies"]
        await _replaced(scene, "new", "work")
        await scene.define(job("a", hourly, tasks=("new",), depends_on=("c",)), job("d", hourly, tasks=("new",)))
        scene.clock.advance("5m")
        assert await scene.store.sweep() == 3
        waits, free = await scene.run("a"), await scene.run("d")
        assert (waits.version, waits.waiting_for) == (2, "dependencies")
        assert (free.version, free.waiting_for, free.not_before) == (2, None, at("10:05"))

    @scenario
    async def test_a_run_that_waits_in_its_window_moves_before_its_time_comes(self, scene: Scene) -> None:
        later = Cron("0 10 * * *")
        window = Window.before("50m")
        await scene.define(job("a", later, tasks=("old",), window=window))
        await scene.until("09:10")
        before = await scene.run()
        assert before.waiting_for == "window"
        await _replaced(scene, "new")
        update = Update("graceful", until=at("11:00"))
        await scene.define(job("a", later, tasks=("new",), window=window), update=update)
        assert (await scene.run()).version == 1
        scene.clock.advance("5m")
        assert await scene.store.sweep() == 1
        moved = await scene.run()
        assert (moved.version, moved.waiting_for, moved.chosen_time) == (2, "window", before.chosen_time)

    @scenario
    async def test_a_node_that_has_the_handler_and_comes_back_within_the_grace_keeps_the_run(
        self, scene: Scene
    ) -> None:
        await scene.define(job(tasks=("old",), retry=Retry(5, "1h")))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",), retry=Retry(5, "1h")))
        scene.clock.advance("4m")
        back = uuid4()
        await scene.store.join(back, details={"handlers": ["old"]})
        scene.clock.advance("10m")
        assert await scene.store.sweep() == 0
        await scene.store.leave(back)
        scene.clock.advance("4m")
        assert await scene.store.sweep() == 0
        scene.clock.advance("1m")
        assert await scene.store.sweep() == 1

    @scenario
    async def test_after_a_time_without_any_node_the_grace_counts_from_the_first_that_joins(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",), retry=Retry(5, "3h")))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await scene.store.leave(NODE)
        scene.clock.advance("1h")
        await scene.store.join(OTHER, details={"handlers": ["new"]})
        await scene.define(job(tasks=("new",), retry=Retry(5, "3h")))
        scene.clock.advance("4m")
        assert await scene.store.sweep() == 0
        scene.clock.advance("1m")
        assert await scene.store.sweep() == 1

    @scenario
    async def test_a_run_that_cannot_be_moved_fails_and_the_next_one_has_its_turn(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), retry=Retry(3, "10s"), overlap=Queue()))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended(SUCCESS, 0))
        await scene.settle(claim, ended(FAILED, 1))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",), overlap=Queue()))
        scene.clock.advance("6m")
        assert await scene.store.sweep() >= 2
        first, second = (await scene.runs())[:2]
        assert (first.state, first.reason, first.completed_at) == (RunState.FAILED, "handler gone", at("09:08"))
        assert second.state is RunState.PENDING

    @scenario
    async def test_a_run_that_was_tried_and_may_be_tried_once_is_not_moved(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",), delivery="at_most_once", retry=Retry(3, "10s")))
        await scene.later("1m")
        await scene.settle(await scene.claim(), ended(FAILED))
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",), delivery="at_most_once", retry=Retry(3, "10s")))
        scene.clock.advance("6m")
        assert await scene.store.sweep() == 1
        found = (await scene.runs())[0]
        assert (found.state, found.reason) == (RunState.FAILED, "handler gone")

    @scenario
    async def test_runs_that_are_skipped_meanwhile_say_which_handler_is_waited_for(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)), job("b", tasks=("new",)))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.later("1m")
        assert [run.reason for run in await scene.runs("a")] == [None, "waiting for handler old"]
        assert [run.reason for run in await scene.runs("b")] == [None, "overlap"]
        (asked,) = await scene.store.admit([Admission("a", Origin.TRIGGER, "local", key="now")])
        assert (asked.state, (await scene.store.history(asked.run_id)).record.reason) == (
            "SKIPPED",
            "waiting for handler old",
        )

    @scenario
    async def test_a_handler_that_a_node_has_learned_since_it_joined_is_not_gone(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.later("1m")
        await _replaced(scene, "new")
        await scene.define(job(tasks=("new",)))
        await scene.store.describe(OTHER, {"handlers": ["new", "old"]})
        scene.clock.advance("1h")
        assert await scene.store.sweep() == 0
        await scene.store.describe(NODE, {"handlers": ["other"]})
        assert [node.details.get("handlers") for node in await scene.store.nodes()] == [["new", "old"]]

    @scenario
    async def test_a_node_without_any_handler_still_tells_that_one_is_gone(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.later("1m")
        await _replaced(scene)
        await scene.define(job(tasks=(TaskSpec("select", "SELECT 1", kind="SQL"),)))
        scene.clock.advance("6m")
        assert await scene.store.sweep() == 1
        assert (await scene.run()).version == 2

    @scenario
    async def test_without_a_live_node_nothing_is_gone_and_a_skipped_run_overlaps(self, scene: Scene) -> None:
        await scene.define(job(tasks=("old",)))
        await scene.later("1m")
        await scene.store.leave(NODE)
        await scene.define(job(tasks=("new",)))
        await scene.later("1m")
        assert [run.reason for run in await scene.runs()] == [None, "overlap"]
        scene.clock.advance("1h")
        assert await scene.store.sweep() == 0
