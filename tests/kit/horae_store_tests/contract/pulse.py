"""The store contract, metering: what an engine tells of a catalog without reading it through.

Runs that no node will ever report, when a job ran before, and how much there is.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.store.protocols.store import Claim, Origin, StateCounts
from horae_store_tests.contract.builders import FAILED, HOURLY, Contract, Scene, at, ended, job, scenario


def told(scene: Scene) -> list[str]:
    """Each run that was told of since the last time, in one line."""
    return [
        f"{each.job_name} {each.state} x{each.count} {each.reason}{' (recovery)' if each.is_recovery else ''}"
        for each in scene.passed()
    ]


async def previous(scene: Scene, *claims: Claim) -> list[datetime | None]:
    """What the store says of each claim."""
    found = await scene.store.previous_starts(claims)
    assert found.keys() <= {claim.run_id for claim in claims}
    return [found.get(claim.run_id) for claim in claims]


class MeteringContract(Contract):
    """Passed runs, previous starts, totals."""

    # ---- passed --------------------------------------------------------------------------------------------------

    @scenario
    async def test_runs_that_start_or_wait_are_not_passed(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", overlap="queue"))
        await scene.later("1m", slots=1)
        assert scene.passed() == []
        await scene.later("1m")
        assert told(scene) == ["a SKIPPED x1 overlap"]
        await scene.plan()
        assert scene.passed() == []

    @scenario
    async def test_a_slot_that_was_missed_is_told_with_all_it_stands_for(self, scene: Scene) -> None:
        await scene.define(job("last"), job("none", recovery="none"), job("paused"))
        await scene.store.set_state("paused", JobState.PAUSED)
        await scene.until("13:00")
        passed = scene.passed()
        counted: Counter[str] = Counter()
        for each in passed:
            counted[each.job_name] += each.count
        # Of 240 slots each, one has a run that is to start, but not where the job is paused.
        assert counted == {"last": 239, "none": 239, "paused": 240}
        assert {str(each.state) for each in passed if each.job_name == "paused"} == {"SKIPPED"}
        ended_runs = [run for run in await scene.runs() if run.completed_at is not None]
        assert len(passed) == len(ended_runs) < 100

    @scenario
    async def test_a_slot_that_has_no_possible_time_is_told(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, window=Window.after("10m", only={"hours": "3"})))
        await scene.until("10:00")
        assert [(each.job_name, each.state) for each in scene.passed()] == [("a", "UNSCHEDULABLE")]

    @scenario
    async def test_runs_that_waited_and_were_ended_are_told(self, scene: Scene) -> None:
        await scene.define(
            job("coalesced", overlap="coalesce"),
            job("replaced", overlap="replace"),
            job("retrying", retry=Retry(None, "1h")),
        )
        await scene.later("1m")
        for claim in await scene.claim_runs():
            if claim.job_name == "retrying":
                await scene.settle(claim, ended(FAILED))
            elif claim.job_name == "replaced":
                await scene.settle(claim, release=True)
        await scene.later("1m")
        assert told(scene) == ["replaced CANCELLED x1 replaced", "retrying FAILED x1 superseded"]
        await scene.later("1m")
        assert told(scene) == [
            "coalesced SKIPPED x1 coalesced",
            "replaced CANCELLED x1 replaced",
            "retrying SKIPPED x1 overlap",
        ]

    @scenario
    async def test_runs_past_their_deadline_and_those_that_waited_in_vain_are_told(self, scene: Scene) -> None:
        await scene.define(
            job("down", HOURLY, depends_on=("up",)), job("late", HOURLY, deadline="30s"), job("up", None)
        )
        await scene.until("10:00")
        await scene.until("10:00:31")
        assert told(scene) == ["late MISSED x1 deadline"]
        await scene.until("11:00")
        assert told(scene) == ["down SKIPPED x1 dependencies"]

    # ---- previous starts -----------------------------------------------------------------------------------------

    @scenario
    async def test_the_first_run_of_a_job_has_none_before_it(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b"))
        await scene.later("1m")
        assert await previous(scene, *await scene.claim_runs()) == [None, None]
        assert await previous(scene) == []

    @scenario
    async def test_each_claim_is_told_when_its_job_ran_before(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", Cron("*/2 * * * *")))
        for _ in range(2):
            await scene.later("1m")
            scene.clock.advance("3s")
            for claim in await scene.claim_runs():
                await scene.finish(claim)
        await scene.until("09:04")
        claims = sorted(await scene.claim_runs())
        starts = dict(zip([claim.job_name for claim in claims], await previous(scene, *claims), strict=True))
        assert starts == {"a": at("09:02:06"), "b": at("09:02:06")}

    @scenario
    async def test_runs_that_never_started_are_no_previous_ones(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        claim = await scene.claim()
        for _ in range(5):
            await scene.later("1m")
        await scene.finish(claim)
        await scene.later("1m")
        assert await previous(scene, await scene.claim()) == [at("09:01")]

    @scenario
    async def test_a_run_that_people_asked_for_counts_as_any_other(self, scene: Scene) -> None:
        await scene.define(job())
        await scene.later("1m")
        await scene.run_once()
        scene.clock.advance("20s")
        await scene.trigger()
        asked = await scene.claim()
        assert await previous(scene, asked) == [at("09:01")]
        await scene.finish(asked)
        await scene.until("09:02")
        scheduled = await scene.claim()
        assert await previous(scene, scheduled) == [at("09:01:20")]

    @scenario
    async def test_a_run_that_goes_on_is_not_the_one_before_itself(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, retry=Retry(1, "10s")))
        await scene.until("10:00")
        await scene.run_once(FAILED)
        scene.clock.advance("10s")
        again = await scene.claim()
        assert await previous(scene, again) == [None]
        await scene.settle(again, ended(number=2))
        await scene.until("11:00")
        # It started when it first did.
        assert await previous(scene, await scene.claim()) == [at("10:00")]

    @scenario
    async def test_runs_claimed_together_are_not_before_each_other(self, scene: Scene) -> None:
        await scene.define(job("a", None, overlap="allow"))
        for _ in range(2):
            await scene.trigger()
        assert await previous(scene, *await scene.claim_runs()) == [None, None]
        scene.clock.advance("5s")
        for _ in range(2):
            await scene.trigger()
        assert await previous(scene, *await scene.claim_runs()) == [at("09:00"), at("09:00")]

    @scenario
    async def test_a_backfilled_slot_is_told_of_the_latest_run_too(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY))
        await scene.until("10:00")
        await scene.run_once()
        scene.clock.set(at("10:30"))
        await scene.admit("a", Origin.BACKFILL, scheduled_time=at("08:00"))
        assert await previous(scene, await scene.claim()) == [at("10:00")]

    @scenario
    async def test_other_jobs_are_not_asked(self, scene: Scene) -> None:
        await scene.define(job("a"), job("b", None))
        await scene.later("1m")
        await scene.run_once()
        scene.clock.advance("10s")
        await scene.trigger("b")
        assert await previous(scene, await scene.claim()) == [None]

    # ---- totals --------------------------------------------------------------------------------------------------

    @scenario
    async def test_an_empty_catalog_has_nothing(self, scene: Scene) -> None:
        assert await scene.store.totals() == StateCounts()

    @scenario
    async def test_runs_and_jobs_are_counted_by_state(self, scene: Scene) -> None:
        await scene.define(
            job("queue", overlap="queue"),
            job("retry", retry=Retry(1, "10m")),
            job("window", Cron("1 * * * *"), window=Window.after("30m")),
            job("down", depends_on=("never",)),
            job("never", None),
            job("paused", None, state=JobState.PAUSED),
            job("gone", None, state=JobState.DISABLED),
            job("late", deadline="10s"),
        )
        await scene.later("1m")
        claims = {claim.job_name: claim for claim in await scene.claim_runs()}
        await scene.settle(claims["retry"], ended(FAILED))
        await scene.settle(claims["late"], release=True)
        scene.clock.advance("30s")
        await scene.trigger("queue")
        await scene.trigger("never")
        totals = await scene.store.totals()
        counted = Counter(str(run.state) for run in await scene.runs())
        assert (totals.runs_running, totals.runs_queued) == (counted["RUNNING"], counted["QUEUED"])
        assert totals.runs_pending == counted["PENDING"]
        assert (totals.runs_running, totals.runs_queued, totals.runs_pending) == (1, 1, 5)
        # The retry, the window and the dependency are waited for; what was released has started before.
        assert totals.runs_due == 2
        assert (totals.jobs_enabled, totals.jobs_paused, totals.jobs_disabled) == (6, 1, 1)
        scene.clock.advance("10m")
        assert (await scene.store.totals()).runs_due == 3

    @scenario
    async def test_a_run_past_its_deadline_is_not_due_any_more(self, scene: Scene) -> None:
        await scene.define(job(schedule=HOURLY, deadline="30s"))
        await scene.until("10:00:30")
        assert (await scene.store.totals()).runs_due == 1
        scene.clock.advance("1s")
        totals = await scene.store.totals()
        assert (totals.runs_pending, totals.runs_due) == (1, 0)
