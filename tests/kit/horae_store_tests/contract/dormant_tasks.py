"""The store contract, sleeping: tasks that nobody registers any more, and what is read of all of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from horae.core.declarative import DeclaredTask, RegistrationStatus, job_name
from horae.core.run.lifecycle import JobState
from horae.core.time.instant import EPOCH
from horae.errors import Conflict
from horae_store_tests.contract.builders import (
    BEGINNING,
    FAILED,
    NODE,
    OTHER,
    SUCCESS,
    Contract,
    Scene,
    at,
    milliseconds,
    raises,
    scenario,
)
from horae_store_tests.contract.registrations import A, declare, registered, run_at, story, task


class SleepingContract(Contract):
    """Tasks that are no longer registered, and what is read of all of them."""

    @scenario
    async def test_a_task_that_is_not_registered_sleeps(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00"))
        await declare(scene)
        seen = await scene.job(A)
        assert (seen.state, seen.pause_note, seen.version) == (JobState.DISABLED, "not registered", 1)
        assert (seen.next_run_time, seen.wake_at) == (None, None)
        assert (await scene.until("09:10")).born == 0
        before = await scene.everything()
        await declare(scene)
        assert await scene.everything() == before

    @scenario
    async def test_a_task_that_comes_back_is_owed_what_it_slept_through_once(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00"))
        await declare(scene)
        scene.clock.set(at("09:03:30"))
        assert await declare(scene, registered()) == {"a": RegistrationStatus.PRESERVED}
        seen = await scene.job(A)
        assert (seen.state, seen.pause_note, seen.planned_until) == (JobState.ENABLED, None, at("09:00"))
        await scene.plan()
        assert (await story(scene))[-1] == "09:03 PENDING"
        assert [line.split()[1] for line in await story(scene)].count("PENDING") == 1

    @scenario
    async def test_its_retry_waits_for_its_registration_and_then_for_its_time(self, scene: Scene) -> None:
        hourly = registered(cron="0 * * * *", delay="PT10M")
        await scene.finish(await run_at(scene, "09:00", hourly), FAILED)
        await declare(scene)
        assert await story(scene) == ["09:00 PENDING (registration)"]
        scene.clock.set(at("09:10"))
        assert await scene.claim_runs() == ()
        (answer,) = await scene.store.declare((hourly,))
        assert (answer.standing, answer.retry_at) == (RegistrationStatus.PRESERVED, at("09:10"))
        (run,) = await scene.runs(A)
        assert (run.state, run.waiting_for, run.not_before) == ("PENDING", "retry", at("09:10"))
        assert (await scene.claim()).run_id == answer.retry_run

    @scenario
    async def test_a_run_that_never_started_waits_for_its_registration(self, scene: Scene) -> None:
        await declare(scene, registered())
        await scene.plan()
        await declare(scene)
        assert (await scene.claim_runs(), await story(scene)) == ((), ["09:00 PENDING (registration)"])
        scene.clock.advance("10s")
        await declare(scene, registered())
        (run,) = await scene.runs(A)
        assert (run.state, run.waiting_for, run.not_before) == ("PENDING", None, at("09:00:10"))
        await scene.run_once()

    @scenario
    async def test_a_task_that_never_ran_is_not_owed_what_others_planned_for_it_meanwhile(self, scene: Scene) -> None:
        await declare(scene, registered())
        await scene.plan()
        await scene.later("1m")
        assert [line.split()[1] for line in await story(scene)].count("PENDING") == 1
        scene.clock.set(at("09:02:30"))
        await declare(scene, registered(cron="0 * * * *"))
        assert not [line for line in await story(scene) if "PENDING" in line or "QUEUED" in line]

    @scenario
    async def test_a_task_that_sleeps_is_not_enabled_by_hand(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00"))
        await declare(scene)
        before = await scene.everything()
        for state in (JobState.ENABLED, JobState.PAUSED):
            with raises(Conflict):
                await scene.store.set_state(A, state)
        assert await scene.everything() == before
        await scene.store.set_state(A, JobState.DISABLED)

    @scenario
    async def test_what_sleeps_beside_a_run_under_way_does_not_start_beside_it_when_it_wakes(
        self, scene: Scene
    ) -> None:
        claim = await run_at(scene, "09:00")
        await scene.later("1m")
        await declare(scene)
        assert await story(scene) == ["09:00 RUNNING", "09:01 PENDING (registration)"]
        await declare(scene, registered())
        assert await story(scene) == ["09:00 RUNNING", "09:01 QUEUED"]
        assert await scene.claim_runs() == ()
        await scene.finish(claim)
        assert await story(scene) == ["09:00 COMPLETED", "09:01 PENDING"]

    @scenario
    async def test_a_run_that_fails_while_its_task_sleeps_is_kept_for_its_registration(self, scene: Scene) -> None:
        claim = await run_at(scene, "09:00", registered(cron="0 * * * *"))
        await declare(scene)
        await scene.finish(claim, FAILED)
        assert await story(scene) == ["09:00 PENDING (registration)"]
        scene.clock.set(at("09:06"))
        assert await scene.claim_runs() == ()
        await declare(scene, registered(cron="0 * * * *"))
        assert (await scene.claim()).run_id == claim.run_id

    @scenario
    async def test_a_lost_run_of_a_task_that_sleeps_is_an_orphan_when_it_wakes(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await declare(scene, registered())
        await scene.plan()
        await scene.claim(OTHER)
        await scene.later("1m")
        await declare(scene)
        await scene.store.take_over(NODE, OTHER, 0)
        assert await story(scene) == ["09:00 PENDING (registration)", "09:01 SKIPPED coalesced"]
        assert await scene.claim_runs() == ()
        scene.clock.set(at("09:20"))
        assert await declare(scene, registered()) == {"a": RegistrationStatus.ORPHANED}
        assert (await scene.plan()).born == 0
        await scene.run_once()

    @scenario
    async def test_what_a_person_triggers_of_a_task_that_sleeps_waits_too(self, scene: Scene) -> None:
        hourly = registered(cron="0 * * * *", delay="PT10M")
        await scene.finish(await run_at(scene, "09:00", hourly), FAILED)
        await declare(scene)
        scene.clock.set(at("09:01"))
        assert (await scene.trigger(A, "by hand")).state == "PENDING"
        assert await story(scene) == ["09:00 PENDING (registration)", "09:01 PENDING (registration)"]
        assert await scene.claim_runs() == ()
        await declare(scene, hourly)
        assert await story(scene) == ["09:00 FAILED superseded", "09:01 PENDING"]
        await scene.run_once()

    # ---- what is read --------------------------------------------------------------------------------------------

    @scenario
    async def test_every_task_is_told_as_it_stands(self, scene: Scene) -> None:
        specs = [registered(name, "0 * * * *") for name in ("never", "failed", "busy", "done")]
        await declare(scene, *specs, registered("asleep", "0 * * * *"))
        await scene.store.set_state(job_name("never"), JobState.DISABLED)
        scene.clock.advance("1500ms")
        claims = {each.job_name: each for each in (await scene.plan(slots=5)).claims}
        scene.clock.advance("500ms")
        for name, state in (("failed", FAILED), ("done", SUCCESS), ("asleep", SUCCESS)):
            claim = claims[job_name(name)]
            await scene.finish(claim, state)
        await declare(scene, *specs)
        found = {each.job_name.removeprefix("declarative:"): each for each in await scene.store.declared()}
        assert list(found) == ["asleep", "busy", "done", "failed", "never"]
        began, ended = milliseconds(at("09:00:01")) + 500, milliseconds(at("09:00:02"))
        figures = {
            name: (str(each.state), each.attempted_ms, each.succeeded_ms, each.owner, each.lost, each.retry_ms)
            for name, each in found.items()
        }
        assert figures == {
            "asleep": ("DISABLED", began, ended, None, False, None),
            "busy": ("ENABLED", began, None, str(NODE), False, None),
            "done": ("ENABLED", began, ended, None, False, None),
            "failed": ("ENABLED", began, None, None, False, ended + 300_000),
            "never": ("DISABLED", None, None, None, False, None),
        }
        assert found["failed"].retry_run == claims[job_name("failed")].run_id
        assert found["done"].definition is not None
        assert '"expr":"0 * * * *"' in found["done"].definition

    @scenario
    async def test_the_latest_attempt_and_success_count_whoever_asked_for_them(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00", registered(cron="0 * * * *")))
        scene.clock.set(at("09:10"))
        await scene.trigger(A)
        claim = await scene.claim()
        scene.clock.set(at("09:11"))
        await scene.finish(claim)
        await scene.until("10:00", slots=1)
        assert _times(await task(scene)) == (at("10:00"), at("09:11"))

    @scenario
    async def test_a_failure_keeps_the_last_success(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00"))
        (claim,) = (await scene.until("09:01", slots=1)).claims
        await scene.finish(claim, FAILED)
        assert _times(await task(scene)) == (at("09:01"), at("09:00"))

    @scenario
    async def test_retention_forgets_neither_the_last_attempt_nor_the_last_success(self, scene: Scene) -> None:
        yearly = registered(cron="0 9 2 3 *")
        await scene.finish(await run_at(scene, "09:00", yearly))
        scene.clock.set(at("09:02"))
        await scene.trigger(A)
        await scene.run_once(FAILED)
        (_, parked) = await scene.runs(A)
        await scene.store.cancel((parked.run_id,))
        known = _times(await task(scene))
        assert known == (at("09:02"), at("09:00"))
        for limit in (1, 10):
            scene.clock.advance("1h")
            await scene.store.retain(timedelta(minutes=1), limit)
            assert _times(await task(scene)) == known
        assert await scene.runs() == ()
        # It has run before, so it is owed what it missed, a year later.
        scene.clock.set(BEGINNING.replace(year=2027, hour=10))
        assert await declare(scene, yearly) == {"a": RegistrationStatus.PRESERVED}
        await scene.plan()
        assert len(await scene.runs(A)) == 1


def _times(found: DeclaredTask) -> tuple[datetime | None, datetime | None]:
    """When it was last tried, and last succeeded."""
    return _moment(found.attempted_ms), _moment(found.succeeded_ms)


def _moment(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(milliseconds=value)
