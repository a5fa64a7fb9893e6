"""The store contract, declaring: what each registration is, what it is owed, and what sleeps without one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from horae.core.declarative import (
    NAMESPACE,
    DeclarationResult,
    DeclaredTask,
    RegistrationStatus,
    declared_spec,
    job_name,
)
from horae.core.job.definition import JobSpec
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.errors import InvalidDefinition, NamespaceConflict
from horae.store.protocols.store import Claim
from horae_store_tests.contract.builders import (
    FAILED,
    NODE,
    OTHER,
    Contract,
    Scene,
    at,
    job,
    raises,
    scenario,
)

A = job_name("a")
EACH_MINUTE = "* * * * *"
NEW, PRESERVED, OVERRIDDEN = RegistrationStatus.NEW, RegistrationStatus.PRESERVED, RegistrationStatus.OVERRIDDEN
ORPHANED, ABSENT = RegistrationStatus.ORPHANED, RegistrationStatus.ABSENT


def registered(task: str = "a", cron: str = EACH_MINUTE, delay: str = "PT5M", **how: Any) -> JobSpec:
    """The job of a registration; `delay` and what else a cron takes as people write it."""
    minutes = timedelta(minutes=int(delay.removeprefix("PT").removesuffix("M")))
    return declared_spec(task, Cron(cron, dialect="posix", fold="both", **how), minutes)


async def declare(scene: Scene, *specs: JobSpec) -> dict[str, RegistrationStatus]:
    """What each task turned out to be, by the task's name."""
    return {each.job_name.removeprefix("declarative:"): each.standing for each in await scene.store.declare(specs)}


async def task(scene: Scene, name: str = "a") -> DeclaredTask:
    (found,) = [each for each in await scene.store.declared() if each.job_name == job_name(name)]
    return found


async def story(scene: Scene, name: str = "a") -> list[str]:
    return await scene.story(job_name(name))


async def run_at(scene: Scene, text: str, *specs: JobSpec) -> Claim:
    """Declares at that time, and has the one run that is owed started by the scene's node."""
    scene.clock.set(at(text))
    await declare(scene, *(specs or (registered(),)))
    (claim,) = (await scene.plan(slots=1)).claims
    return claim


async def cut_off(scene: Scene, text: str = "09:00") -> Claim:
    """A task whose run is lost with its node: nobody has taken it since."""
    scene.clock.set(at(text))
    await scene.store.join(OTHER)
    await declare(scene, registered())
    await scene.plan()
    claim = await scene.claim(OTHER)
    await scene.store.take_over(NODE, OTHER, 0)
    return claim


