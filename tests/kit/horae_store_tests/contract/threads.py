"""The store contract, threads: a thread that outlives its attempt counts for its job until it ends or its node dies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from horae.core.job.policies import Queue, Retry
from horae.core.run.lifecycle import AttemptState, RunState
from horae.store.protocols.store import AttemptStart, Claim, Origin, SettlementResult, ThreadKey, ThreadRecord
from horae_store_tests.contract.builders import (
    CANCELLED,
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
)

TIMEOUT = AttemptState.TIMEOUT


def key(claim: Claim, position: int = 0, number: int = 1) -> ThreadKey:
    return ThreadKey(claim.run_no, position, number)


async def begun(scene: Scene, **policies: Any) -> Claim:
    """A run of a job with these policies, claimed at 09:01."""
    await scene.define(job(**policies))
    (claim,) = (await scene.later("1m", slots=1)).claims
    return claim


async def outlived(scene: Scene, claim: Claim, state: AttemptState = TIMEOUT, number: int = 1) -> SettlementResult:
    """Its attempt ends, its thread does not."""
    return await scene.settle(claim, ended(state, 0, number), threads=(AttemptStart(0, number),))


class ThreadContract(Contract):
    """What a marker does to the job of its run, and when it goes."""

    @scenario
    async def test_skip_holds_while_a_thread_works_and_says_where(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="skip")
        assert (await outlived(scene, claim)).state == RunState.FAILED
        await scene.later("1m", slots=1)
        reason = f"thread of run {claim.run_id} still working on node {NODE}"
        assert await scene.story() == ["09:01 FAILED", f"09:02 SKIPPED {reason}"]
        assert (await scene.trigger()).state == RunState.SKIPPED
        assert await scene.store.end_threads(NODE, [key(claim)]) == 1
        assert [claim.scheduled_time for claim in (await scene.later("1m", slots=1)).claims] == [at("09:03")]

    @scenario
    async def test_a_thread_is_told_of_by_its_names(self, scene: Scene) -> None:
        await scene.store.join(OTHER, name="second")
        await scene.define(job(schedule=HOURLY))
        await scene.until("10:00")
        claim = await scene.claim(OTHER)
        scene.clock.advance("5m")
        await scene.settle(claim, ended(TIMEOUT), node=OTHER, threads=(AttemptStart(0, 1),))
        told = ThreadRecord(claim.run_id, "a", "work", 1, str(OTHER), "second", at("10:05"))
        assert await scene.store.threads() == (told,)
        assert await scene.store.threads(limit=0) == ()
        await scene.until("11:00")
        assert (await scene.runs())[1].reason == f"thread of run {claim.run_id} still working on node second"

    @scenario
    async def test_a_queue_lines_up_behind_a_thread_and_goes_on_when_it_ends(self, scene: Scene) -> None:
        claim = await begun(scene, overlap=Queue(1))
        await scene.later("1m", slots=1)
        await outlived(scene, claim)
        await scene.later("1m", slots=1)
        assert await scene.story() == ["09:01 FAILED", "09:02 QUEUED", "09:03 SKIPPED queue full"]
        assert await scene.store.sweep() == 0
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_coalesce_keeps_the_newest_behind_a_thread(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="coalesce")
        await outlived(scene, claim)
        await scene.later("1m", slots=1)
        await scene.later("1m", slots=1)
        assert await scene.story() == ["09:01 FAILED", "09:02 SKIPPED coalesced", "09:03 QUEUED"]
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.claim()).scheduled_time == at("09:03")

    @scenario
    async def test_replace_and_allow_do_not_mind_a_thread(self, scene: Scene) -> None:
        await scene.define(job("r", overlap="replace"), job("w", overlap="allow"))
        claims = (await scene.later("1m", slots=2)).claims
        await scene.later("30s")
        for claim in claims:
            await outlived(scene, claim)
        assert len((await scene.later("30s", slots=2)).claims) == 2

    @scenario
    async def test_replace_hands_over_to_the_run_that_waited_for_it(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="replace")
        await scene.later("1m")
        await outlived(scene, claim, CANCELLED)
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_a_replay_lines_up_behind_a_thread(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="skip")
        await outlived(scene, claim)
        replay = await scene.admit("a", Origin.REPLAY, replay_of=claim.run_id, reason="again")
        assert replay.state == RunState.QUEUED
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.claim()).origin == "REPLAY"

    @scenario
    async def test_a_retry_waits_for_the_thread_of_the_attempt_before_it(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="skip", retry=Retry(1, "30s"))
        assert (await outlived(scene, claim)).state == RunState.PENDING
        assert await scene.story() == ["09:01 PENDING (previous_run)"]
        scene.clock.advance("40s")
        assert await scene.claim_runs() == ()
        assert await scene.store.sweep() == 0
        await scene.store.end_threads(NODE, [key(claim)])
        run = await scene.run()
        assert (run.waiting_for, run.not_before) == ("retry", at("09:01:40"))
        assert (await scene.claim()).starts == (AttemptStart(0, 2),)

    @scenario
    async def test_a_thread_that_ends_in_time_costs_a_retry_nothing(self, scene: Scene) -> None:
        claim = await begun(scene, retry=Retry(1, "30s"))
        await outlived(scene, claim)
        scene.clock.advance("10s")
        await scene.store.end_threads(NODE, [key(claim)])
        run = await scene.run()
        assert (run.waiting_for, run.not_before) == ("retry", at("09:01:30"))

    @scenario
    async def test_a_run_that_is_put_back_waits_for_its_thread(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="queue")
        await scene.settle(claim, release=True, threads=(AttemptStart(0, 1),))
        assert await scene.story() == ["09:01 PENDING (previous_run)"]
        assert await scene.claim_runs() == ()
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.run()).waiting_for is None
        assert (await scene.claim()).starts == (AttemptStart(0, 2),)

    @scenario
    async def test_beside_a_task_that_runs_a_retry_waits_for_its_thread(self, scene: Scene) -> None:
        claim = await begun(scene, tasks=("one", "two"), mode="parallel", retry=Retry(1, "10s"))
        answer = await scene.settle(claim, ended(TIMEOUT, 0), threads=(AttemptStart(0, 1),))
        assert (answer.state, answer.starts, answer.wake_at) == (RunState.RUNNING, (), None)
        scene.clock.advance("20s")
        assert (await scene.settle(claim, threads=(AttemptStart(0, 1),))).starts == ()
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.settle(claim)).starts == (AttemptStart(0, 2),)

    @scenario
    async def test_a_task_that_has_ended_for_good_keeps_no_other_from_its_retry(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), mode="parallel", failure="continue", retry=Retry(1, "10s")))
        (claim,) = (await scene.later("1m", slots=1)).claims
        await scene.settle(claim, ended(TIMEOUT, 0))
        scene.clock.advance("10s")
        assert (await scene.settle(claim)).starts == (AttemptStart(0, 2),)
        await scene.settle(claim, ended(TIMEOUT, 0, 2), ended(TIMEOUT, 1), threads=(AttemptStart(0, 2),))
        assert await scene.story() == ["09:01 PENDING (retry)"]
        scene.clock.advance("10s")
        assert (await scene.claim()).starts == (AttemptStart(1, 2),)

    @scenario
    async def test_a_cancelled_run_that_waits_for_its_thread_leaves_it_behind(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="skip", retry=Retry(1, "30s"))
        await outlived(scene, claim)
        assert await scene.store.cancel((claim.run_id,)) == (RunState.CANCELLED,)
        await scene.later("1m", slots=1)
        assert "still working" in ((await scene.runs())[1].reason or "")

    @scenario
    async def test_a_run_that_is_reaped_is_taken_to_work_until_its_owner_denies_it(self, scene: Scene) -> None:
        claim = await begun(scene, overlap="skip")
        await scene.store.cancel((claim.run_id,))
        scene.clock.advance("31s")
        assert await scene.store.reap() == 1
        assert [thread.run_id for thread in await scene.store.threads()] == [claim.run_id]
        await scene.store.heartbeat(NODE, {}, [key(claim)])
        await scene.later("29s", slots=1)
        assert "still working" in ((await scene.runs())[1].reason or "")
        await scene.store.heartbeat(NODE, {})
        assert len(await scene.store.threads()) == 1
        await scene.store.heartbeat(NODE, {}, ())
        assert await scene.store.threads() == ()
        assert len((await scene.later("1m", slots=1)).claims) == 1

    @scenario
    async def test_a_dead_node_has_no_threads(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(overlap="queue", retry=Retry(1, "0s")))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.settle(claim, ended(TIMEOUT), node=OTHER, threads=(AttemptStart(0, 1),))
        assert await scene.claim_runs() == ()
        assert await scene.store.take_over(NODE, OTHER, 0) == 0
        assert await scene.store.threads() == ()
        assert (await scene.claim()).starts == (AttemptStart(0, 2),)

    @scenario
    async def test_a_node_that_leaves_has_no_threads(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.later("1m")
        await scene.settle(claim, ended(TIMEOUT), node=OTHER, threads=(AttemptStart(0, 1),))
        await scene.store.leave(OTHER)
        assert await scene.store.threads() == ()
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_threads_that_work_on_when_their_node_leaves_count_until_it_is_taken_over(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.settle(claim, ended(TIMEOUT), node=OTHER, threads=(AttemptStart(0, 1),))
        await scene.later("1m")
        assert await scene.store.leave(OTHER, working=True) == 0
        assert [thread.run_id for thread in await scene.store.threads()] == [claim.run_id]
        assert await scene.claim_runs() == ()
        assert await scene.store.take_over(NODE, OTHER, 0) == 0
        assert await scene.store.threads() == ()
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_a_node_that_was_taken_for_dead_tells_of_what_works_on_when_it_joins_again(
        self, scene: Scene
    ) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(overlap="skip"))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        assert await scene.store.take_over(NODE, OTHER, 0) == 1
        await scene.store.join(THIRD, working=[key(claim), ThreadKey(claim.run_no + 7, 0, 1)])
        assert [(thread.run_id, thread.node) for thread in await scene.store.threads()] == [(claim.run_id, str(THIRD))]
        assert await scene.story() == ["09:01 PENDING (previous_run)"]
        assert await scene.claim_runs() == ()
        await scene.store.heartbeat(THIRD, {}, [key(claim)])
        assert await scene.claim_runs() == ()
        await scene.store.heartbeat(THIRD, {}, [])
        assert (await scene.claim()).starts == (AttemptStart(0, 2),)

    @scenario
    async def test_what_works_on_counts_beside_a_run_that_was_started_again_meanwhile(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job(overlap="skip"))
        await scene.later("1m")
        claim = await scene.claim(OTHER)
        await scene.store.take_over(NODE, OTHER, 0)
        again = await scene.claim()
        await scene.store.join(THIRD, working=[key(claim)])
        assert (await scene.settle(again, ended(SUCCESS, 0, 2))).state == RunState.COMPLETED
        await scene.later("1m", slots=1)
        reason = f"thread of run {claim.run_id} still working on node {THIRD}"
        assert await scene.story() == ["09:01 COMPLETED", f"09:02 SKIPPED {reason}"]

    @scenario
    async def test_only_the_threads_own_node_ends_it(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        claim = await begun(scene)
        await outlived(scene, claim)
        assert await scene.store.end_threads(OTHER, [key(claim)]) == 0
        await scene.store.heartbeat(OTHER, {}, ())
        assert len(await scene.store.threads()) == 1
        assert await scene.store.end_threads(NODE, [key(claim, number=2)]) == 0
        assert await scene.store.end_threads(NODE, [key(claim)]) == 1
        assert await scene.store.end_threads(NODE, [key(claim)]) == 0

    @scenario
    async def test_a_settlement_that_is_fenced_marks_nothing(self, scene: Scene) -> None:
        claim = await begun(scene)
        await scene.settle(claim._replace(fence=7), ended(TIMEOUT), threads=(AttemptStart(0, 1),))
        assert await scene.store.threads() == ()

    @scenario
    async def test_retention_forgets_a_thread_with_its_run(self, scene: Scene) -> None:
        claim = await begun(scene)
        await outlived(scene, claim)
        scene.clock.advance("10d")
        assert await scene.store.retain(timedelta(days=1)) == 1
        assert await scene.store.threads() == ()

    @scenario
    async def test_a_success_beside_a_thread_ends_the_run_and_leaves_the_thread(self, scene: Scene) -> None:
        claim = await begun(scene, tasks=("one", "two"), mode="parallel", failure="continue", overlap="skip")
        await scene.settle(claim, ended(TIMEOUT, 0), threads=(AttemptStart(0, 1),))
        answer = await scene.settle(claim, ended(SUCCESS, 1), threads=(AttemptStart(0, 1),))
        assert answer.state == RunState.COMPLETED_WITH_ERRORS
        assert [thread.task_name for thread in await scene.store.threads()] == ["one"]

    @scenario
    async def test_a_thread_takes_a_place_of_its_job_s_limit(self, scene: Scene) -> None:
        await scene.define(job(overlap="allow", max_concurrent=1))
        await scene.later("1m")
        claim = await scene.claim()
        await outlived(scene, claim)
        await scene.later("1m")
        assert await scene.claim_runs() == ()
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_a_thread_keeps_its_run_s_place_in_a_pool(self, scene: Scene) -> None:
        await scene.store.set_pool("one", 1)
        await scene.define(job(overlap="allow", pool="one"), job("b", schedule=None, pool="one"))
        await scene.later("1m")
        claim = await scene.claim()
        await outlived(scene, claim)
        assert [each.pool for each in await scene.store.threads()] == ["one"]
        waiting = await scene.trigger("b")
        assert await scene.claim_runs() == ()
        await scene.store.end_threads(NODE, [key(claim)])
        assert (await scene.claim()).run_id == waiting.run_id

    @scenario
    async def test_a_change_reaches_a_run_that_waits_for_its_thread_before_its_retry(self, scene: Scene) -> None:
        claim = await begun(scene, retry=Retry(1, "10s"))
        await outlived(scene, claim)
        await scene.define(job(retry=Retry(1, "10s"), description="changed"))
        await scene.store.end_threads(NODE, [key(claim)])
        scene.clock.advance("10s")
        (again,) = await scene.claim_runs()
        assert (again.run_id, again.definition.version) == (claim.run_id, 2)

    @scenario
    async def test_a_node_of_a_release_that_tells_of_no_threads_is_not_suspected(self, scene: Scene) -> None:
        await scene.store.join(OTHER, details={"version": "0.1", "handlers": ["work"]})
        await scene.define(job(execution_timeout="10s", cancel_grace="5s"))
        await scene.later("1m")
        await scene.claim(OTHER)
        scene.clock.advance("11s")
        await scene.store.reap()
        scene.clock.advance("6s")
        assert await scene.store.reap() == 1
        assert await scene.store.threads() == ()
