"""Definitions at the desk: a job put and read back, said as text, and what it said before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.api.stand import CREATE, EXECUTE, VIEW, Scene, Stand

from horae.core.access import Grant
from horae.errors import AccessDenied, AlreadyExists, HoraeError, InvalidJobFile, JobNotFound, VersionConflict
from horae.formats.krontab.job import job_from_krontab
from horae.formats.krontab.parser import parse_line
from horae.services.turns import defining
from horae_store_tests.contract.builders import HOURLY, job

Playing = Callable[[Scene], None]
TABLE = {"cron": "0 2 * * *", "timezone": "Europe/Brussels", "python": "work", "tags": ["reports"]}


def test_what_is_read_of_a_job_can_be_put_and_changes_nothing(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        made = await stand.ask("put_job", name="nightly", definition=TABLE)
        assert (made.version, made.change) == (1, "created")
        read = await stand.ask("get_job", name="nightly")
        assert (read.schedule, read.timezone, read.tags) == (
            "cron 0 2 * * * Europe/Brussels",
            "Europe/Brussels",
            ["reports"],
        )
        for version in (read.version, None):
            again = await stand.ask("put_job", name="nightly", definition=read.definition, version=version)
            assert (again.version, again.change) == (1, "unchanged")
        await stand.ask("pause", name="nightly")
        paused = await stand.ask("get_job", name="nightly")
        assert paused.definition["state"] == "PAUSED"
        assert (await stand.ask("put_job", name="nightly", definition=paused.definition)).change == "unchanged"
        kept = await stand.ask("put_job", name="nightly", definition=TABLE | {"description": "new"})
        assert kept.change == "changed"
        assert (await stand.ask("get_job", name="nightly")).state == "PAUSED"

    playing(scene)


def test_large_definitions_are_changed_one_after_the_other_and_others_need_not_wait_for_them(playing: Playing) -> None:
    crons = [{"cron": f"{at % 60} {at // 60} * * *", "timezone": "UTC"} for at in range(1_440)]
    large = {"schedules": crons, "python": "work"}

    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann", Grant(CREATE))
        async with defining(stand.store).taken("bob"):
            waiting = asyncio.create_task(ann.ask("put_job", name="large", definition=large))
            for count in range(60):
                small = TABLE | {"description": str(count)}
                assert (await ann.ask("put_job", name="small", definition=small)).version == count + 1
            assert await stand.store.jobs(["large"]) == ()
        assert (await waiting).change == "created"

    playing(scene)


def test_a_definition_that_says_a_state_sets_it_with_the_rest(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("put_job", name="nightly", definition=TABLE)
        only_state = await stand.ask("put_job", name="nightly", definition=TABLE | {"state": "DISABLED"})
        assert only_state.change == "changed"
        assert (await stand.ask("get_job", name="nightly")).state == "DISABLED"
        both = TABLE | {"state": "ENABLED", "cron": "0 3 * * *"}
        await stand.ask("put_job", name="nightly", definition=both)
        read = await stand.ask("get_job", name="nightly")
        assert (read.state, read.schedule) == ("ENABLED", "cron 0 3 * * * Europe/Brussels")

    playing(scene)


def test_a_change_of_a_version_that_is_gone_is_refused_and_zero_means_a_new_job(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(VersionConflict):
            await stand.ask("put_job", name="nightly", definition=TABLE, version=3)
        await stand.ask("put_job", name="nightly", definition=TABLE, version=0)
        with pytest.raises(AlreadyExists) as caught:
            await stand.ask("put_job", name="nightly", definition=TABLE, version=0)
        assert "at version 1" in caught.value.message
        await stand.ask("put_job", name="nightly", definition=TABLE | {"cron": "0 4 * * *"}, version=1)
        with pytest.raises(VersionConflict) as lost:
            await stand.ask("put_job", name="nightly", definition=TABLE, version=1)
        assert (lost.value.expected, lost.value.found) == (1, 2)

    playing(scene)


def test_a_definition_that_is_none_is_told_with_its_place_and_changes_nothing(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        with pytest.raises(InvalidJobFile) as caught:
            await stand.ask("put_job", name="nightly", definition=TABLE | {"retry": {"max_retries": "many"}, "tags": 1})
        assert caught.value.details["path"] in ("retry", "tags")
        assert caught.value.message.startswith("definition: ")
        assert (await stand.ask("list_jobs")).total == 0

    playing(scene)


def test_whoever_may_not_change_a_job_is_told_so_before_what_is_wrong_with_their_change(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann", Grant(CREATE))
        await stand.define(job("etl"))
        with pytest.raises(AccessDenied):
            await ann.ask("put_job", name="etl", definition={"nonsense": 1})
        await ann.ask("put_job", name="mine", definition=TABLE)
        assert (await ann.ask("get_job", name="mine")).owner == "ann"
        assert (await ann.ask("get_job", name="mine")).may == ["alter", "drop", "execute"]

    playing(scene)


def test_what_whoever_asks_may_do_with_a_job_is_told_with_it(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.define(job("etl"), job("after", depends_on=("etl",)), job("secret", depends_on=("etl",)))
        ann = await stand.user("ann", Grant(VIEW, "etl"), Grant(EXECUTE, "etl"), Grant(VIEW, "after"))
        shown = await ann.ask("get_job", name="etl")
        assert (shown.may, shown.dependents) == (["execute"], ["after"])
        assert (await stand.ask("get_job", name="etl")).dependents == ["after", "secret"]
        with pytest.raises(AccessDenied):
            await ann.ask("get_job", name="secret")

    playing(scene)


def test_a_job_is_told_as_sql_as_toml_and_as_a_line_where_it_can_be(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        line = '0 2 * * * @tz(Europe/Brussels) @win(after,30m) name=backup command="/bin/backup --all"'
        krontab = parse_line(line)
        assert krontab is not None
        await stand.define(job_from_krontab(krontab), job("python", HOURLY))
        backup = await stand.ask("get_job", name="backup")
        assert parse_line(backup.krontab) == krontab
        assert backup.sql.startswith("CREATE JOB backup")
        assert backup.toml.startswith("[jobs.backup]")
        assert [each.window_end is not None for each in backup.coming] == [True] * 10
        await stand.ask("sql", text="DROP JOB backup; " + backup.sql)
        again = await stand.ask("get_job", name="backup")
        assert (again.toml, again.krontab) == (backup.toml, backup.krontab)
        assert (await stand.ask("get_job", name="python")).krontab is None

    playing(scene)


def test_versions_come_page_by_page_with_what_each_changed(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        for minute in range(4):
            await stand.ask("put_job", name="nightly", definition=TABLE | {"cron": f"{minute} 2 * * *"})
        first = await stand.ask("job_versions", name="nightly", limit=3)
        assert [each.version for each in first.versions] == [4, 3, 2]
        assert first.versions[2].changes == [
            "schedule: cron 0 2 * * * Europe/Brussels -> cron 1 2 * * * Europe/Brussels"
        ]
        assert (first.versions[0].author, first.next_before) == ("local", 2)
        last = await stand.ask("job_versions", name="nightly", before=first.next_before)
        assert [(each.version, each.changes, each.source) for each in last.versions] == [(1, [], "http")]
        assert last.versions[0].definition["cron"] == "0 2 * * *"
        assert last.next_before is None

    playing(scene)


def nested(depth: int) -> object:
    found: object = 1
    for _ in range(depth):
        found = [found]
    return found


def test_a_payload_that_could_not_be_read_again_is_not_taken(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("put_job", name="deep", definition=TABLE | {"payload": nested(64)})
        assert (await stand.ask("get_job", name="deep")).definition["payload"] == nested(64)
        await stand.ask("trigger", name="deep", payload=nested(64))
        for depth in (65, 500, 900):
            with pytest.raises(HoraeError, match="64 deep"):
                await stand.ask("put_job", name="deep", definition=TABLE | {"payload": nested(depth)})
            with pytest.raises(HoraeError, match="64 deep"):
                await stand.ask("trigger", name="deep", payload=nested(depth))
        assert (await stand.ask("get_job", name="deep")).version == 1

    playing(scene)


def test_the_name_of_a_dropped_job_is_its_last_owners(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann", Grant(CREATE))
        eve = await stand.user("eve", Grant(CREATE))
        await ann.ask("put_job", name="pay", definition=TABLE | {"payload": {"account": 7}})
        with pytest.raises(AccessDenied, match="change it"):
            await eve.ask("put_job", name="pay", definition=TABLE)
        await ann.ask("drop_job", name="pay", keep_history=True)
        for version in (None, 0):
            with pytest.raises(AccessDenied, match="somebody else's"):
                await eve.ask("put_job", name="pay", definition=TABLE, version=version)
        assert (await ann.ask("put_job", name="pay", definition=TABLE)).change == "created"

    playing(scene)


def test_the_versions_of_a_job_that_was_dropped_are_shown_to_those_who_see_everything(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        ann = await stand.user("ann")
        await stand.ask("put_job", name="gone", definition={"every": "1h", "sql": "SELECT 1"})
        await stand.ask("drop_job", name="gone", keep_history=True)
        page = await stand.ask("job_versions", name="gone")
        assert [each.version for each in page.versions] == [1]
        with pytest.raises(JobNotFound):
            await ann.ask("job_versions", name="gone")
        with pytest.raises(JobNotFound):
            await stand.ask("job_versions", name="never-there")

    playing(scene)
