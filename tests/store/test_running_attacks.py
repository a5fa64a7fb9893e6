"""Job text that tries to become Horae on PostgreSQL: it is refused, or it does no harm, and the settle stays Horae's.

`loot` is a sequence that only Horae's login may take numbers from, and taking one is not undone by a rollback: where it
was touched, somebody's code has run as Horae. Alice owns a schema in which she may keep functions.
"""

from __future__ import annotations

import re

import pytest
from tests.store.joining import Worker
from tests.store.running import (
    ADVISORY,
    EVERY_GROUND,
    LOCAL,
    MOST,
    Ground,
    fails,
    ground_of,
    ran,
    somebody,
    with_people,
)

from horae.core.run.lifecycle import RunState
from horae.errors import HoraeError, InvalidInput, StatementFailed
from horae.store.records import SettlementVerdict

ALICE = somebody("alice", ("SELECT", "things"), ("INSERT", "things"))
BOB = somebody("bob", ("SELECT", "things"))
SETUP = """
DROP TABLE IF EXISTS things, others CASCADE;
CREATE TABLE things (name TEXT PRIMARY KEY);
CREATE TABLE others (name TEXT);
DROP SEQUENCE IF EXISTS loot;
CREATE SEQUENCE loot;
REVOKE ALL ON SEQUENCE loot FROM PUBLIC;
"""
TAKE = """
    BEGIN
        PERFORM pg_catalog.nextval('public.loot');
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END;
"""
LAIR = f"""
DROP SCHEMA IF EXISTS lair CASCADE;
CREATE SCHEMA lair;
GRANT ALL ON SCHEMA lair TO %(alice)s;
SET ROLE %(alice)s;
CREATE FUNCTION lair.take() RETURNS boolean LANGUAGE plpgsql AS $take$ BEGIN {TAKE} RETURN true; END $take$;
CREATE FUNCTION lair.grow() RETURNS trigger LANGUAGE plpgsql AS $grow$
BEGIN
    {TAKE}
    IF (SELECT count(*) FROM lair.hydra) < 50 THEN
        SET CONSTRAINTS ALL DEFERRED;
        INSERT INTO lair.hydra VALUES (1);
    END IF;
    RETURN NULL;
END $grow$;
CREATE TABLE lair.hydra (a int);
CREATE CONSTRAINT TRIGGER grow AFTER INSERT ON lair.hydra DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION lair.grow();
RESET ROLE;
"""


@pytest.fixture(params=EVERY_GROUND)
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """With one connection for texts, so that each test's next one finds what the last has left."""
    monkeypatch.setattr("horae.store.postgres.driver.MOST_JOINED", 1)
    return ground_of(request)


async def lies_in_wait(ground: Ground, worker: Worker) -> None:
    """Alice has her schema; and the connection has settled a run before, so that its statements are prepared."""
    ground.as_superuser(LAIR.replace("%(alice)s", ground.role("alice")))
    async with worker.joins() as joined:
        await joined.run_text("SELECT 1", ALICE, MOST)


