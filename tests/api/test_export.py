"""The catalog as a file, at the desk: what is in it, what is left out, and that it reads back to the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.stand import CREATE, VIEW, Scene, Stand
from tests.core.test_jobtable_laws import SAYABLE
from tests.formats.drawn import NAMES, SETTINGS, some
from tests.tier import examples

from horae.core.access import Grant
from horae.core.job.definition import JobSpec, TaskSpec, parse_settings
from horae.core.job.dependencies import find_cycle
from horae.core.run.job_view import check_window
from horae.core.schedule.custom import Custom
from horae.core.schedule.schedules import Cron
from horae.core.time.instant import rfc3339
from horae.errors import AccessDenied, Conflict, InvalidInput, InvalidJobFile, InvalidWindow, JobNotFound, NotFound
from horae.formats.krontab.parser import read_jobs
from horae.formats.toml.job_file import read_job_file
from horae.services.plan.desired_state import parse_desired_state
from horae.services.sql.session import SqlSession
from horae.store.catalog.catalog import Catalog
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock
from horae_store_tests.contract.builders import BEGINNING, HOURLY, job

Playing = Callable[[Scene], None]
TABLE: dict[str, Any] = {"cron": "0 2 * * *", "python": "work"}


async def on_empty(work: Callable[[Stand], Any]) -> None:
    clock = ManualClock(BEGINNING)
    store = Catalog(SqliteDriver(":memory:", clock=clock.now))
    await store.open()
    try:
        await work(Stand(store, clock))
    finally:
        await store.close()


def with_few_open(spec: JobSpec) -> JobSpec:
    """The job without a window that would have too many of its slots open at once: it is refused."""
    try:
        check_window(spec, spec.settings.get("window"), BEGINNING)
    except InvalidWindow:
        return replace(spec, settings={name: value for name, value in spec.settings.items() if name != "window"})
    return spec


def consistent(specs: list[JobSpec]) -> list[JobSpec]:
    """The jobs without what refers to nobody: other users and roles, jobs that are not there, jobs in circles; and
    without windows that are refused."""
    specs = [with_few_open(spec) for spec in specs]
    names = {spec.name for spec in specs}
    kept = [
        replace(
            spec,
            owner=None,
            run_as=None,
            namespace="default",
            depends_on=tuple(name for name in spec.depends_on if name in names and name != spec.name),
        )
        for spec in specs
    ]
    if find_cycle({spec.name: spec.depends_on for spec in kept}) is not None:
        kept = [replace(spec, depends_on=()) for spec in kept]
    return kept


def pools_of(*levels: Mapping[str, Any]) -> list[str]:
    return sorted({str(each["pool"]) for each in levels if each.get("pool")})


@settings(derandomize=True, deadline=None, max_examples=examples(40))
@given(
    st.lists(SAYABLE, max_size=3, unique_by=lambda spec: spec.name),
    st.dictionaries(NAMES, st.integers(1, 99), max_size=2),
)
def test_an_exported_catalog_reads_back_to_the_same_and_putting_it_changes_nothing(
    drawn: list[JobSpec], pools: dict[str, int]
) -> None:
    specs = consistent(drawn)
    used = dict.fromkeys(pools_of(*(spec.settings for spec in specs)), 7) | pools

    async def scene(stand: Stand) -> None:
        for name, limit in used.items():
            await stand.store.set_pool(name, limit)
        await stand.store.define(specs)
        exported = await stand.ask("export")
        assert exported.left_out == []
        file = read_job_file(exported.text, file="jobs.toml")
        assert dict(file.pools) == used
        held = {record.name: record for record in await stand.store.jobs([spec.name for spec in specs])}
        assert {spec.name for spec in file.jobs} == set(held)
        for spec in file.jobs:
            record = held[spec.name]
            assert spec.to_dict() == replace(record.definition.spec, state=record.state).to_dict()
        answers = await stand.store.define(file.specs(), source="apply")
        assert {each.change for each in answers} <= {"unchanged"}
        assert (await stand.ask("export")).text == exported.text
        as_json = await stand.ask("export", format="json")
        assert {spec.name: spec for spec in parse_desired_state(json.loads(as_json.text)).specs} == {
            spec.name: spec for spec in file.specs()
        }

    asyncio.run(on_empty(scene))


@settings(derandomize=True, deadline=None, max_examples=examples(20))
@given(st.lists(SAYABLE, min_size=1, max_size=2, unique_by=lambda spec: spec.name), some(SETTINGS))
def test_in_another_catalog_the_jobs_behave_as_they_did_whatever_the_scheduler_said(
    drawn: list[JobSpec], defaults: dict[str, Any]
) -> None:
    specs = consistent(drawn)
    under = parse_settings(defaults)
    pools = pools_of(under, *(spec.settings for spec in specs))
    found: dict[str, Any] = {}

    async def first(stand: Stand) -> None:
        for name in pools:
            await stand.store.set_pool(name, 3)
        await stand.store.define(specs, defaults=under)
        found["text"] = (await stand.ask("export")).text
        found["held"] = await stand.store.jobs([spec.name for spec in specs])
        plan = await stand.ask("plan", definitions=found["text"])
        assert (plan.jobs, plan.pools, plan.unchanged) == ([], [], len(specs))

    async def second(stand: Stand) -> None:
        file = read_job_file(found["text"], file="jobs.toml")
        for name, limit in file.pools.items():
            await stand.store.set_pool(name, limit)
        await stand.store.define(file.specs(), source="apply")
        for was in found["held"]:
            (now,) = await stand.store.jobs([was.name])
            assert now.definition.settings == was.definition.settings
            assert now.definition.task_settings == was.definition.task_settings
            assert now.state is was.state
            assert now.definition.spec.schedule == was.definition.spec.schedule

    asyncio.run(on_empty(first))
    asyncio.run(on_empty(second))


def test_statements_of_an_export_make_the_jobs_again_in_an_order_that_can_be_run(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.store.set_pool("small", 2)
        await stand.ask("put_job", name="b", definition=TABLE)
        await stand.ask("put_job", name="c", definition=TABLE | {"depends_on": ["b"], "namespace": "shop"})
        await stand.ask("put_job", name="a", definition=TABLE | {"depends_on": ["c"], "pool": "small"})
        await stand.ask("pause", name="a")
        exported = await stand.ask("export", format="sql", all_namespaces=True)
        assert (exported.jobs, exported.namespaces) == (["b", "c", "a"], ["default", "shop"])
        (left_out,) = exported.left_out
        assert left_out.name == "pool small"
        assert "its limit is 2: set it with a job file, [pools] small = 2" in left_out.reason
        before = [await stand.ask("get_job", name=name) for name in "abc"]
        for name in "acb":
            await stand.ask("drop_job", name=name)
        await SqlSession(stand.service()).run(exported.text)
        again = [await stand.ask("get_job", name=name) for name in "abc"]
        assert [each.definition for each in again] == [each.definition for each in before]
        assert again[0].state == "PAUSED"
        # Once more changes nothing.
        await SqlSession(stand.service()).run(exported.text)
        assert [(await stand.ask("get_job", name=name)).version for name in "abc"] == [each.version for each in again]

    playing(scene)


def test_a_file_has_one_namespace_and_where_there_are_several_they_are_told(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("put_job", name="a", definition=TABLE)
        await stand.ask("put_job", name="b", definition=TABLE | {"namespace": "shop"})
        for more in ({}, {"all_namespaces": True}, {"format": "krontab", "all_namespaces": True}):
            with pytest.raises(InvalidInput, match='"default", "shop"'):
                await stand.ask("export", **more)
        shop = await stand.ask("export", namespace="shop")
        assert shop.text.startswith('namespace = "shop"\n')
        assert shop.jobs == ["b"]
        # Whoever names jobs of one namespace need not name it too.
        assert (await stand.ask("export", names="b")).text == shop.text
        both = await stand.ask("export", format="json", all_namespaces=True)
        assert [(each["namespace"], list(each["jobs"])) for each in json.loads(both.text)] == [
            ("default", ["a"]),
            ("shop", ["b"]),
        ]

    playing(scene)


def test_a_namespace_a_tag_or_a_name_that_is_not_there_is_told_with_what_there_is(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        empty = await stand.ask("export")
        assert read_job_file(empty.text, file="x").jobs == ()
        await stand.ask("put_job", name="nightly", definition=TABLE | {"tags": ["etl"]})
        await stand.ask("put_job", name="b", definition=TABLE | {"namespace": "shop"})
        for asked, message, hint in (
            ({"namespace": "nowhere"}, 'in the namespace "nowhere"', '"default", "shop"'),
            ({"tag": "elt"}, 'with the tag "elt"', '"etl"'),
            ({"tag": "etl", "namespace": "shop"}, 'with the tag "etl" in "shop"', "no tags"),
            ({"names": "nihgtly"}, 'no job "nihgtly"', "Did you mean nightly?"),
            ({"names": "zzz"}, 'no job "zzz"', '"b", "nightly"'),
            ({"names": "b", "namespace": "default"}, 'not in the namespace "default"', '"shop"'),
            ({"names": "nightly", "tag": "x"}, 'has no tag "x"', '"etl"'),
        ):
            with pytest.raises(NotFound, match=message) as refused:
                await stand.ask("export", **asked)
            assert hint in (refused.value.hint or "")

    playing(scene)


def test_a_dependency_that_was_not_asked_for_is_named(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.ask("put_job", name="a", definition=TABLE)
        await stand.ask("put_job", name="b", definition=TABLE | {"depends_on": ["a"], "tags": ["x"]})
        assert (await stand.ask("export")).left_out == []
        for asked in ({"names": "b"}, {"tag": "x"}):
            (left_out,) = (await stand.ask("export", **asked)).left_out
            assert (left_out.name, '"b" depends on it' in left_out.reason) == ("a", True)
        assert (await stand.ask("export", names="a\nb")).left_out == []

    playing(scene)


def test_what_no_file_can_say_is_left_out_and_named(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        program = JobSpec("own", Custom("__main__:Holidays", HOURLY) | Cron("0 1 * * *"), (TaskSpec("work"),))
        importable = JobSpec("theirs", Custom("shop.times:Holidays", HOURLY) | Cron("0 1 * * *"), (TaskSpec("work"),))
        await stand.define(program, importable, job("plain"))
        exported = await stand.ask("export")
        assert exported.jobs == ["plain", "theirs"]
        assert [each.name for each in exported.left_out] == ["own"]
        sql = await stand.ask("export", format="sql")
        assert (sql.jobs, [each.name for each in sql.left_out]) == (["plain"], ["own", "theirs"])

    playing(scene)


def test_lines_of_a_krontab_are_exported_as_lines(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        table = {
            "cron": "0 2 * * *",
            "tasks": [{"name": "command", "command": "/bin/backup"}],
            "overlap": "skip",
            "deadline": "0s",
        }
        await stand.ask("put_job", name="backup", definition=table)
        await stand.define(job("python"))
        exported = await stand.ask("export", format="krontab")
        (line,) = read_jobs(exported.text, file="x")
        assert (line.job.name, line.job.command) == ("backup", "/bin/backup")
        (left_out,) = exported.left_out
        assert left_out.name == "python"
        assert "its tasks, of the kind PYTHON" in left_out.reason
        assert "its schedule" not in left_out.reason
        await stand.ask("put_job", name="backup", definition=table | {"retry": {"max_retries": 1, "interval": "1m"}})
        with pytest.raises(Conflict, match=r"its settings \(retry\) cannot be said there \(1 more"):
            await stand.ask("export", format="krontab")

    playing(scene)


def test_only_what_whoever_asks_may_see_is_exported(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        await stand.store.set_pool("used", 1)
        await stand.store.set_pool("unused", 1)
        await stand.ask("put_job", name="a", definition=TABLE | {"pool": "used", "tags": ["x"]})
        await stand.ask("put_job", name="b", definition=TABLE)
        assert (await stand.ask("export")).pools == {"unused": 1, "used": 1}
        assert (await stand.ask("export", tag="x")).pools == {"used": 1}
        ann = await stand.user("ann", Grant(VIEW, "a"), Grant(CREATE))
        seen = await ann.ask("export")
        assert (seen.jobs, seen.pools) == (["a"], {"used": 1})
        with pytest.raises(AccessDenied):
            await ann.ask("export", names="a\nb")
        with pytest.raises(JobNotFound):
            await stand.ask("export", names="a\nc")
        with pytest.raises(InvalidInput, match="must be one of toml, sql, json, krontab"):
            await stand.ask("export", format="yaml")

    playing(scene)


def test_a_pause_with_its_end_and_its_note_comes_through_an_export_and_back(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        until = stand.clock.now() + timedelta(days=3)
        await stand.ask("apply", definitions={"jobs": {"a": TABLE, "b": TABLE, "c": TABLE}})
        await stand.ask("pause", name="a", until=until, note='a move, "of" data')
        await stand.ask("pause", name="b", note="for good")
        files = {form: (await stand.ask("export", format=form)).text for form in ("toml", "json", "sql")}
        again = await stand.ask("plan", definitions=files["toml"])
        assert again.jobs == []
        definitions: dict[str, Any] = {"toml": files["toml"], "json": json.loads(files["json"]), "sql": None}
        for form, given_text in definitions.items():

            async def apply(other: Stand, form: str = form, given_text: Any = given_text) -> None:
                if form == "sql":
                    await SqlSession(other.service()).run(files["sql"])
                else:
                    await other.ask("apply", definitions=given_text)
                a, b, c = [await other.service().queries.get_job(name) for name in ("a", "b", "c")]
                assert (a.state, a.paused_until, a.pause_note) == ("PAUSED", until, 'a move, "of" data')
                assert (b.state, b.paused_until, b.pause_note) == ("PAUSED", None, "for good")
                assert (c.state, c.paused_until, c.pause_note) == ("ENABLED", None, None)

            await on_empty(apply)
        moved = files["toml"].replace("for good", "until spring")
        plan = await stand.ask("plan", definitions=moved)
        assert [(each.name, each.change) for each in plan.jobs] == [("b", "changed")]
        await stand.ask("apply", definitions=moved)
        assert (await stand.service().queries.get_job("b")).pause_note == "until spring"
        assert (await stand.ask("plan", definitions=moved)).jobs == []

    playing(scene)


def test_a_job_that_is_shown_says_its_pause_with_its_end_and_its_note_in_toml_and_in_sql(playing: Playing) -> None:
    async def scene(stand: Stand) -> None:
        until = stand.clock.now() + timedelta(days=3)
        await stand.ask("apply", definitions={"jobs": {"a": TABLE}})
        await stand.ask("pause", name="a", until=until, note='a move, "of" data')
        whole = await stand.ask("get_job", name="a")
        version = await stand.ask("job_version", name="a", version=1)
        shown = (await SqlSession(stand.service()).run("SHOW CREATE JOB a"))[0][1]
        assert whole.toml == version.toml == (await stand.ask("export", format="toml")).text
        assert whole.sql == version.sql == shown

        for form in ("toml", "sql"):

            async def make(other: Stand, form: str = form) -> None:
                if form == "sql":
                    await SqlSession(other.service()).run(whole.sql)
                else:
                    await other.ask("apply", definitions=whole.toml)
                job = await other.service().queries.get_job("a")
                assert (job.state, job.paused_until, job.pause_note) == ("PAUSED", until, 'a move, "of" data')

            await on_empty(make)
        await stand.ask("resume", name="a")
        assert "PAUSE" not in (await stand.ask("get_job", name="a")).sql

    playing(scene)


def test_a_pause_that_is_over_by_the_time_it_is_applied_is_none() -> None:
    async def work(stand: Stand) -> None:
        over = {"state": "PAUSED", "paused_until": rfc3339(stand.clock.now() - timedelta(hours=1)), "pause_note": "x"}
        await stand.ask("apply", definitions={"jobs": {"a": TABLE | over}})
        job = await stand.service().queries.get_job("a")
        assert (job.state, job.pause_note) == ("ENABLED", None)
        assert (await stand.ask("plan", definitions={"jobs": {"a": TABLE | over}})).jobs == []

    asyncio.run(on_empty(work))


def test_a_pause_is_said_only_of_a_job_that_is_paused() -> None:
    with pytest.raises(InvalidJobFile, match="says something of a pause"):
        read_job_file('[jobs.a]\npython = "w"\nevery = "1h"\nstate = "ENABLED"\npause_note = "x"', file="jobs.toml")
