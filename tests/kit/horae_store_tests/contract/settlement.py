"""The store contract, settling: what becomes of a run when its attempts end, and whose word counts."""

from __future__ import annotations

from horae.core.job import ids
from horae.core.job.definition import TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Once
from horae.store.protocols.store import Settlement, SettlementVerdict
from horae_store_tests.contract.builders import (
    CANCELLED,
    FAILED,
    HOURLY,
    NODE,
    OTHER,
    SUCCESS,
    TIMEOUT,
    Contract,
    Scene,
    at,
    ended,
    job,
    scenario,
    starts,
    unknown_run,
)

THREE = ("one", "two", "three")


class SettlingContract(Contract):
    """Ends, retries, failure strategies, release, fences, and repeated or late words."""

    @scenario
    async def test_a_run_completes_with_its_last_task_and_keeps_the_results(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        scene.clock.advance("7s")
        settled = await scene.settle(claim, ended(result='{"rows": 3}'))
        assert (settled.run_id, settled.verdict, settled.state) == (
            claim.run_id,
            SettlementVerdict.SETTLED,
            "COMPLETED",
        )
        assert (settled.starts, settled.cancels, settled.park_until) == ((), (), None)
        run = await scene.run()
        assert (run.state, run.completed_at, run.owner, run.fence) == ("COMPLETED", at("09:01:07"), str(NODE), 1)
        assert (await scene.history()).results == {"work": {"rows": 3}}

    @scenario
    async def test_the_history_names_every_attempt_by_its_derived_id(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(1, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        scene.clock.advance("2s")
        await scene.settle(claim, ended(FAILED, error="boom", error_code=7))
        (task,) = (await scene.history()).tasks
        (attempt,) = task.attempts
        spec = job()
        assert task.task_run_id == ids.task_run_id(claim.run_id, ids.task_uuid(spec.uuid, "work"))
        assert attempt.attempt_id == ids.attempt_id(task.task_run_id, 1)
        assert (attempt.number, attempt.state, attempt.error) == (1, "FAILED", "boom")
        assert (attempt.started_at, attempt.ended_at) == (at("09:01"), at("09:01:02"))
        assert (task.state, task.reason) == ("PENDING", "retry 1")

    @scenario
    async def test_a_failure_without_retries_fails_the_run(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        assert (await scene.run_once(FAILED)).state == "FAILED"
        assert await scene.tasks() == [("work", "FAILED", None)]

    @scenario
    async def test_a_timeout_of_an_attempt_is_a_failure_of_its_own_name(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        assert (await scene.run_once(TIMEOUT)).state == "FAILED"
        assert await scene.tasks() == [("work", "TIMEOUT", None)]
        assert await scene.attempts() == ["TIMEOUT"]

    @scenario
    async def test_a_failure_with_retries_left_parks_the_run(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(2, "30s")))
        await scene.later("1m")
        settled = await scene.run_once(FAILED)
        assert (settled.state, settled.park_until) == ("PENDING", at("09:01:30"))
        run = await scene.run()
        assert (run.state, run.waiting_for, run.not_before, run.owner) == ("PENDING", "retry", at("09:01:30"), None)
        assert (run.fence, run.completed_at) == (1, None)

    @scenario
    async def test_retries_end_with_their_budget(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, retry=Retry(2, "30s")))
        await scene.until("10:00")
        for _ in range(3):
            claim = await scene.claim()
            number = claim.starts[0].number
            await scene.settle(claim, ended(FAILED, *claim.starts[0], error=f"KeyError: {number}\nat home"))
            scene.clock.advance("30s")
        run = await scene.run()
        assert (run.state, run.reason) == ("FAILED", "KeyError: 3 (after 3 attempts)")
        assert (run.retry_count, run.fence) == (2, 3)
        assert (await scene.history()).tasks[0].reason == run.reason
        assert await scene.attempts() == ["FAILED"] * 3

    @scenario
    async def test_the_reason_of_a_run_that_failed_is_its_error(self, scene: Scene) -> None:
        await scene.define(job(tasks=THREE, failure="continue"), job("b"), job("c", retry=Retry(1, "1s")))
        await scene.later("1m")
        first, second, third = sorted(await scene.claim_runs(), key=lambda claim: claim.job_name)
        await scene.settle(first, ended(FAILED, 0, error="KeyError: 1"))
        await scene.settle(first, ended(FAILED, 1, error="KeyError: 2"))
        assert (await scene.settle(first, ended(position=2))).reason == "KeyError: 1"
        settled = await scene.settle(second, ended(FAILED, error="ValueError: no rows"))
        assert (settled.state, settled.reason) == ("FAILED", "ValueError: no rows")
        assert (await scene.run("b")).reason == "ValueError: no rows"
        assert (await scene.settle(third, ended(FAILED, error="not the end"))).reason is None

    @scenario
    async def test_a_traceback_is_kept_with_its_attempt(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, retry=Retry(2, "30s")))
        await scene.until("10:00")
        for trace in ("first\n", None, "third\n"):
            claim = await scene.claim()
            await scene.settle(claim, ended(FAILED, *claim.starts[0], error="boom", traceback=trace))
            scene.clock.advance("30s")
        (task,) = (await scene.history()).tasks
        assert [each.traceback for each in task.attempts] == ["first\n", None, "third\n"]

    @scenario
    async def test_sequential_tasks_follow_each_other_in_one_claim(self, scene: Scene) -> None:
        await scene.define(job(tasks=THREE))
        await scene.later("1m")
        claim = await scene.claim()
        for position in (0, 1):
            settled = await scene.settle(claim, ended(position=position))
            assert (settled.state, settled.starts) == ("RUNNING", starts((position + 1, 1)))
        assert (await scene.settle(claim, ended(position=2))).state == "COMPLETED"

    @scenario
    async def test_fail_fast_skips_the_tasks_that_have_not_started(self, scene: Scene) -> None:
        await scene.define(job(tasks=THREE))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended())
        assert (await scene.settle(claim, ended(FAILED, 1))).state == "FAILED"
        assert await scene.tasks() == [("one", "SUCCESS", None), ("two", "FAILED", None), ("three", "SKIPPED", "two")]

    @scenario
    async def test_fail_fast_stops_the_tasks_that_run_beside(self, scene: Scene) -> None:
        await scene.define(job(tasks=THREE, mode="parallel"))
        await scene.later("1m")
        claim = await scene.claim()
        settled = await scene.settle(claim, ended(FAILED, 1))
        assert (settled.state, settled.cancels) == ("RUNNING", (0, 2))
        assert (await scene.settle(claim, ended(CANCELLED, 0), ended(SUCCESS, 2))).state == "FAILED"
        assert [state for _, state, _ in await scene.tasks()] == ["CANCELLED", "FAILED", "SUCCESS"]

    @scenario
    async def test_continue_goes_on_and_completes_with_errors(self, scene: Scene) -> None:
        await scene.define(job(tasks=THREE, failure="continue"))
        await scene.later("1m")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(FAILED, 0))).starts == starts((1, 1))
        await scene.settle(claim, ended(SUCCESS, 1))
        assert (await scene.settle(claim, ended(SUCCESS, 2))).state == "COMPLETED_WITH_ERRORS"

    @scenario
    async def test_a_task_s_own_fail_fast_stops_all_but_those_that_themselves_say_continue(self, scene: Scene) -> None:
        strict = TaskSpec("one", "one", settings={"failure": "fail_fast"})
        spared = TaskSpec("three", "three", settings={"failure": "continue"})
        await scene.define(job(tasks=(strict, "two", spared), failure="continue"))
        await scene.later("1m")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(FAILED, 0))).starts == starts((2, 1))
        assert (await scene.settle(claim, ended(SUCCESS, 2))).state == "FAILED"
        assert [state for _, state, _ in await scene.tasks()] == ["FAILED", "SKIPPED", "SUCCESS"]

    @scenario
    async def test_a_task_may_have_a_strategy_and_retries_of_its_own(self, scene: Scene) -> None:
        loose = TaskSpec("one", "one", settings={"failure": "continue", "retry": Retry(1, "10s")})
        await scene.define(job(tasks=(loose, "two")))
        await scene.later("1m")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(FAILED))).park_until == at("09:01:10")
        scene.clock.advance("10s")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(FAILED, 0, 2))).starts == starts((1, 1))
        assert (await scene.settle(claim, ended(FAILED, 1))).state == "FAILED"

    @scenario
    async def test_a_retry_waits_beside_tasks_that_run(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), mode="parallel", retry=Retry(1, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        settled = await scene.settle(claim, ended(FAILED, 0))
        assert (settled.state, settled.starts, settled.park_until) == ("RUNNING", (), None)
        assert settled.wake_at == at("09:01:10")
        scene.clock.advance("20s")
        settled = await scene.settle(claim, ended(SUCCESS, 1))
        assert (settled.starts, settled.wake_at) == (starts((0, 2)), None)
        assert (await scene.run()).retry_count == 1

    @scenario
    async def test_a_word_without_ends_starts_the_retry_whose_time_has_come(self, scene: Scene) -> None:
        slow = TaskSpec("two", "two", settings={"retry": Retry(1, "30s")})
        await scene.define(job(tasks=("one", slow, "three"), mode="parallel", retry=Retry(1, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        settled = await scene.settle(claim, ended(FAILED, 0), ended(FAILED, 1))
        assert settled.wake_at == at("09:01:10")
        scene.clock.advance("9s")
        early = await scene.settle(claim)
        assert (early.verdict, early.state, early.starts, early.wake_at) == ("SETTLED", "RUNNING", (), at("09:01:10"))
        scene.clock.advance("1s")
        due = await scene.settle(claim)
        assert (due.state, due.starts, due.wake_at) == ("RUNNING", starts((0, 2)), at("09:01:30"))
        assert await scene.attempts() == ["FAILED", "RUNNING"]
        scene.clock.advance("20s")
        due = await scene.settle(claim)
        assert (due.starts, due.wake_at) == (starts((1, 2)), None)
        done = await scene.settle(claim, ended(SUCCESS, 0, 2), ended(SUCCESS, 1, 2), ended(SUCCESS, 2))
        assert (done.state, done.wake_at) == ("COMPLETED", None)
        assert (await scene.run()).retry_count == 2

    @scenario
    async def test_while_a_task_that_holds_its_siblings_back_retries_only_retries_are_waited_for(
        self, scene: Scene
    ) -> None:
        settings = {"mode": "parallel", "failure": "retry_on_failure", "retry": Retry(1, "10s")}
        await scene.define(job(tasks=("one", "two"), settings=settings))
        await scene.later("1m")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(FAILED, 0))).wake_at == at("09:01:10")
        scene.clock.advance("10s")
        due = await scene.settle(claim)
        assert (due.starts, due.wake_at) == (starts((0, 2)), None)
        # Its last try fails: the other is stopped, and nothing is waited for any more.
        settled = await scene.settle(claim, ended(FAILED, 0, 2))
        assert (settled.state, settled.cancels, settled.wake_at) == ("RUNNING", (1,), None)

    @scenario
    async def test_a_run_that_waits_as_a_whole_is_parked_and_wakes_nobody(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two"), retry=Retry(1, "10s")))
        await scene.later("1m")
        settled = await scene.settle(await scene.claim(), ended(FAILED))
        assert (settled.state, settled.park_until, settled.wake_at) == ("PENDING", at("09:01:10"), None)

    @scenario
    async def test_a_claim_says_when_a_retry_beside_its_attempts_is_due(self, scene: Scene) -> None:
        slow = TaskSpec("two", "two", settings={"retry": Retry(1, "30s")})
        await scene.define(job(tasks=("one", slow), mode="parallel", retry=Retry(1, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        assert claim.wake_at is None
        assert (await scene.settle(claim, ended(FAILED, 0), ended(FAILED, 1))).park_until == at("09:01:10")
        scene.clock.advance("10s")
        again = await scene.claim()
        assert (again.starts, again.wake_at) == (starts((0, 2)), at("09:01:30"))
        scene.clock.advance("20s")
        assert (await scene.settle(again)).starts == starts((1, 2))

    @scenario
    async def test_many_runs_settle_in_one_call_and_are_answered_in_order(self, scene: Scene) -> None:
        await scene.define(*(job(name) for name in "abc"))
        await scene.later("1m")
        claims = await scene.claim_runs()
        words = [Settlement(each.run_id, each.run_no, each.fence, (ended(),)) for each in reversed(claims)]
        settled = await scene.store.settle(NODE, words)
        assert [each.run_id for each in settled] == [word.run_id for word in words]
        assert {each.state for each in settled} == {"COMPLETED"}

    @scenario
    async def test_a_repeated_word_about_a_run_that_ended_is_recognised(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.later("1m")
        await scene.finish(claim)
        before = await scene.everything()
        again = await scene.finish(claim, FAILED)
        assert again.verdict == SettlementVerdict.ALREADY
        assert await scene.everything() == before

    @scenario
    async def test_a_word_with_another_fence_or_from_another_node_is_fenced(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        before = await scene.everything()
        verdicts = [
            (await scene.settle(claim._replace(fence=2), ended())).verdict,
            (await scene.settle(claim, ended(), node=OTHER)).verdict,
            (await scene.settle(claim._replace(run_id=unknown_run(), run_no=claim.run_no + 1000), ended())).verdict,
        ]
        assert verdicts == [SettlementVerdict.FENCED] * 3
        assert await scene.everything() == before
        await scene.finish(claim)
        assert (await scene.settle(claim, ended(), node=OTHER)).verdict == SettlementVerdict.FENCED

    @scenario
    async def test_one_fenced_word_does_not_keep_the_others_from_counting(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b"))
        await scene.later("1m")
        first, second = await scene.claim_runs()
        words = (
            Settlement(first.run_id, first.run_no, 9, (ended(),)),
            Settlement(second.run_id, second.run_no, 1, (ended(),)),
        )
        assert [each.verdict for each in await scene.store.settle(NODE, words)] == ["FENCED", "SETTLED"]
        assert (await scene.run("a")).state == "RUNNING"

    @scenario
    async def test_a_zombies_late_word_changes_nothing(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await scene.define(job())
        await scene.later("1m")
        zombie = await scene.claim()
        assert await scene.store.take_over(OTHER, NODE, 0) == 1
        heir = await scene.claim(OTHER)
        before = await scene.everything()
        assert (await scene.finish(zombie)).verdict == SettlementVerdict.FENCED
        assert await scene.everything() == before
        assert (await scene.finish(heir, node=OTHER)).state == "COMPLETED"
        assert await scene.attempts() == ["LOST", "SUCCESS"]

    @scenario
    async def test_a_word_after_the_run_was_parked_is_fenced(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(1, "30s")))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.finish(claim, FAILED)
        before = await scene.everything()
        assert (await scene.finish(claim)).verdict == SettlementVerdict.FENCED
        assert await scene.everything() == before

    @scenario
    async def test_the_end_of_an_attempt_that_is_not_the_latest_is_ignored(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        settled = await scene.settle(claim, ended(FAILED, 0, 5), ended(SUCCESS, 1), ended(SUCCESS, 7))
        assert (settled.verdict, settled.state) == (SettlementVerdict.SETTLED, "RUNNING")
        assert await scene.attempts() == ["RUNNING"]
        assert await scene.tasks() == [("one", "RUNNING", None), ("two", "PENDING", None)]

    @scenario
    async def test_a_released_run_goes_back_without_counting_a_try(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(1, "10s")))
        await scene.later("1m")
        claim = await scene.claim()
        scene.clock.advance("5s")
        assert (await scene.settle(claim, release=True)).state == "PENDING"
        run = await scene.run()
        assert (run.waiting_for, run.not_before, run.owner, run.fence) == (None, at("09:01:05"), None, 1)
        assert await scene.attempts() == ["CANCELLED"]
        again = await scene.claim()
        assert (again.fence, again.starts, again.spent_ms) == (2, starts((0, 2)), 5000)
        assert (await scene.settle(again, ended(FAILED, 0, 2))).state == "PENDING"

    @scenario
    async def test_a_released_attempt_keeps_the_error_that_it_raised_and_counts_as_no_try(self, scene: Scene) -> None:
        await scene.define(job(), job("b", delivery="at_most_once"))
        await scene.later("1m")
        for claim in await scene.claim_runs():
            await scene.settle(claim, ended(CANCELLED, error="no disk", traceback="at line 1"), release=True)
        assert (await scene.run()).state == "PENDING"
        assert await scene.story("b") == ["09:01 CANCELLED released"]
        for name in "ab":
            (attempt,) = (await scene.history(name)).tasks[0].attempts
            assert (attempt.state, attempt.error, attempt.traceback) == ("CANCELLED", "no disk", "at line 1")
        assert (await scene.claim()).starts == starts((0, 2))

    @scenario
    async def test_a_release_keeps_what_is_done(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended())
        await scene.settle(claim, release=True)
        assert (await scene.claim()).starts == starts((1, 2))

    @scenario
    async def test_a_run_delivered_at_most_once_is_released_only_before_it_has_started_work(self, scene: Scene) -> None:
        await scene.define(job("a", delivery="at_most_once"), job("b", delivery="at_most_once"))
        await scene.later("1m")
        first, second = await scene.claim_runs()
        assert (await scene.settle(first, release=True, started=False)).state == "PENDING"
        assert (await scene.settle(second, release=True, started=True)).state == "CANCELLED"
        assert await scene.story("b") == ["09:01 CANCELLED released"]
        assert await scene.tasks("b") == [("work", "CANCELLED", "released")]
        assert await scene.attempts("b") == ["CANCELLED"]

    @scenario
    async def test_a_released_run_that_was_asked_to_stop_ends(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        await scene.store.cancel((claim.run_id,), reason="enough")
        assert (await scene.settle(claim, release=True)).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED enough"]

    @scenario
    async def test_a_stop_ends_the_run_and_skips_what_has_not_started(self, scene: Scene) -> None:
        await scene.define(job(tasks=("one", "two")))
        await scene.later("1m")
        claim = await scene.claim()
        assert (await scene.settle(claim, ended(CANCELLED), stop="cancelled")).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED cancelled"]
        assert [state for _, state, _ in await scene.tasks()] == ["CANCELLED", "SKIPPED"]

    @scenario
    async def test_a_stop_gives_a_task_that_says_continue_its_turn_after_the_others(self, scene: Scene) -> None:
        spared = TaskSpec("three", "three", settings={"failure": "continue"})
        await scene.define(job(tasks=("one", "two", spared)))
        await scene.later("1m")
        claim = await scene.claim()
        answer = await scene.settle(claim, stop="cancelled")
        assert (answer.state, answer.starts, answer.cancels) == ("RUNNING", (), (0,))
        answer = await scene.settle(claim, ended(CANCELLED), stop="cancelled")
        assert (answer.state, answer.starts) == ("RUNNING", starts((2, 1)))
        assert (await scene.settle(claim, ended(SUCCESS, 2), stop="cancelled")).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED cancelled"]
        assert await scene.tasks() == [
            ("one", "CANCELLED", "cancelled"),
            ("two", "SKIPPED", "cancelled"),
            ("three", "SUCCESS", None),
        ]

    @scenario
    async def test_a_run_that_skipped_tasks_because_of_a_stop_is_cancelled_whatever_the_others_say(
        self, scene: Scene
    ) -> None:
        spared = TaskSpec("three", "three", settings={"failure": "continue"})
        await scene.define(job(tasks=("one", "two", spared)))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.store.cancel((claim.run_id,), reason="enough")
        assert (await scene.settle(claim, ended())).starts == starts((2, 1))
        assert (await scene.settle(claim, ended(SUCCESS, 2))).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED enough"]

    @scenario
    async def test_after_a_stop_a_task_that_says_continue_is_not_tried_again(self, scene: Scene) -> None:
        spared = TaskSpec("two", "two", settings={"failure": "continue", "retry": {"max_retries": 3, "interval": "1m"}})
        await scene.define(job(tasks=("one", spared)))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended(CANCELLED), stop="timeout")
        assert (await scene.settle(claim, ended(FAILED, 1), stop="timeout")).state == "CANCELLED"
        assert await scene.story() == ["09:01 CANCELLED timeout"]

    @scenario
    async def test_a_stopped_run_that_is_handed_back_gives_nobody_a_turn(self, scene: Scene) -> None:
        spared = TaskSpec("two", "two", settings={"failure": "continue"})
        await scene.define(job(tasks=("one", spared)))
        await scene.later("1m")
        claim = await scene.claim()
        await scene.settle(claim, ended(CANCELLED), stop="cancelled")
        assert (await scene.settle(claim, stop="cancelled", release=True)).state == "CANCELLED"
        assert [state for _, state, _ in await scene.tasks()] == ["CANCELLED", "CANCELLED"]

    @scenario
    async def test_a_run_whose_tasks_have_their_turn_is_not_reaped_meanwhile(self, scene: Scene) -> None:
        spared = TaskSpec("two", "two", settings={"failure": "continue", "cancel_grace": "60s"})
        await scene.define(job(schedule=HOURLY, tasks=("one", spared), cancel_grace="10s"))
        await scene.until("10:00")
        claim = await scene.claim()
        await scene.store.cancel((claim.run_id,))
        await scene.settle(claim, ended(CANCELLED))
        # The longest that one may take to stop, then a turn, then stopping again.
        scene.clock.advance("180s")
        assert await scene.store.reap() == 0
        scene.clock.advance("1s")
        assert await scene.store.reap() == 1
        assert await scene.story() == ["10:00 CANCELLED abandoned"]

    @scenario
    async def test_a_once_job_whose_retries_go_on_is_not_done(self, scene: Scene) -> None:
        await scene.define(job(schedule=Once(at("09:01")), retry=Retry(1, "10s")))
        await scene.later("1m")
        await scene.run_once(FAILED)
        assert (await scene.job()).state == JobState.ENABLED
        scene.clock.advance("10s")
        await scene.run_once(FAILED)
        assert (await scene.job()).state == JobState.DISABLED

    @scenario
    async def test_a_failed_run_does_not_free_those_that_depend_on_it(self, scene: Scene) -> None:
        await scene.define(job("down", HOURLY, depends_on=("up",)), job("up", HOURLY, tasks=("one", "two")))
        await scene.until("10:00")
        claim = await scene.claim()
        await scene.settle(claim, ended())
        await scene.settle(claim, ended(FAILED, 1))
        assert await scene.story("down") == ["10:00 PENDING (dependencies)"]
