"""The store contract, nodes: joining, heartbeats that reconcile, leaving, and taking over from the dead."""

from __future__ import annotations

from horae.core.job.policies import Retry
from horae.core.run.lifecycle import RunState
from horae.errors import NodeNameTaken
from horae_store_tests.contract.builders import (
    BEGINNING,
    FAILED,
    HOURLY,
    NODE,
    OTHER,
    THIRD,
    Contract,
    Scene,
    at,
    ended,
    job,
    raises,
    scenario,
    starts,
)


class NodeContract(Contract):
    """Incarnations, their names and counters, and the runs they own."""

    @scenario
    async def test_a_node_that_joined_is_seen_with_its_runs(self, scene: Scene) -> None:
        await scene.store.join(OTHER, name="second", details={"host": "b"})
        await scene.define(job())
        await scene.later("1m")
        await scene.claim(OTHER)
        seen = {record.node: record for record in await scene.store.nodes()}
        assert seen.keys() == {str(NODE), str(OTHER)}
        second = seen[str(OTHER)]
        assert (second.name, second.state, second.counter, second.running) == ("second", "ALIVE", 0, 1)
        assert (second.started_at, second.heartbeat_at, second.lock_free) == (BEGINNING, BEGINNING, False)
        assert (seen[str(NODE)].name, seen[str(NODE)].running) == (None, 0)

    @scenario
    async def test_a_name_belongs_to_one_live_node_until_it_leaves(self, scene: Scene) -> None:
        await scene.store.join(OTHER, name="worker")
        with raises(NodeNameTaken):
            await scene.store.join(THIRD, name="worker")
        assert len(await scene.store.nodes()) == 2
        await scene.store.leave(OTHER)
        await scene.store.join(THIRD, name="worker")
        assert {record.node for record in await scene.store.nodes()} == {str(NODE), str(THIRD)}

    @scenario
    async def test_a_name_is_free_once_its_node_is_declared_dead(self, scene: Scene) -> None:
        await scene.store.join(OTHER, name="worker")
        await scene.store.take_over(NODE, OTHER, 0)
        await scene.store.join(THIRD, name="worker")
        states = {record.node: record.state for record in await scene.store.nodes()}
        assert states == {str(NODE): "ALIVE", str(OTHER): "DEAD", str(THIRD): "ALIVE"}

    @scenario
    async def test_a_node_whose_store_was_closed_has_a_free_lock_and_a_free_name(self, scene: Scene) -> None:
        peer = await scene.second()
        await peer.join(OTHER, name="worker")
        with raises(NodeNameTaken):
            await scene.store.join(THIRD, name="worker")
        await peer.close()
        await scene.store.join(THIRD, name="worker")
        assert {record.node: record.lock_free for record in await scene.store.nodes()} == {
            str(NODE): False,
            str(OTHER): True,
            str(THIRD): False,
        }

    @scenario
    async def test_every_heartbeat_raises_the_counter(self, scene: Scene) -> None:
        scene.clock.advance("3s")
        pulse = await scene.store.heartbeat(NODE, {})
        assert (pulse.now, pulse.expelled, pulse.released, pulse.lost) == (at("09:00:03"), False, (), ())
        await scene.store.heartbeat(NODE, {})
        (record,) = await scene.store.nodes()
        assert (record.counter, record.heartbeat_at) == (2, at("09:00:03"))

    @scenario
    async def test_a_heartbeat_releases_runs_the_node_does_not_know(self, scene: Scene) -> None:
        await scene.define(job("a", delivery="at_most_once"), job("b"))
        await scene.later("1m")
        forgotten, known = await scene.claim_runs()
        scene.clock.advance("2s")
        pulse = await scene.store.heartbeat(NODE, {known.run_id: known.fence})
        assert (pulse.released, pulse.lost, dict(pulse.cancels)) == ((forgotten.run_id,), (), {})
        run = await scene.run("a")
        assert (run.state, run.not_before, run.owner) == (RunState.PENDING, at("09:01:02"), None)
        assert (await scene.run("b")).state == RunState.RUNNING
        assert await scene.attempts("a") == ["CANCELLED"]
        assert (await scene.claim()).starts == starts((0, 2))

    @scenario
    async def test_a_heartbeat_names_the_runs_the_node_has_lost(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job("a"), job("b"))
        await scene.later("1m")
        first, second = await scene.claim_runs()
        await scene.finish(second)
        pulse = await scene.store.heartbeat(NODE, {first.run_id: first.fence, second.run_id: second.fence})
        assert (pulse.released, pulse.lost) == ((), (second.run_id,))
        pulse = await scene.store.heartbeat(OTHER, {first.run_id: first.fence})
        assert pulse.lost == (first.run_id,)

    @scenario
    async def test_a_run_known_under_another_fence_is_lost_and_released(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        pulse = await scene.store.heartbeat(NODE, {claim.run_id: claim.fence + 1})
        assert (pulse.released, pulse.lost) == ((claim.run_id,), (claim.run_id,))

    @scenario
    async def test_a_heartbeat_tells_which_runs_are_to_stop_and_why(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b"))
        await scene.later("1m")
        claims = await scene.claim_runs()
        await scene.store.cancel((claims[0].run_id,), reason="enough")
        pulse = await scene.store.heartbeat(NODE, {claim.run_id: claim.fence for claim in claims})
        assert dict(pulse.cancels) == {claims[0].run_id: "enough"}

    @scenario
    async def test_a_node_that_is_unknown_dead_or_gone_is_expelled(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.store.join(THIRD)
        assert (await scene.store.heartbeat(OTHER, {})).expelled is False
        await scene.store.take_over(NODE, OTHER, 1)
        await scene.store.leave(THIRD)
        unknown = NODE.__class__(int=NODE.int + 99)
        assert [(await scene.store.heartbeat(node, {})).expelled for node in (OTHER, THIRD, unknown)] == [True] * 3

    @scenario
    async def test_a_node_that_leaves_gives_its_runs_back(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job("a"), job("b", delivery="at_most_once"))
        await scene.later("1m")
        assert len(await scene.claim_runs(node=OTHER)) == 2
        assert await scene.store.leave(OTHER) == 2
        assert await scene.story("a") == ["09:01 PENDING"]
        assert await scene.story("b") == ["09:01 CANCELLED released"]
        assert [record.node for record in await scene.store.nodes()] == [str(NODE)]
        assert (await scene.claim()).fence == 2

    @scenario
    async def test_runs_of_a_dead_node_go_back_to_pending_with_a_lost_attempt(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.settle(claim, ended(), node=OTHER)
        scene.clock.advance("20s")
        assert await scene.store.take_over(NODE, OTHER, 0) == 1
        run = await scene.run()
        assert (run.state, run.waiting_for, run.not_before, run.owner) == ("PENDING", None, at("09:01:20"), None)
        assert await scene.attempts(task=1) == ["LOST"]
        again = await scene.claim()
        assert (again.starts, again.fence) == (starts((1, 2)), 2)
        assert (await scene.settle(again, ended(number=2, position=1))).state == "COMPLETED"

    @scenario
    async def test_a_node_that_turned_out_to_live_is_left_alone(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.store.heartbeat(OTHER, {claim.run_id: claim.fence})
        before = await scene.everything()
        assert await scene.store.take_over(NODE, OTHER, 0) is None
        assert await scene.store.take_over(NODE, THIRD, 0) is None
        assert await scene.everything() == before
        assert await scene.store.take_over(NODE, OTHER, 1) == 1
        assert await scene.store.take_over(NODE, OTHER, 1) is None

    @scenario
    async def test_a_lost_run_that_may_be_delivered_once_only_is_failed_stale(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(delivery="at_most_once", overlap="queue"))
        await scene.later("1m")
        await scene.claim(OTHER)
        await scene.later("1m")
        assert await scene.store.take_over(NODE, OTHER, 0) == 1
        assert await scene.story() == ["09:01 FAILED_STALE lost, and delivered at most once", "09:02 PENDING"]

    @scenario
    async def test_losses_have_a_budget_of_their_own(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, max_lost=2, retry=Retry(1, "10s")))
        await scene.until("10:00")
        for node in (OTHER, THIRD):
            await scene.store.join(node)
            await scene.claim(node)
            await scene.store.take_over(NODE, node, 0)
        assert await scene.story() == ["10:00 FAILED lost 2 times"]
        assert await scene.attempts() == ["LOST", "LOST"]

    @scenario
    async def test_a_loss_uses_up_no_retry(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(retry=Retry(1, "10s")))
        await scene.later("1m")
        await scene.claim(OTHER)
        await scene.store.take_over(NODE, OTHER, 0)
        assert (await scene.finish(await scene.claim(), FAILED)).state == "PENDING"

    @scenario
    async def test_a_lost_run_that_was_asked_to_stop_ends(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.store.cancel((claim.run_id,), reason="enough")
        assert await scene.store.take_over(NODE, OTHER, 0) == 1
        assert await scene.story() == ["09:01 CANCELLED enough"]

    @scenario
    async def test_a_lost_run_that_also_waits_for_a_retry_waits_on(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(tasks=("one", "two"), mode="parallel", retry=Retry(1, "5m")))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.settle(claim, ended(FAILED, 0), node=OTHER)
        await scene.store.take_over(NODE, OTHER, 0)
        again = await scene.claim()
        assert again.starts == starts((1, 2))
