"""The store contract, handlers that are gone: a run of an earlier version does not wait for them for ever."""

from __future__ import annotations

from uuid import uuid4

from horae.core.job import TaskSpec
from horae.core.lifecycle import RunState
from horae.core.policy import Queue, Retry
from horae.store.records import Admission, Origin
from horae.testing.contract_builders import (
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
        claims = await scene.dispatch(handlers=frozenset({"new"}), node=OTHER)
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
        (claim,) = await scene.dispatch(handlers=frozenset({"zero", "one", "new"}), node=OTHER)
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
        (claim,) = await scene.dispatch(handlers=frozenset({"new"}), node=OTHER)
        assert claim.starts == starts((0, 2))
        assert (await scene.settle(claim, ended(SUCCESS, 0, 2), node=OTHER)).state == "COMPLETED"
        assert [name for name, _, _ in await scene.tasks()] == ["new"]
        assert await scene.attempts() == ["FAILED", "SUCCESS"]

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
