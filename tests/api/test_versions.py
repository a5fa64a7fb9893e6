"""Versions at the desk: one beside the present one, what differs between two, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.api.stand import ALTER, CREATE, EXECUTE, VIEW, Scene, Stand

from horae.core.access import Grant
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron
from horae.errors import (
    AccessDenied,
    InvalidDefinition,
    InvalidInput,
    InvalidPolicy,
    JobNotFound,
    NotFound,
    VersionConflict,
)
from horae.services.service import Service
from horae.services.versions import roll_back

Playing = Callable[[Scene], None]
TABLE: dict[str, Any] = {"cron": "0 2 * * *", "timezone": "Europe/Brussels", "python": "work", "tags": ["reports"]}


async def put(stand: Stand, *changes: dict[str, Any]) -> None:
    for change in changes:
        await stand.ask("put_job", name="nightly", definition=TABLE | change)


def test_going_back_writes_a_new_version_that_says_what_the_old_one_said(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 3 * * *", "description": "later"}, {"payload": {"day": 1}})
        back = await stand.ask("rollback", name="nightly", version=2, reason="the payload was wrong")
        assert (back.version, back.like, back.change) == (4, 2, "changed")
        assert back.message == "nightly is back at what version 2 says, as version 4"
        page = await stand.ask("job_versions", name="nightly")
        newest, _, second, _ = page.versions
        assert newest.definition == second.definition
        assert (newest.author, newest.source, newest.reason) == ("local", "rollback", "the payload was wrong")
        job = await stand.ask("get_job", name="nightly")
        assert (job.version, job.schedule) == (4, "cron 0 3 * * * Europe/Brussels")
        assert back.next_run_time == job.next_run_time == "2026-03-03T02:00:00Z"
        # Once more, without a reason of one's own; and to what holds already.
        await stand.ask("rollback", name="nightly", version=1)
        assert (await stand.ask("job_versions", name="nightly")).versions[0].reason == "rolled back to version 1"
        again = await stand.ask("rollback", name="nightly", version=1)
        assert (again.version, again.change) == (5, "unchanged")
        assert again.message == "nightly says what version 1 says already, at version 5"

    playing(scene)


def test_the_state_and_the_owner_stay_as_they_are(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.user("ann")
        await put(stand, {}, {"cron": "0 3 * * *"})
        await stand.ask("sql", text="ALTER JOB nightly SET OWNER = ann")
        await stand.ask("pause", name="nightly", note="holiday")
        await stand.ask("rollback", name="nightly", version=1)
        job = await stand.ask("get_job", name="nightly")
        assert (job.owner, job.state, job.pause_note, job.version) == ("ann", "PAUSED", "holiday", 4)
        assert job.schedule == "cron 0 2 * * * Europe/Brussels"

    playing(scene)


def test_the_scheduler_s_defaults_of_that_version_hold_again(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        spec = JobSpec("etl", Cron("0 2 * * *"), (TaskSpec("work"),))
        await stand.store.define([spec], defaults={"misfire_grace": "5m"})
        await stand.store.define([spec], defaults={"misfire_grace": "9m"})
        diff = await stand.ask("diff_versions", name="etl")
        assert [(each.path, each.before, each.after) for each in diff.changes] == [
            ("defaults.misfire_grace", "5m", "9m")
        ]
        await stand.ask("rollback", name="etl", version=1)
        assert (await stand.ask("get_job", name="etl")).settings["misfire_grace"] == "5m"

    playing(scene)


def test_a_version_that_never_was_is_told_with_those_that_are(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 3 * * *"})
        for version in (3, 2**53 - 1):
            with pytest.raises(NotFound, match=f'"nightly" has no version {version}') as caught:
                await stand.ask("rollback", name="nightly", version=version)
            assert "There are: 2, 1." in (caught.value.hint or "")
        with pytest.raises(NotFound):
            await stand.ask("job_version", name="nightly", version=7)
        with pytest.raises(JobNotFound):
            await stand.ask("rollback", name="weekly", version=1)
        assert (await stand.ask("get_job", name="nightly")).version == 2

    playing(scene)


def test_whoever_read_another_version_loses_and_nothing_is_changed(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 3 * * *"}, {"cron": "0 4 * * *"})
        with pytest.raises(VersionConflict) as lost:
            await stand.ask("rollback", name="nightly", version=1, expected=2)
        assert (lost.value.expected, lost.value.found) == (2, 3)
        done = await stand.ask("rollback", name="nightly", version=1, expected=3)
        assert done.version == 4

    playing(scene)


def test_a_version_written_meanwhile_has_a_whole_transaction_done_again(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter = Service.alter

    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 3 * * *"})
        meanwhile = [{"cron": "0 4 * * *"}]

        async def slow(self: Service, *given: Any, **more: Any) -> Any:
            if meanwhile and self.is_part:
                # Nothing of the transaction is written yet, so that others may write.
                await put(stand, meanwhile.pop())
            return await alter(self, *given, **more)

        monkeypatch.setattr(Service, "alter", slow)
        defined = await Service(stand.store).once(lambda service: roll_back(service, "nightly", 1))
        assert defined.version == 4
        job = await stand.ask("get_job", name="nightly")
        assert (job.version, job.schedule) == (4, "cron 0 2 * * * Europe/Brussels")

    playing(scene)


def test_a_version_that_refers_to_what_is_gone_is_refused_in_the_ordinary_words(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.store.set_pool("reports", 2)
        await stand.ask("put_job", name="first", definition=TABLE)
        await put(stand, {"pool": "reports"}, {"depends_on": ["first"]}, {})
        await stand.store.set_pool("reports", None)
        await stand.ask("drop_job", name="first")
        for version in (1, 2):
            with pytest.raises(InvalidDefinition) as caught:
                await stand.ask("rollback", name="nightly", version=version)
            assert ("reports" if version == 1 else "first") in caught.value.message
        assert (await stand.ask("get_job", name="nightly")).version == 3

    playing(scene)


def test_only_those_who_may_alter_the_job_go_back_and_only_its_owner_to_other_work(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 3 * * *"}, {"cron": "0 3 * * *", "python": "other"})
        eve = await stand.user("eve", Grant(VIEW, "nightly"))
        with pytest.raises(AccessDenied, match="ALTER JOB"):
            # Whether there is such a version is not told to those who may not.
            await eve.ask("rollback", name="nightly", version=9)
        ann = await stand.user("ann", *(Grant(each, "nightly") for each in (VIEW, ALTER, EXECUTE)))
        with pytest.raises(AccessDenied, match="change what it does"):
            await ann.ask("rollback", name="nightly", version=2)
        await stand.ask("rollback", name="nightly", version=2)
        assert (await ann.ask("rollback", name="nightly", version=1)).version == 5
        bob = await stand.user("bob", Grant(CREATE))
        for operation in ("job_version", "rollback"):
            with pytest.raises(AccessDenied):
                await bob.ask(operation, name="nightly", version=1)
        with pytest.raises(AccessDenied):
            await bob.ask("diff_versions", name="nightly")
        assert (await ann.ask("job_version", name="nightly", version=1)).may == ["alter", "execute"]

    playing(scene)


def test_what_differs_between_two_versions_is_told_with_both_values(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        long = "x" * 300
        await put(
            stand,
            {},
            {"cron": "0 3 * * *"},
            {"cron": "0 3 * * *", "description": long, "retry": {"interval": "5s", "max_retries": 3}},
        )
        last = await stand.ask("diff_versions", name="nightly")
        assert (last.old, last.new) == (2, 3)
        assert [each.path for each in last.changes] == ["description", "settings.retry"]
        assert last.changes[0].text == f"description: none -> {long}"
        assert (last.changes[0].before, last.changes[0].after) == (None, long)
        back = await stand.ask("diff_versions", name="nightly", old=3, new=1)
        assert [each.path for each in back.changes] == ["description", "schedule", "settings.retry"]
        assert back.changes[1].text == "schedule: cron 0 3 * * * Europe/Brussels -> cron 0 2 * * * Europe/Brussels"
        assert (await stand.ask("diff_versions", name="nightly", old=2, new=2)).changes == []
        with pytest.raises(NotFound, match="no version before version 1"):
            await stand.ask("diff_versions", name="nightly", new=1)

    playing(scene)


def test_one_version_is_told_with_what_going_back_to_it_would_change(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {}, {"cron": "0 5 * * *"})
        seen = await stand.ask("job_version", name="nightly", version=1)
        assert (seen.version, seen.present, seen.fault) == (1, 2, None)
        assert [each.text for each in seen.differs] == [
            "schedule: cron 0 5 * * * Europe/Brussels -> cron 0 2 * * * Europe/Brussels"
        ]
        assert [each.nominal for each in seen.coming[:2]] == ["2026-03-03T04:00:00Z", "2026-03-04T04:00:00Z"]
        assert [each.nominal for each in seen.coming_then[:2]] == ["2026-03-03T01:00:00Z", "2026-03-04T01:00:00Z"]
        assert len(seen.coming) == len(seen.coming_then) == 5
        assert seen.toml.startswith("[jobs.nightly]")
        assert seen.sql.startswith("CREATE JOB nightly")
        before = seen.coming_then
        await stand.ask("rollback", name="nightly", version=1)
        assert (await stand.ask("job_version", name="nightly", version=1)).coming == before
        assert (await stand.ask("get_job", name="nightly")).coming[:5] == before

    playing(scene)


def test_a_preview_of_going_back_keeps_the_announced_start_where_the_version_is_graceful(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await put(stand, {"update_policy": "graceful"}, {"cron": "0 5 * * *", "update_policy": "immediate"})
        seen = await stand.ask("job_version", name="nightly", version=1)
        expected = ["2026-03-03T04:00:00Z", "2026-03-04T01:00:00Z", "2026-03-05T01:00:00Z"]
        assert [each.nominal for each in seen.coming_then[:3]] == expected
        await stand.ask("rollback", name="nightly", version=1)
        job = await stand.ask("get_job", name="nightly")
        assert [each.nominal for each in job.coming[:3]] == expected

    playing(scene)


def test_every_change_may_have_a_reason_and_a_policy_of_its_own(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        made = {"name": "nightly", "definition": TABLE, "reason": "month end"}
        await stand.ask("put_job", **made)
        later = TABLE | {"cron": "0 5 * * *"}
        await stand.ask("put_job", name="nightly", definition=later, reason="too early", update_policy="graceful")
        page = await stand.ask("job_versions", name="nightly")
        assert [(each.reason, each.source) for each in page.versions] == [("too early", "http"), ("month end", "http")]
        assert (await stand.ask("get_job", name="nightly")).next_run_time == "2026-03-03T01:00:00Z"
        await stand.ask("rollback", name="nightly", version=1, update_policy="immediate")
        with pytest.raises(InvalidPolicy):
            await stand.ask("put_job", name="nightly", definition=later, update_policy="sometime")
        with pytest.raises(InvalidInput, match="reason"):
            await stand.ask("put_job", name="nightly", definition=later, reason="\0")

    playing(scene)