class DeclaringContract(Contract):
    """Registrations against what the catalog has, and the rules of jobs that owe one run however many slots passed."""

    # ---- what a task is ------------------------------------------------------------------------------------------

    @scenario
    async def test_every_registration_is_told_what_it_is(self, scene: Scene) -> None:
        assert await declare(scene, registered("b"), registered("a")) == {"b": NEW, "a": NEW}
        assert await declare(scene, registered("a"), registered("b")) == {"a": PRESERVED, "b": PRESERVED}
        changed = (registered("a", "0 * * * *"), registered("b", delay="PT6M"), registered("c"))
        answers = await scene.store.declare(changed)
        assert answers == (
            DeclarationResult(A, OVERRIDDEN),
            DeclarationResult(job_name("b"), OVERRIDDEN),
            DeclarationResult(job_name("c"), NEW),
        )
        assert await declare(scene, registered("b", delay="PT6M")) == {"b": PRESERVED, "a": ABSENT, "c": ABSENT}
        assert await declare(scene) == {"a": ABSENT, "b": ABSENT, "c": ABSENT}
        assert await declare(scene, registered("a", "0 * * * *")) == {"a": PRESERVED, "b": ABSENT, "c": ABSENT}

    @scenario
    async def test_expressions_are_compared_letter_by_letter(self, scene: Scene) -> None:
        await declare(scene, registered(cron="0 9 * * *"))
        assert await declare(scene, registered(cron="00 9 * * *")) == {"a": OVERRIDDEN}
        assert await declare(scene, registered(cron="00 9 * * *")) == {"a": PRESERVED}
        assert (await scene.job(A)).version == 2

    @scenario
    async def test_another_zone_is_another_version_of_a_task_that_is_preserved(self, scene: Scene) -> None:
        await declare(scene, registered(cron="0 12 * * *"))
        assert await declare(scene, registered(cron="0 12 * * *", tz="Europe/Brussels")) == {"a": PRESERVED}
        seen = await scene.job(A)
        assert (seen.version, seen.next_run_time) == (2, at("11:00"))

    @scenario
    async def test_what_a_registration_stands_for_is_kept(self, scene: Scene) -> None:
        await declare(scene, registered(cron="0,30 9 * * *"))
        seen = await scene.job(A)
        assert (seen.version, seen.state, seen.definition.spec.namespace) == (1, JobState.ENABLED, NAMESPACE)
        assert seen.definition.settings.owes_once
        assert (seen.definition.settings.max_lost, seen.definition.settings.execution_timeout) == (None, None)
        peer = await scene.peer()
        if peer is not None:
            # Read back from what is written, it is still the same.
            assert [each.standing for each in await peer.declare((registered(cron="0,30 9 * * *"),))] == [PRESERVED]
            assert (await scene.job(A)).version == 1

    @scenario
    async def test_declaring_the_same_again_changes_nothing(self, scene: Scene) -> None:
        specs = (registered("a"), registered("b", "30 9 * * *"), registered("c"))
        await declare(scene, *specs)
        await scene.plan()
        for claim in await scene.claim_runs():
            await scene.finish(claim)
        for _ in range(2):
            before = await scene.everything(), await scene.store.declared()
            assert set((await declare(scene, *specs)).values()) == {PRESERVED}
            assert (await scene.everything(), await scene.store.declared()) == before
            scene.clock.advance("20s")
        assert (await scene.later("40s")).born == 2

    # ---- what is refused -----------------------------------------------------------------------------------------

    @scenario
    async def test_a_job_that_is_nobodys_registration_is_not_taken(self, scene: Scene) -> None:
        await scene.define(job(job_name("b")))
        await declare(scene, registered("a"), registered("c"))
        before = await scene.everything()
        with raises(NamespaceConflict) as refused:
            await scene.store.declare((registered("a", "0 * * * *"), registered("b"), registered("d")))
        assert "declarative:b" in str(refused.error)
        assert await scene.everything() == before
        assert await declare(scene, registered("a"), registered("c")) == {"a": PRESERVED, "c": PRESERVED}

    @scenario
    async def test_one_that_is_refused_lets_nothing_happen(self, scene: Scene) -> None:
        await cut_off(scene)
        await declare(scene, registered("a"), registered("b"))
        before = await scene.everything(), await scene.store.declared()
        with raises(InvalidDefinition):
            await scene.store.declare((registered("c"), registered("a", "0 * * * *"), registered("c")))
        assert (await scene.everything(), await scene.store.declared()) == before

    # ---- what is owed --------------------------------------------------------------------------------------------

    @scenario
    async def test_a_new_task_is_owed_this_very_minute_and_none_before(self, scene: Scene) -> None:
        scene.clock.set(at("09:07:59"))
        await declare(scene, registered("a"), registered("b", "6 9 * * *"), registered("c", "7 9 * * *"))
        assert (await scene.job(A)).planned_until == at("09:06:59")
        await scene.plan()
        assert [await story(scene, name) for name in "abc"] == [["09:07 PENDING"], [], ["09:07 PENDING"]]

    @scenario
    async def test_a_task_that_never_ran_is_not_owed_what_passed_while_nobody_looked(self, scene: Scene) -> None:
        await declare(scene, registered("a", "5 * * * *"), registered("b"))
        scene.clock.set(at("09:30:10"))
        assert await declare(scene, registered("a", "5 * * * *"), registered("b")) == {"a": PRESERVED, "b": PRESERVED}
        await scene.plan()
        assert (await story(scene, "a"), await story(scene, "b")) == ([], ["09:30 PENDING"])

    @scenario
    async def test_a_preserved_task_that_ran_is_owed_what_it_missed_once(self, scene: Scene) -> None:
        hourly = registered(cron="0,15,30,45 * * * *")
        await scene.finish(await run_at(scene, "09:00", hourly))
        scene.clock.set(at("10:05"))
        await declare(scene, hourly)
        await scene.plan()
        assert await story(scene) == [
            "09:00 COMPLETED",
            "09:15 MISSED missed",
            "09:30 MISSED missed",
            "09:45 MISSED missed",
            "10:00 PENDING",
        ]
        await scene.run_once()
        assert (await scene.plan()).born == 0

    @scenario
    async def test_a_task_that_failed_has_run_before_too(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00", registered(cron="0,30 * * * *")), FAILED)
        scene.clock.set(at("09:40"))
        await declare(scene, registered(cron="0,30 * * * *"))
        await scene.plan()
        assert await story(scene) == ["09:00 FAILED superseded", "09:30 PENDING"]

    @scenario
    async def test_an_overridden_task_is_owed_minutes_of_the_new_expression_since_it_was_tried(
        self, scene: Scene
    ) -> None:
        first = (registered("a", "0 * * * *"), registered("b", "0 * * * *"))
        await declare(scene, *first)
        for claim in (await scene.plan(slots=2)).claims:
            await scene.finish(claim)
        scene.clock.set(at("09:40"))
        changed = (registered("a", "20 * * * *"), registered("b", "50 * * * *"))
        assert await declare(scene, *changed) == {"a": OVERRIDDEN, "b": OVERRIDDEN}
        await scene.plan()
        assert await story(scene, "a") == ["09:00 COMPLETED", "09:20 PENDING"]
        assert await story(scene, "b") == ["09:00 COMPLETED"]

    @scenario
    async def test_minutes_of_the_new_expression_before_the_last_attempt_were_not_missed(self, scene: Scene) -> None:
        claim = await run_at(scene, "09:00", registered(cron="0 * * * *"))
        scene.clock.set(at("09:10"))
        await scene.finish(claim, FAILED)
        scene.clock.set(at("09:16"))
        await scene.run_once(FAILED)
        scene.clock.set(at("09:40"))
        await declare(scene, registered(cron="12 * * * *", delay="PT60M"))
        assert (await scene.job(A)).planned_until == at("09:16")
        await scene.plan()
        assert await story(scene) == ["09:00 PENDING (retry)"]

    @scenario
    async def test_a_task_that_was_dropped_is_new_and_runs_no_minute_again(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00:05"))
        await scene.store.drop((A,))
        assert await declare(scene, registered()) == {"a": NEW}
        assert (await scene.plan()).born == 0
        assert (await scene.job(A)).version == 2

    # ---- changes while something is under way --------------------------------------------------------------------

    @scenario
    async def test_what_is_under_way_goes_on_under_the_new_version(self, scene: Scene) -> None:
        claim = await run_at(scene, "09:00", registered(delay="PT5M"))
        scene.clock.set(at("09:00:30"))
        await declare(scene, registered(cron="0 * * * *", delay="PT7M"))
        (run,) = await scene.runs(A)
        assert (run.state, run.version) == ("RUNNING", 2)
        settled = await scene.finish(claim, FAILED)
        assert settled.park_until == at("09:07:30")

    @scenario
    async def test_a_retry_that_waits_is_told_of_and_goes_on(self, scene: Scene) -> None:
        await scene.finish(await run_at(scene, "09:00", registered(cron="0 * * * *")), FAILED)
        (run,) = await scene.runs(A)
        for spec, standing in ((registered(cron="0 * * * *"), PRESERVED), (registered(cron="59 * * * *"), OVERRIDDEN)):
            (answer,) = await scene.store.declare((spec,))
            assert answer == DeclarationResult(A, standing, run.run_id, at("09:05"))
        scene.clock.set(at("09:05"))
        assert (await scene.claim()).run_id == run.run_id

    @scenario
    async def test_a_pause_and_a_disable_by_hand_survive(self, scene: Scene) -> None:
        specs = [registered(name) for name in "abc"]
        await declare(scene, *specs)
        await scene.store.set_state(A, JobState.PAUSED, until=at("10:00"), note="why")
        await scene.store.set_state(job_name("b"), JobState.PAUSED, until=at("11:00"))
        await scene.store.set_state(job_name("c"), JobState.DISABLED)
        scene.clock.set(at("09:30"))
        assert set((await declare(scene, *specs)).values()) == {PRESERVED}
        a, b, c = await scene.store.jobs()
        assert (a.state, a.paused_until, a.pause_note, a.next_run_time) == ("PAUSED", at("10:00"), "why", at("10:01"))
        assert (b.state, b.paused_until, b.next_run_time) == ("PAUSED", at("11:00"), at("11:01"))
        assert (c.state, c.next_run_time, c.wake_at) == ("DISABLED", None, None)
        await declare(scene, *(registered(name, "0 * * * *") for name in "abc"))
        assert [each.state for each in await scene.store.jobs()] == ["PAUSED", "PAUSED", "DISABLED"]

    @scenario
    async def test_what_a_person_disabled_is_not_woken_by_its_registration(self, scene: Scene) -> None:
        await declare(scene, registered())
        await scene.store.set_state(A, JobState.DISABLED)
        await declare(scene)
        assert await declare(scene, registered()) == {"a": PRESERVED}
        assert (await scene.job(A)).state == JobState.DISABLED

    # ---- runs that were cut off ----------------------------------------------------------------------------------

    @scenario
    async def test_a_run_that_was_cut_off_is_started_again_and_stands_for_all(self, scene: Scene) -> None:
        claim = await cut_off(scene)
        scene.clock.set(at("09:30:30"))
        assert (await task(scene)).lost
        assert await scene.store.declare((registered(),)) == (DeclarationResult(A, ORPHANED),)
        assert (await scene.job(A)).planned_until == at("09:30:30")
        assert (await scene.plan()).born == 0
        again = await scene.claim()
        assert (again.run_id, again.fence) == (claim.run_id, 2)
        assert await declare(scene, registered()) == {"a": PRESERVED}
        await scene.finish(again)
        assert await story(scene) == ["09:00 COMPLETED"]

    @scenario
    async def test_an_orphan_takes_the_new_configuration(self, scene: Scene) -> None:
        await cut_off(scene)
        assert await declare(scene, registered(cron="0 * * * *", delay="PT9M")) == {"a": ORPHANED}
        settled = await scene.run_once(FAILED)
        assert settled.park_until == at("09:09")

    @scenario
    async def test_a_run_that_waited_behind_one_that_was_cut_off_is_coalesced(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await declare(scene, registered())
        await scene.plan()
        await scene.claim(OTHER)
        await scene.later("1m")
        assert await story(scene) == ["09:00 RUNNING", "09:01 QUEUED"]
        scene.clock.set(at("09:01:30"))
        assert await scene.store.take_over(NODE, OTHER, 0) == 1
        assert await story(scene) == ["09:00 PENDING", "09:01 SKIPPED coalesced"]
        assert (await scene.job(A)).planned_until == at("09:01:30")

    @scenario
    async def test_what_came_due_after_a_run_was_cut_off_is_coalesced_by_its_restart(self, scene: Scene) -> None:
        await cut_off(scene)
        await scene.until("09:01")
        assert await story(scene) == ["09:00 PENDING", "09:01 QUEUED"]
        assert await declare(scene, registered()) == {"a": ORPHANED}
        assert await story(scene) == ["09:00 PENDING", "09:01 SKIPPED coalesced"]
        await scene.run_once()
        assert await story(scene) == ["09:00 COMPLETED", "09:01 SKIPPED coalesced"]

    @scenario
    async def test_the_runs_of_a_process_that_is_gone_are_orphans_at_once(self, scene: Scene) -> None:
        peer = await scene.second()
        await peer.join(OTHER)
        await declare(scene, registered(), registered("b", "0 * * * *"))
        await scene.plan()
        assert len(await scene.claim_runs(node=OTHER)) == 2
        await scene.until("09:01")
        assert await declare(scene, registered(), registered("b", "0 * * * *")) == {"a": PRESERVED, "b": PRESERVED}
        await peer.close()
        scene.clock.set(at("09:01:10"))
        assert await declare(scene, registered()) == {"a": ORPHANED, "b": ABSENT}
        # Where a free lock is no proof yet, whoever keeps house takes the runs a little later.
        await scene.store.take_over(NODE, OTHER, 0)
        assert await story(scene) == ["09:00 PENDING", "09:01 SKIPPED coalesced"]
        assert await story(scene, "b") == ["09:00 PENDING (registration)"]
        assert (await scene.plan()).born == 0
        assert (await scene.claim()).job_name == A
        assert (await declare(scene, registered(), registered("b", "0 * * * *")))["b"] == ORPHANED
        assert (await scene.claim()).job_name == job_name("b")

    @scenario
    async def test_a_lost_run_that_is_not_started_again_stands_for_nothing(self, scene: Scene) -> None:
        await scene.store.join(OTHER)
        await declare(scene, registered())
        await scene.plan()
        claim = await scene.claim(OTHER)
        await scene.later("1m")
        await scene.store.cancel((claim.run_id,), reason="enough")
        await scene.store.take_over(NODE, OTHER, 0)
        assert await story(scene) == ["09:00 CANCELLED enough", "09:01 PENDING"]
        assert await declare(scene, registered()) == {"a": PRESERVED}
        assert await story(scene) == ["09:00 CANCELLED enough", "09:01 PENDING"]
