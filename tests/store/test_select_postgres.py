"""SELECTs on PostgreSQL that try to write, to wait, to become another or to look elsewhere, under both logins."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.catalogs import PATIENCE, minutely, opened
from tests.store.running import ADVISORY, EVERY_GROUND, Ground, ground_of, new_ground

from horae.errors import InvalidInput, StatementFailed, StoreRefused
from horae.services.doctor.doctor import examine
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store

SETUP = """
DROP TABLE IF EXISTS mine CASCADE;
CREATE TABLE mine (a int);
DROP SEQUENCE IF EXISTS loot;
CREATE SEQUENCE loot;
CREATE OR REPLACE FUNCTION public.writes() RETURNS int LANGUAGE sql AS 'INSERT INTO public.mine VALUES (1) RETURNING a';
CREATE OR REPLACE FUNCTION public.defined() RETURNS int LANGUAGE sql SECURITY DEFINER
    AS 'INSERT INTO public.mine VALUES (1) RETURNING a';
CREATE OR REPLACE FUNCTION public.reads() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM sys.tokens';
"""
REFUSED = [
    "SELECT u FROM sys.users u",
    "SELECT public.writes()",
    "SELECT public.defined()",
    "SELECT public.reads()",
    "SELECT * FROM public.mine",
    "SELECT nextval('public.loot')",
    "SELECT setval('public.loot', 7)",
    "SELECT lo_import('/etc/hostname')",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT pg_read_file('/etc/hostname')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = session_user",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = session_user",
    "SELECT pg_reload_conf()",
    "SELECT pg_create_restore_point('x')",
    "SELECT set_config('role', session_user, true)",
    "SELECT set_config('session_authorization', session_user, false)",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT query_to_xml('DELETE FROM sys.audit', true, true, '')",
    "SELECT query_to_xml('SELECT * FROM sys.tokens', true, true, '')",
    "SELECT table_to_xml('sys.users', true, true, '')",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_statistic",
    "SELECT * FROM dblink('dbname=x', 'SELECT 1') AS t (a int)",
    "SELECT horae_run.read('x', 1, 1)",
    "SELECT * FROM sys.jobs FOR SHARE",
    "SELECT * FROM sys.jobs; COMMIT",
    "(SELECT 1)",
]


@pytest.fixture(params=EVERY_GROUND)
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setattr("horae.store.postgres.driver.MOST_JOINED", 1)
    return ground_of(request)


async def selected(store: Store, sql: str, seconds: float = PATIENCE) -> list[tuple[object, ...]]:
    assert isinstance(store, Catalog)
    return await store.driver.select(sql, 100, seconds)


def test_what_would_write_or_reach_further_is_refused(ground: Ground) -> None:
    ground.place.sql(SETUP)

    async def body(store: Store) -> None:
        for text in REFUSED:
            with pytest.raises(InvalidInput):
                await selected(store, text)
        assert await selected(store, "SELECT count(*) FROM sys.jobs") == [(0,)]

    asyncio.run(opened(ground.place, None, body))
    assert ground.as_superuser("SELECT (SELECT count(*) FROM public.mine), is_called FROM public.loot") == [(0, False)]


def test_what_a_select_does_to_its_session_meets_nobody_else(ground: Ground) -> None:
    async def body(store: Store) -> None:
        await selected(store, "SELECT pg_advisory_lock(42), pg_notify('horae', 'x'), setseed(0.5)")
        await selected(store, "SELECT set_config('statement_timeout', '1', false), set_config('horae.x', 'y', false)")
        asked = (
            f"SELECT current_setting('statement_timeout'), (SELECT count(*) FROM pg_locks WHERE {ADVISORY}),"
            " current_setting('horae.x', true), current_setting('transaction_read_only')"
        )
        [(timeout, locks, left, read_only)] = await selected(store, asked, seconds=70)
        assert (timeout, locks, left or None, read_only) == ("70s", 0, None, "on")

    asyncio.run(opened(ground.place, None, body))


def test_a_select_that_waits_is_stopped(ground: Ground) -> None:
    async def body(store: Store) -> None:
        for text in ("SELECT pg_sleep(600)", "SELECT set_config('statement_timeout', '0', true), pg_sleep(600)"):
            with pytest.raises(InvalidInput, match="longer than"):
                await selected(store, text, seconds=0.2)

    asyncio.run(opened(ground.place, None, body))


def test_the_reader_reads_exactly_what_is_not_hidden(ground: Ground) -> None:
    async def body(store: Store) -> None:
        await selected(store, "SELECT 1")
        [(who,)] = await selected(store, "SELECT current_user")
        rows = ground.as_superuser(
            "SELECT relname || '.' || attname, has_column_privilege(r.oid, c.oid, attnum, 'SELECT'),"
            " has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE, REFERENCES')"
            " OR has_table_privilege(r.oid, c.oid, 'DELETE, TRUNCATE, TRIGGER')"
            " FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid, pg_roles r"
            f" WHERE relnamespace = 'sys'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0 AND rolname = '{who}'"
        )
        hidden = {str(name) for name, is_readable, _ in rows if not is_readable}
        tables = {"users", "tokens", "sessions", "kept_answers", "job_secrets", "secrets", "audit_keys", "locks"}
        tables |= {"password_tries", "rights_marks"}
        assert {name.split(".")[0] for name in hidden} == tables
        assert {name for name in hidden if name.startswith("users.")} == {"users.password_hash"}
        assert not [name for name, _, is_writable in rows if is_writable]

    asyncio.run(opened(ground.place, None, body))


def test_rights_that_were_changed_are_set_right_by_the_next_who_opens_the_store(ground: Ground) -> None:
    async def spoil(store: Store) -> None:
        [(who,)] = await selected(store, "SELECT current_user")
        ground.as_superuser(f'GRANT SELECT ON sys.tokens TO "{who}"; REVOKE SELECT ON sys.jobs FROM "{who}"')

    async def body(store: Store) -> None:
        assert await selected(store, "SELECT count(*) FROM sys.jobs") == [(0,)]
        with pytest.raises(InvalidInput):
            await selected(store, "SELECT count(*) FROM sys.tokens")

    asyncio.run(opened(ground.place, None, spoil))
    asyncio.run(opened(ground.place, None, body))


def test_a_reading_function_that_was_changed_reads_nothing(ground: Ground) -> None:
    fresh = new_ground(ground.server, is_superuser=ground.is_superuser)

    async def body(store: Store) -> None:
        await store.define([minutely("a")])
        await selected(store, "SELECT 1")
        [(name,)] = fresh.as_superuser("SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'read\\_%'")
        fresh.as_superuser(f"ALTER FUNCTION {name} SECURITY INVOKER")
        with pytest.raises(StatementFailed, match="not as Horae made it"):
            await selected(store, "SELECT * FROM sys.tokens")

    asyncio.run(opened(fresh.place, None, body))


def test_a_login_that_may_not_create_roles_is_told_so(ground: Ground) -> None:
    fresh = new_ground(ground.server, is_superuser=False)
    fresh.as_superuser(f"ALTER ROLE {fresh.database} NOCREATEROLE")

    async def body(store: Store) -> None:
        with pytest.raises(StoreRefused, match="may not create roles"):
            await selected(store, "SELECT 1")

    asyncio.run(opened(fresh.place, None, body))


def test_what_is_ones_own_is_read_by_a_login_that_may_not_create_roles(ground: Ground) -> None:
    fresh = new_ground(ground.server, is_superuser=False)
    fresh.as_superuser(f"ALTER ROLE {fresh.database} NOCREATEROLE")

    async def body() -> None:
        store = fresh.place.store()
        await store.open()
        try:
            await store.define([minutely("a"), minutely("b")])
            found = await store.select(" SELECT job_name, created_at > 0 AS is_new FROM jobs ORDER BY 1; ", own=True)
            assert (found, found.columns, found.cut) == ([("a", True), ("b", True)], ("job_name", "is_new"), False)
            cut = await store.select("SELECT job_name FROM sys.jobs -- all", own=True, most=1)
            assert (len(cut), cut.cut) == (1, True)
            empty = await store.select("SELECT job_name FROM jobs WHERE false", own=True)
            assert (empty, empty.columns) == ([], ("job_name",))
            for text in (
                "DELETE FROM sys.jobs",
                "SELECT * FROM sys.users",
                "SELECT 1 FROM sys.tokens",
                "SELECT nothing",
                "SELECT u FROM sys.users u",
                'SELECT * FROM sys.U&"t\\006fkens"',
                "SELECT 1 AS a$$) line LIMIT 0; COMMIT; CREATE TABLE pwn (x int); SELECT * FROM (SELECT 1 AS b$$",
            ):
                with pytest.raises(InvalidInput):
                    await store.select(text, own=True)
            with pytest.raises(InvalidInput):
                await store.select("WITH gone AS (DELETE FROM sys.jobs RETURNING 1) SELECT * FROM gone", own=True)
            assert len(await store.jobs()) == 2
            findings = [each.message for each in (await examine(store)).findings]
            assert not [each for each in findings if "role" in each]
        finally:
            await store.close()

    asyncio.run(body())