def is_untouched(ground: Ground) -> bool:
    [(taken, admins)] = ground.as_superuser(
        "SELECT is_called, (SELECT count(*) FROM sys.users WHERE is_admin) FROM loot"
    )
    return (taken, admins) == (False, 1)


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "become another": [
        "RESET ROLE",
        "SET ROLE NONE",
        "SET LOCAL ROLE pg_monitor",
        "SET SESSION AUTHORIZATION DEFAULT",
        "RESET SESSION AUTHORIZATION",
        "SELECT set_config('role', session_user, true)",
        "SELECT set_config('session_authorization', session_user, false)",
        "DO $$ BEGIN EXECUTE 'RESET ROLE'; END $$",
        "CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql SET role = 'none' AS 'SELECT'; SELECT pg_temp.f()",
    ],
    "end the transaction": [
        "DO $$ BEGIN COMMIT; END $$",
        "DO $$ BEGIN ROLLBACK; END $$",
        "CREATE PROCEDURE pg_temp.p() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'; CALL pg_temp.p()",
        "DO $$ BEGIN EXECUTE 'COMMIT'; END $$",
        "PREPARE q AS SELECT 1; DO $$ BEGIN EXECUTE 'SAVEPOINT here'; END $$",
        "SELECT 1; DISCARD ALL",
        "VACUUM",
        "SET TRANSACTION READ ONLY",
        "SET transaction_read_only = on",
    ],
    "change the function": [
        "ALTER FUNCTION horae_run.{function} SECURITY INVOKER",
        "ALTER FUNCTION horae_run.{function} RESET ALL",
        "DROP FUNCTION horae_run.{function}",
        "CREATE OR REPLACE FUNCTION horae_run.{function}(text) RETURNS void LANGUAGE sql AS 'SELECT'",
        "GRANT EXECUTE ON FUNCTION horae_run.{function} TO PUBLIC",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA horae_run TO PUBLIC",
        "ALTER SCHEMA horae_run RENAME TO mine",
        "GRANT USAGE ON SCHEMA horae_run TO PUBLIC",
        "SELECT horae_run.{function}('{{}}', 1)",
        "CREATE FUNCTION horae_run.mine() RETURNS void LANGUAGE sql AS 'SELECT'",
        "DROP OWNED BY CURRENT_USER",
        "DROP SCHEMA horae_run CASCADE",
    ],
    "have more rights": [
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "ALTER ROLE CURRENT_USER LOGIN PASSWORD 'mine'",
        "ALTER ROLE {alice} CREATEROLE",
        "CREATE ROLE mine",
        "GRANT {login} TO {alice}",
        "GRANT {bob} TO {alice}",
        "GRANT INSERT ON others TO {alice}",
        "GRANT pg_read_all_data TO {alice}",
        "ALTER TABLE things OWNER TO {alice}",
        "CREATE TRIGGER mine AFTER INSERT ON things EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE mine AS ON INSERT TO things DO ALSO SELECT 1",
        "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION pg_catalog.now()",
        "CREATE TABLE public.mine (a int)",
        "CREATE SCHEMA mine",
        "CREATE EXTENSION IF NOT EXISTS dblink",
        "INSERT INTO others VALUES ('x')",
        "UPDATE things SET name = 'x'",
        "DELETE FROM things",
        "TRUNCATE things",
        "ALTER SYSTEM SET work_mem = '1GB'",
        "ALTER DATABASE {database} SET work_mem = '1GB'",
    ],
    "see the catalog": [
        "SELECT * FROM sys.jobs",
        "SELECT count(*) FROM sys.users",
        "UPDATE sys.users SET is_admin = true",
        "CREATE VIEW pg_temp.mine AS SELECT * FROM sys.tokens",
        "SELECT query_to_xml('SELECT * FROM sys.users', true, true, '')",
        "SELECT * FROM pg_authid",
        "SELECT * FROM pg_statistic",
    ],
    "leave the database": [
        "COPY things TO PROGRAM 'cat'",
        "COPY things FROM PROGRAM 'echo x'",
        "COPY things FROM '/etc/hostname'",
        "COPY things TO STDOUT",
        "SELECT pg_read_file('/etc/hostname')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/hostname')",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = session_user",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = session_user",
        "SELECT pg_reload_conf()",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE c AS 'libc.so.6', 'getpid'",
        "LOAD '/tmp/mine.so'",
    ],
    "keep default privileges": [
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC",
        "ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {bob}; SELECT lo_create(0)",
        "DO $$ BEGIN ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC; END $$",
    ],
    "keep large objects": [
        "SELECT lo_create(0)",
        "SELECT lo_creat(-1)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lowrite(lo_open(lo_create(4711), 131072), 'x')",
        "SELECT lo_unlink(lo_create(4711)); SELECT lo_put(lo_create(4712), 0, 'x')",
        "DO $$ BEGIN PERFORM lo_create(0); END $$",
    ],
}


def filled(text: str, ground: Ground) -> str:
    """The text with the names there are; what is its own braces stays."""
    from horae.store.postgres.text.roles import ServerLogin, role_function

    function = role_function(ServerLogin(ground.database, "", False, False), "alice").function
    [(login,)] = ground.place.sql("SELECT quote_ident(current_user)")
    names = {
        "alice": ground.role("alice"),
        "bob": ground.role("bob"),
        "function": function,
        "login": login,
        "database": ground.database,
    }
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text.replace("{{}}", "{}")


