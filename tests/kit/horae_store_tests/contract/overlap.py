"""The store contract, overlap: every policy, for runs that start, wait, line up, are parked or recovered."""

from __future__ import annotations

from horae.core.job.policies import Queue, Retry
from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae_store_tests.contract.builders import CANCELLED, FAILED, HOURLY, Contract, Scene, at, job, scenario


class OverlapContract(Contract):
    """What becomes of a run that comes due while an earlier one is about, and who is next."""

    @scenario
    async def test_skip_records_the_new_run_skipped(self, scene: Scene) -> None:
        await scene.define(job(overlap="skip"))
        await scene.later("1m", slots=1)
        await scene.later("1m")
        assert await scene.story() == ["09:01 RUNNING", "09:02 SKIPPED overlap"]
        assert (await scene.runs())[1].completed_at == at("09:02")

    @scenario
    async def test_allow_runs_beside(self, scene: Scene) -> None:
        await scene.define(job(overlap="allow"))
        await scene.later("1m", slots=1)
        await scene.later("1m", slots=1)
        assert await scene.story() == ["09:01 RUNNING", "09:02 RUNNING"]

    @scenario
    async def test_queue_lines_up_and_hands_over_in_order_of_slots(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue"))
        (claim,) = (await scene.later("1m", slots=1)).claims
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story() == ["09:01 RUNNING", "09:02 QUEUED", "09:03 QUEUED"]
        assert (await scene.runs())[1].not_before is None
        await scene.finish(claim)
        assert await scene.story() == ["09:01 COMPLETED", "09:02 PENDING", "09:03 QUEUED"]
        assert (await scene.runs())[1].not_before == at("09:03")
        await scene.run_once(FAILED)
        assert await scene.story() == ["09:01 COMPLETED", "09:02 FAILED", "09:03 PENDING"]

    @scenario
    async def test_a_full_queue_skips(self, scene: Scene) -> None:
        await scene.define(job(overlap=Queue(1)))
        await scene.later("1m", slots=1)
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story() == ["09:01 RUNNING", "09:02 QUEUED", "09:03 SKIPPED queue full"]

    @scenario
    async def test_coalesce_keeps_the_newest_that_waits(self, scene: Scene) -> None:
        await scene.define(job(overlap="coalesce"))
        (claim,) = (await scene.later("1m", slots=1)).claims
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story() == ["09:01 RUNNING", "09:02 SKIPPED coalesced", "09:03 QUEUED"]
        await scene.finish(claim)
        assert (await scene.claim()).scheduled_time == at("09:03")

    @scenario
    async def test_replace_asks_the_running_one_to_stop_and_follows_it(self, scene: Scene) -> None:
        await scene.define(job(overlap="replace"))
        (claim,) = (await scene.later("1m", slots=1)).claims
        await scene.later("1m")
        first, second = await scene.runs()
        assert (first.state, first.cancel_requested_at, first.cancelled_by) == ("RUNNING", at("09:02"), "replaced")
        assert second.state == RunState.QUEUED
        scene.clock.advance("10s")
        await scene.finish(claim, CANCELLED)
        first, second = await scene.runs()
        assert (first.state, second.state, second.not_before) == ("CANCELLED", "PENDING", at("09:02:10"))

    @scenario
    async def test_replace_asks_once_and_skips_those_that_waited(self, scene: Scene) -> None:
        await scene.define(job(overlap="replace"))
        await scene.later("1m", slots=1)
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story() == ["09:01 RUNNING", "09:02 SKIPPED replaced", "09:03 QUEUED"]
        assert (await scene.runs())[0].cancel_requested_at == at("09:02")

    @scenario
    async def test_replace_cancels_a_run_that_has_not_started_at_once_and_takes_its_place(self, scene: Scene) -> None:
        await scene.define(job(overlap="replace"))
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story() == ["09:01 CANCELLED replaced", "09:02 PENDING"]
        assert (await scene.runs())[0].completed_at == at("09:02")
        assert (await scene.claim()).scheduled_time == at("09:02")

    @scenario
    async def test_a_run_that_has_not_been_given_out_counts_as_about(self, scene: Scene) -> None:
        await scene.define(job("a", overlap="skip"), job("b", overlap="queue"))
        await scene.later("1m")
        await scene.later("1m")
        assert await scene.story("a") == ["09:01 PENDING", "09:02 SKIPPED overlap"]
        assert await scene.story("b") == ["09:01 PENDING", "09:02 QUEUED"]

    @scenario
    async def test_a_parked_run_counts_as_about_while_its_retries_have_a_budget(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(3, "10m")))
        await scene.later("1m")
        await scene.run_once(FAILED)
        await scene.later("1m")
        assert await scene.story() == ["09:01 PENDING (retry)", "09:02 SKIPPED overlap"]

    @scenario
    async def test_a_parked_run_that_retries_until_the_next_occurrence_ends_with_it(self, scene: Scene) -> None:
        await scene.define(job(retry=Retry(None, "10m")))
        await scene.later("1m")
        await scene.run_once(FAILED)
        assert await scene.story() == ["09:01 PENDING (retry)"]
        await scene.later("1m")
        assert await scene.story() == ["09:01 FAILED superseded", "09:02 PENDING"]
        ended = await scene.store.history((await scene.runs())[0].run_id)
        assert [(task.state, task.cancelled_by) for task in ended.tasks] == [("CANCELLED", "superseded")]

    @scenario
    async def test_a_recovery_run_that_waits_is_never_coalesced(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, overlap="coalesce", recovery="all"))
        await scene.until("10:00")
        await scene.run_once()
        await scene.until("12:30")
        await scene.until("13:00")
        assert (await scene.story())[1:] == ["11:00 PENDING", "12:00 QUEUED", "13:00 QUEUED"]

    @scenario
    async def test_a_triggered_run_minds_the_policy_too(self, scene: Scene) -> None:
        await scene.define(job("a", overlap="skip"), job("b", overlap="queue"), job("c", overlap="replace"))
        await scene.later("1m", slots=3)
        answers = [(await scene.trigger(name, "by hand")).state for name in "abc"]
        assert answers == ["SKIPPED", "QUEUED", "QUEUED"]
        assert (await scene.runs("c"))[0].cancelled_by == "replaced"
        skipped = next(run for run in await scene.runs("a") if run.origin == "TRIGGER")
        assert (skipped.reason, skipped.completed_at) == ("overlap", at("09:01"))

    @scenario
    async def test_two_windowed_runs_that_come_due_together_go_in_order_of_slots(self, scene: Scene) -> None:
        both = Cron("0,1 10 * * *")
        await scene.define(job(schedule=both, window=Window.before("30m"), overlap="queue", recovery="all"))
        await scene.until("09:31")
        assert await scene.story() == ["10:00 PENDING (window)", "10:01 PENDING (window)"]
        await scene.until("10:01")
        assert await scene.story() == ["10:00 PENDING", "10:01 QUEUED"]

    @scenario
    async def test_a_queued_run_past_its_deadline_is_passed_over_at_hand_over(self, scene: Scene) -> None:
        await scene.define(job(overlap="queue", deadline="90s"))
        (claim,) = (await scene.later("1m", slots=1)).claims
        await scene.later("1m")
        await scene.later("1m")
        scene.clock.advance("31s")
        await scene.finish(claim)
        assert await scene.story() == ["09:01 COMPLETED", "09:02 MISSED deadline", "09:03 PENDING"]
