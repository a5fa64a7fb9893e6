"""What the vault's verbs leave in the tables, and what the database itself is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import psycopg
import pytest
from tests.store.catalogs import Place, minutely
from tests.store.databases import Databases

from horae.core.access import Grant, Privilege, role_uuid, user_uuid
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron
from horae.errors import Conflict, InUse
from horae.store.catalog.catalog import Catalog
from horae.store.driver import RoleChange
from horae.store.sqlite.driver import SqliteDriver
from horae.store.sqlite.transaction import SqliteTransaction
from horae.testing.clock import ManualClock

SHARD = "11111111-1111-4111-8111-111111111111"


def run(place: Place, body: Callable[[Catalog], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = place.store(ManualClock())
        await store.open()
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(whole())


def job(name: str, task: TaskSpec, **parts: object) -> JobSpec:
    return JobSpec(name, Cron("* * * * *"), (task,), **parts)  # type: ignore[arg-type]  # parts of a JobSpec, by name


def test_a_job_s_row_shows_who_has_it_whom_it_runs_as_and_where_it_belongs(place: Place) -> None:
    async def body(store: Catalog) -> None:
        await store.create_user("ann")
        await store.create_role("crew")
        await store.define(
            [
                job("a", TaskSpec("t", "SELECT 1", "SQL"), run_as="crew", job_class="LEADER_ONLY"),
                job("b", TaskSpec("t", "tidy", "PROCEDURE"), partition={"strategy": "SINGLE_SHARD", "shards": [SHARD]}),
                job(
                    "c", TaskSpec("t", "ls", "EXTERNAL"), partition={"strategy": "SHARD_SET", "shards": [SHARD, SHARD]}
                ),
                job("d", TaskSpec("t"), partition={"strategy": "DYNAMIC", "expression": "pick()"}),
            ],
            by="ann",
        )
        await store.register_procedures({"tidy": "app.tidy"})
        await store.define([job("d", TaskSpec("t"), partition={"strategy": "ALL_SHARDS"}, run_as="crew")])

    run(place, body)
    rows = place.sql(
        "SELECT job_name, job_sql, external_command, job_class, partition_strategy, partition_shard_uuid,"
        " partition_expression, run_as_role_uuid, created_by_user_uuid FROM sys.jobs ORDER BY job_name"
    )
    crew, ann = str(role_uuid("crew")), str(user_uuid("ann"))
    assert [tuple(None if part is None else str(part) for part in row) for row in rows] == [
        ("a", "SELECT 1", None, "LEADER_ONLY", None, None, None, crew, ann),
        ("b", None, None, None, "SINGLE_SHARD", SHARD, None, None, ann),
        ("c", None, "ls", None, "SHARD_SET", None, json.dumps([SHARD]), None, ann),
        ("d", None, None, None, "ALL_SHARDS", None, None, crew, ann),
    ]
    called = place.sql("SELECT j.job_name FROM sys.jobs j JOIN sys.procedures p ON p.procedure_uuid = j.procedure_uuid")
    assert called == [("b",)]


def test_another_password_or_state_ends_the_sessions_of_that_user(place: Place) -> None:
    def sessions() -> list[tuple[str]]:
        return [(row[0],) for row in place.sql("SELECT session_hash FROM sys.sessions ORDER BY session_hash")]

    def log_in(name: str) -> None:
        place.sql(
            "INSERT INTO sys.sessions (session_hash, user_uuid, created_at, expires_at)"
            f" VALUES ('{name}', '{user_uuid(name)}', 0, 1)"
        )

    async def body(store: Catalog) -> None:
        await store.create_user("ann")
        await store.create_user("bob")
        log_in("ann")
        log_in("bob")
        await store.alter_user("ann", is_admin=True, is_enabled=True)
        assert sessions() == [("ann",), ("bob",)]
        await store.alter_user("ann", password_hash="$another")  # noqa: S106 - no password, and nobody's
        assert sessions() == [("bob",)]
        log_in("ann")
        await store.alter_user("ann", is_enabled=False)
        assert sessions() == [("bob",)]
        await store.drop_user("bob")
        assert sessions() == []

    run(place, body)


def test_a_seal_that_was_removed_leaves_its_rows_without_one(place: Place) -> None:
    """Their places are not given to others, which would hide it."""

    async def body(store: Catalog) -> None:
        await store.define([minutely("a"), minutely("b")])
        assert await store.seal() == 2
        place.sql("DELETE FROM sys.audit_seals")
        await store.drop(["a"])
        with pytest.raises(Conflict, match="sealed up to seal 1"):
            await store.seal()
        place.sql("DELETE FROM sys.audit_heads")
        assert await store.seal() == 1
        assert [row.position for row in await store.audit()] == [1, 2, 3]
        assert [(seal.first, seal.last) for seal in await store.seals()] == [(3, 3)]

    run(place, body)


def test_a_row_that_is_committed_late_is_sealed_late(databases_18: Databases) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(store: Catalog) -> None:
        with psycopg.connect(place.target) as late:
            late.execute("INSERT INTO sys.audit (at, event, actor, outcome) VALUES (1, 'LATE', 'ann', 'OK')")
            await store.note("EARLY", by="ann", outcome="OK")
            assert await store.seal() == 1
            late.commit()
        assert await store.seal() == 1
        rows = await store.audit()
        assert [(row.event, row.position) for row in rows] == [("EARLY", 1), ("LATE", 2)]
        assert rows[0].number > rows[1].number

    run(place, body)


def test_whoever_seals_waits_for_another_that_does(databases_18: Databases) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(store: Catalog) -> None:
        await store.define([minutely("a"), minutely("b")])
        async with store.together() as first:
            assert await first.seal() == 2
            second = asyncio.create_task(store.seal())
            while not place.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0)
        assert await second == 0

    run(place, body)


def test_a_definition_and_the_drop_of_the_role_it_runs_as_never_miss_each_other(databases_18: Databases) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(store: Catalog) -> None:
        await store.create_role("crew")
        async with store.together() as defining:
            await defining.define([job("a", TaskSpec("t"), run_as="crew")])
            dropping = asyncio.create_task(store.drop_role("crew"))
            while not place.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0)
        with pytest.raises(InUse, match='"a"'):
            await dropping

    run(place, body)


def test_the_database_is_told_of_people_while_their_rows_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[RoleChange, int]] = []

    async def provision(self: SqliteTransaction, change: RoleChange) -> str | None:
        there = await self.rows("find_principals", names=[change.name])
        heard.append((change, len(there)))
        return f"db_{change.name}"

    monkeypatch.setattr(SqliteTransaction, "provision", provision)
    tables = [Grant(Privilege.SELECT, "orders"), Grant(Privilege.CREATE_JOB), Grant(Privilege.INSERT, "orders")]

    async def body() -> None:
        store = Catalog(SqliteDriver(":memory:"))
        await store.open()
        await store.create_user("ann")
        await store.create_role("crew")
        await store.grant(tables[:2], ["crew"])
        await store.grant(tables, ["crew"])
        await store.revoke([tables[0], Grant(Privilege.DELETE, "orders")], ["crew"])
        await store.add_members(["crew"], ["ann"])
        await store.add_members(["crew"], ["ann"])
        await store.remove_members(["crew"], ["ann"])
        async with store.driver.transaction(write=False) as transaction:
            kept = [await transaction.rows(name, name=None) for name in ("read_users", "read_roles")]
        assert [len(rows) for rows in kept] == [2, 1]
        await store.drop_role("crew")
        await store.drop_user("ann")
        await store.close()

    asyncio.run(body())
    assert heard == [
        (change, 1)
        for change in (
            RoleChange("create_user", "ann"),
            RoleChange("create_role", "crew"),
            RoleChange("grant_table", "crew", privilege="SELECT", table="orders"),
            RoleChange("grant_table", "crew", privilege="INSERT", table="orders"),
            RoleChange("revoke_table", "crew", privilege="SELECT", table="orders"),
            RoleChange("add_member", "ann", "crew"),
            RoleChange("remove_member", "ann", "crew"),
            RoleChange("drop", "crew"),
            RoleChange("drop", "ann"),
        )
    ]


def test_what_the_database_calls_a_user_or_a_role_is_kept(databases_18: Databases) -> None:
    place = Place("postgres", databases_18.emptied())

    async def body(store: Catalog) -> None:
        await store.create_user("ann")
        await store.create_role("crew")

    run(place, body)
    [(user,)] = place.sql("SELECT database_role FROM sys.users WHERE user_name = 'ann'")
    [(role,)] = place.sql("SELECT database_role FROM sys.roles")
    roles = {row[0] for row in place.sql("SELECT rolname::text FROM pg_roles")}
    assert {user, role} <= roles
