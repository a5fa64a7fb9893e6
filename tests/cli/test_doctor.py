"""`horae doctor` as a shell runs it, on catalogs with something wrong."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.store.databases import Databases

from horae import Every, Horae, Once
from horae.app.process.system_settings import system_settings
from horae.app.process.targets import load_targets
from horae.app.stores import make_store
from horae.core.job.definition import JobSpec, TaskSpec
from horae.engine.limits import checked_system
from horae.errors import InvalidPolicy
from horae.security.keys import generate_key
from horae.services.commands import Commands
from horae.services.doctor.doctor import examine
from horae.services.doctor.environment import CatalogEnvironment
from horae.testing.clock import ManualClock


def test_a_task_that_no_live_node_has_is_named_with_the_runs_that_wait_for_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"

    async def leave_one_behind() -> str:
        producer, worker = Horae(store), Horae(store, node="worker")

        @producer.task("remind")
        def remind() -> None: ...

        @worker.job("tick", Every("1h"))
        def tick() -> None: ...

        await producer.schedule("remind-42", Once(datetime.now(UTC)), task="remind")
        async with worker:
            while not await producer.runs("remind-42"):
                await asyncio.sleep(0.01)
            done = await asyncio.to_thread(horae, "doctor", "--store", store)
            told = await asyncio.to_thread(horae, "doctor", "--store", store, "--json")
        await producer.close()
        assert done.code == 1
        assert json.loads(told.out)["findings"][0]["subject"] == "remind-42"
        return done.out

    told = asyncio.run(leave_one_behind()).splitlines()
    place = told.index('error remind-42: No live node has the task "remind"; 1 of its runs wait for that')
    assert told[place + 1] == "  Deploy the code that has it, or drop the job."


def test_jobs_without_a_node_are_an_error_and_an_empty_catalog_is_fine(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    assert horae("doctor", "--store", store).code == 3
    assert not (tmp_path / "horae.db").exists()
    horae("migrate", "--store", store)
    assert horae("doctor", "--store", store).out.splitlines()[-1] == "nothing wrong"
    app = Horae(store)

    @app.task("work")
    def work() -> None: ...

    app.sync.schedule("later", Every("1d"), task="work")
    app.sync.close()
    done = horae("doctor", "--store", store)
    assert done.code == 1
    assert "error nodes: No node is alive: nothing runs" in done.out.splitlines()


def test_everything_that_was_looked_at_is_told_with_a_mark(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", store)
    done = inside("doctor", "--store", store)
    assert done.code == 0
    assert done.out.splitlines()[-1] == "nothing wrong"
    names = [line.split("  ")[0].removeprefix("✓ ").strip() for line in done.out.splitlines() if line.startswith("✓")]
    assert {"nodes", "schedules", "tasks", "slots", "waiting", "running"} <= set(names)
    assert {"store", "clock", "disk", "zone data", "secrets", "programs", "audit"} <= set(names)
    assert re.search(r"✓ store +SQLite 3\.[0-9.]+, schema [0-9]{4}, [0-9]+ kB", done.out)
    told = json.loads(inside("doctor", "--store", store, "--json").out)
    assert (told["findings"], set(told["checks"])) == ([], set(names))


def test_a_bad_configuration_is_a_finding_and_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", store)
    (tmp_path / "horae.toml").write_text("[server]\nslots = 0\n")
    done = inside("doctor", "--store", store, "--config", str(tmp_path / "horae.toml"))
    assert done.code == 1
    assert "✗ configuration" in done.out
    assert "slots in [server] must be a whole number from 1" in done.out
    assert "✓ store" in done.out


def test_secrets_without_their_key_and_programs_that_are_not_allowed_are_named(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    key = tmp_path / "master.key"
    key.touch(mode=0o600)
    key.write_text(generate_key())
    (tmp_path / "horae.toml").write_text('[secrets]\nkey_file = "master.key"\n')
    app = Horae(store, settings={"configuration": str(tmp_path / "horae.toml")})
    app.sync.sql("CREATE SECRET token = 'correct horse battery'")
    app.sync.sql("CREATE JOB say SCHEDULE = EVERY 1d EXEC '/bin/echo hello'")
    app.sync.close()
    told = json.loads(inside("doctor", "--store", store, "--json").out)
    found = {each["check"]: each for each in told["findings"]}
    assert (found["secrets"]["level"], found["secrets"]["subject"]) == ("error", "token")
    assert (found["programs"]["level"], found["programs"]["subject"]) == ("warning", "say")
    with_key = json.loads(inside("doctor", "--store", store, "--json", "--config", str(tmp_path / "horae.toml")).out)
    assert "secrets" not in {each["check"] for each in with_key["findings"]}


def test_jobs_that_their_file_does_not_have_any_more_are_named(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'horae.db'}"
    file = tmp_path / "jobs.toml"
    file.write_text('[jobs.stays]\nevery = "1h"\nsql = "SELECT 1"\n[jobs.goes]\nevery = "1h"\nsql = "SELECT 1"\n')

    async def register() -> None:
        async with load_targets([str(file)], store=store).app:
            pass

    asyncio.run(register())
    file.write_text('[jobs.stays]\nevery = "1h"\nsql = "SELECT 1"\n')
    told = json.loads(inside("doctor", str(file), "--store", store, "--json").out)
    assert [each["subject"] for each in told["findings"] if each["check"] == "definitions"] == ["goes"]
    assert told["checks"]["definitions"] == "1 jobs in the targets, 1 left over"


def test_a_slot_that_nobody_decided_and_a_node_that_hangs_are_found(tmp_path: Path) -> None:
    clock = ManualClock(datetime.now(UTC))

    async def look() -> list[tuple[str, str]]:
        store = make_store(f"sqlite:///{tmp_path / 'horae.db'}", clock=clock)
        await store.open()
        await Commands(store).define([JobSpec("late", Every("1m"), (TaskSpec("late", "SELECT 1", kind="SQL"),))])
        await store.join(UUID(int=1), name="hangs")
        clock.advance("1h")
        found = await examine(store)
        await store.close()
        return [(each.check, each.subject) for each in found.findings]

    assert asyncio.run(look()) == [("slots", "late"), ("audit", "audit trail"), ("nodes", "hangs")]


@pytest.mark.parametrize(
    ("around", "level", "check"),
    [
        (CatalogEnvironment("PostgreSQL 18", skew=-3.0), "warning", "clock"),
        (CatalogEnvironment("PostgreSQL 18", skew=90.0), "error", "clock"),
        (CatalogEnvironment("SQLite 3", is_writable=False), "error", "store"),
        (CatalogEnvironment("SQLite 3", log_size=2_000_000_000), "warning", "store"),
        (CatalogEnvironment("SQLite 3", free=100_000_000, place="/data"), "warning", "disk"),
        (CatalogEnvironment("SQLite 3", free=1_000_000, place="/data"), "error", "disk"),
    ],
)
def test_what_is_wrong_around_a_catalog_has_its_level(around: CatalogEnvironment, level: str, check: str) -> None:
    async def look() -> list[tuple[str, str]]:
        store = make_store("sqlite://")
        await store.open()
        found = await examine(store, around)
        await store.close()
        return [(each.level, each.check) for each in found.findings]

    assert asyncio.run(look()) == [(level, check)]


def test_a_setting_that_no_node_goes_by_is_named_with_the_reason(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'horae.db'}"

    async def keep() -> None:
        # As a release without bounds took it.
        store = make_store(url)
        await store.open()
        await store.set_setting("scheduler.heartbeat", 60)
        await store.set_setting("scheduler.max_concurrent_jobs", 5)
        await store.close()

    asyncio.run(keep())
    told = json.loads(inside("doctor", "--store", url, "--json").out)
    (finding,) = [each for each in told["findings"] if each["check"] == "settings"]
    assert (finding["subject"], finding["level"]) == ("scheduler.heartbeat", "warning")
    assert "Invalid heartbeat 60 s with take_over_after 30 s" in finding["message"]
    assert inside("sql", "ALTER SYSTEM SET scheduler.heartbeat = DEFAULT", "--store", url).code == 0
    assert "settings" not in json.loads(inside("doctor", "--store", url, "--json").out)["checks"]


def test_the_database_s_own_facts_are_told_on_postgresql(databases_18: Databases) -> None:
    told = json.loads(inside("doctor", "--store", databases_18.emptied(), "--json").out)
    assert told["findings"] == []
    assert told["checks"]["store"].startswith("PostgreSQL 18")
    assert told["checks"]["store"].endswith("writable")
    assert "this machine's" in told["checks"]["clock"]


def test_every_setting_of_alter_system_is_described() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        checked_system("scheduler.nothing", 1)
    known = re.findall(r"scheduler\.\w+", str(caught.value.hint))
    # The nearest one is named first, and again among all of them.
    assert [each.name for each in system_settings()] == sorted(set(known))
    for each in system_settings():
        assert each.description
        assert checked_system(each.name, each.default) == each.default