@pytest.mark.parametrize("purpose", REFUSED)
def test_a_text_cannot(ground: Ground, purpose: str) -> None:
    """…do any of these; the next text on the same connection runs as its own principal, and is settled."""

    async def body(worker: Worker) -> None:
        for text in REFUSED[purpose]:
            written = filled(text, ground)
            error = await fails(worker, f"INSERT INTO things VALUES ('gone'); {written}", ALICE)
            assert isinstance(error, StatementFailed | InvalidInput), text
            if isinstance(error, StatementFailed) and "read-only" not in error.message:
                assert re.fullmatch("[0-9A-Z]{5}", str(error.details.get("sqlstate", "00000"))), text
        [(who, name)] = await ran(worker, "SELECT current_user, count(*) FROM things", BOB)
        assert (f'"{who}"', name) == (ground.role("bob"), 0)

    with_people(ground, body, ALICE, BOB, setup=SETUP)
    assert is_untouched(ground)


# ---- what does no harm -----------------------------------------------------------------------------------------------

TEMPORARY = f"""
CREATE TEMP TABLE mine (a int);
CREATE FUNCTION pg_temp.take() RETURNS trigger LANGUAGE plpgsql AS $take$ BEGIN {TAKE} RETURN NULL; END $take$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.take();
INSERT INTO mine VALUES (1)
"""
HARMLESS = {
    "a deferred trigger": TEMPORARY,
    "a cursor that is held": "DECLARE mine CURSOR WITH HOLD FOR SELECT lair.take()",
    "a cursor that a trigger holds": TEMPORARY.replace(
        TAKE, f"{TAKE} EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT lair.take()';"
    ),
    "types named like the server's": """
        CREATE DOMAIN pg_temp.uuid AS pg_catalog.uuid CHECK (lair.take());
        CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (lair.take());
        CREATE DOMAIN pg_temp.int8 AS pg_catalog.int8 CHECK (lair.take());
        CREATE DOMAIN pg_temp.jsonb AS pg_catalog.jsonb CHECK (lair.take())
    """,
    "tables named like the server's": """
        CREATE TEMP VIEW pg_locks AS SELECT lair.take(), 1 AS pid;
        CREATE TEMP VIEW pg_proc AS SELECT lair.take();
        CREATE TEMP TABLE job_runs (a int)
    """,
    "operators and functions found first": """
        CREATE FUNCTION lair.same(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT lair.take()';
        CREATE OPERATOR lair.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = lair.same);
        CREATE FUNCTION lair.same(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT lair.take()';
        CREATE OPERATOR lair.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = lair.same);
        CREATE FUNCTION lair.unnest(anyarray) RETURNS boolean LANGUAGE sql AS 'SELECT lair.take()';
        CREATE FUNCTION lair.pg_notify(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT lair.take()';
        SET search_path = lair, pg_catalog
    """,
    "statements prepared under our names": """
        DO $$
        DECLARE had record; number int;
        BEGIN
            FOR had IN SELECT name, parameter_types::text[] AS types FROM pg_prepared_statements WHERE NOT from_sql LOOP
                EXECUTE format('DEALLOCATE %I', had.name);
                EXECUTE format('PREPARE %I%s AS SELECT lair.take()', had.name,
                    CASE WHEN had.types = '{}' THEN '' ELSE '(' || array_to_string(had.types, ', ') || ')' END);
            END LOOP;
            FOR number IN 0 .. 400 LOOP
                BEGIN
                    EXECUTE format('PREPARE _pg3_%s AS SELECT lair.take()', number);
                EXCEPTION WHEN duplicate_prepared_statement THEN NULL;
                END;
            END LOOP;
        END $$
    """,
    "our statements forgotten": "DEALLOCATE ALL",
    "settings": """
        SET array_nulls = off; SET standard_conforming_strings = off; SET escape_string_warning = off;
        SET transform_null_equals = on; SET client_encoding = 'LATIN1'; SET bytea_output = 'escape';
        SET statement_timeout = 1; SET lock_timeout = 1; SET idle_in_transaction_session_timeout = 1;
        SET synchronous_commit = off; SET row_security = off; SET enable_indexscan = off; SET timezone = 'Asia/Tokyo';
        SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; SET default_transaction_read_only = on;
        SET horae.job_name = 'another'; SET LOCAL search_path = lair
    """,
    "a function that runs as its maker": f"""
        CREATE FUNCTION lair.mine() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $mine$ BEGIN {TAKE} END $mine$;
        SELECT lair.mine()
    """,
    "locks and notices": "SELECT pg_advisory_lock(42); LISTEN mine; NOTIFY horae; NOTIFY mine, 'x'",
    "sequences and temporary tables": "CREATE TEMP SEQUENCE s; SELECT nextval('s'); CREATE TEMP TABLE things (a int)",
    "a default of a domain": """
        CREATE DOMAIN lair.named AS text DEFAULT lair.take()::text; CREATE TEMP TABLE t (a int, b lair.named)
    """,
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_a_text_leaves_behind_is_gone_before_the_run_is_settled(ground: Ground, what: str) -> None:
    async def body(worker: Worker) -> None:
        await lies_in_wait(ground, worker)
        async with worker.joins() as joined:
            [(pid,)] = await joined.execute("SELECT pg_backend_pid()")
            await joined.run_text(HARMLESS[what], ALICE, MOST)
            settled = await joined.settle(worker.word(0))
            assert settled.verdict is SettlementVerdict.SETTLED
        [first, second] = (await worker.store.history(worker.claim.run_id)).tasks
        assert (first.state, second.state) == ("SUCCESS", "RUNNING")
        # Whoever has the connection next finds nothing of it.
        async with worker.joins() as joined:
            [left] = await joined.execute(
                "SELECT pg_backend_pid(), current_user = session_user, to_regclass('pg_temp.things') IS NULL,"
                " (SELECT count(*) FROM pg_prepared_statements WHERE from_sql), (SELECT count(*) FROM pg_cursors"
                f" WHERE is_holdable), (SELECT count(*) FROM pg_locks WHERE {ADVISORY}),"
                " (SELECT count(*) FROM pg_listening_channels()), current_setting('statement_timeout'),"
                " current_setting('search_path'), current_setting('default_transaction_read_only'),"
                " current_setting('array_nulls'), current_setting('horae.job_name', true)"
            )
            own = '"$user", public'
            assert left in [(pid, True, True, 0, 0, 0, 0, "0", own, "off", "on", told) for told in (None, "")]
            await joined.run_text("SELECT 1", BOB, MOST)

    with_people(ground, body, ALICE, BOB, setup=SETUP)
    assert is_untouched(ground)


HYDRA = "INSERT INTO lair.hydra VALUES (1)"
LATE = {
    "on a temporary table": (
        TEMPORARY.replace(
            TAKE,
            f"{TAKE} IF (SELECT count(*) FROM mine) < 50 THEN SET CONSTRAINTS ALL DEFERRED;"
            " INSERT INTO mine VALUES (1); END IF;",
        ),
        "pending trigger events",
    ),
    "on a table that lasts": (HYDRA, "deferrable trigger grow on hydra"),
    "in a function": (f"DO $$ BEGIN {HYDRA}; END $$", "deferrable trigger grow on hydra"),
    "hidden": (f"{HYDRA}; ALTER TABLE lair.hydra DISABLE TRIGGER grow", "pending trigger events"),
}


@pytest.mark.parametrize("where", LATE)
def test_a_trigger_that_defers_itself_again_is_refused(ground: Ground, where: str) -> None:
    """Left alone, it would go on at the commit, as Horae on PostgreSQL 16."""
    text, message = LATE[where]

    async def body(worker: Worker) -> None:
        await lies_in_wait(ground, worker)
        assert message in (await fails(worker, text, ALICE)).message
        await ran(worker, "SELECT 1", BOB)

    with_people(ground, body, ALICE, BOB, setup=SETUP)
    assert is_untouched(ground)


def test_a_session_that_a_text_has_ended_is_its_own_failure(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        error: HoraeError = await fails(worker, "SET transaction_timeout = '50ms'; SELECT pg_sleep(600)", ALICE)
        assert isinstance(error, StatementFailed)
        await ran(worker, "SELECT 1", BOB)

    with_people(ground, body, ALICE, BOB, setup=SETUP)


def test_an_administrators_text_runs_as_horaes_login_and_is_bound_alike(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        for text in ("RESET ROLE", "SET ROLE pg_monitor", "DO $$ BEGIN COMMIT; END $$"):
            assert isinstance(await fails(worker, text, LOCAL), StatementFailed)
        [(who, same, jobs)] = await ran(
            worker, "SELECT current_user, current_user = session_user, count(*) FROM sys.jobs", LOCAL
        )
        assert (who in ground.url or ground.is_superuser, same, jobs) == (True, True, 1)
        [run] = await worker.store.runs()
        assert run.state is RunState.RUNNING

    with_people(ground, body, setup=SETUP)
