"""Horae's users and roles as PostgreSQL's own, under a superuser's login and a plain one that may create roles."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.catalogs import PATIENCE
from tests.store.joining import Worker, with_worker
from tests.store.running import (
    EVERY_GROUND,
    LOCAL,
    MOST,
    PLAIN_GROUND,
    Ground,
    fails,
    ground_of,
    introduced,
    new_ground,
    provided,
    ran,
    somebody,
    with_people,
)

from horae.core.access import Grant, Privilege
from horae.errors import Conflict, InUse, InvalidInput, StatementFailed, StoreRefused
from horae.store.catalog.catalog import Catalog
from horae.store.driver import RoleChange
from horae.store.postgres.text.roles import LONGEST_NAME, ServerLogin, role_function, role_name
from horae.store.protocols.people import Identity

SETUP = """
DROP TABLE IF EXISTS things, others CASCADE;
CREATE TABLE things (id SERIAL, name TEXT);
CREATE TABLE others (a int)
"""
ALICE = somebody("alice", ("SELECT", "things"), ("INSERT", "public.things"))


@pytest.fixture(params=EVERY_GROUND)
def ground(request: pytest.FixtureRequest) -> Ground:
    return ground_of(request)


def function_of(ground: Ground, principal: str | None) -> str:
    [(login,)] = ground.place.sql("SELECT current_user::text")
    return role_function(ServerLogin(ground.database, login, False, False), principal).function


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "principal", ["postgres", "pg_monitor", "horae", "a" * 200, 'Robert"; DROP ROLE x; --', "ü:ü", "."]
)
def test_the_role_of_a_principal_has_a_name_of_its_own(principal: str) -> None:
    name = role_name("catalog", principal)
    assert name.startswith("horae:")
    assert len(name.encode()) <= LONGEST_NAME
    assert name != role_name("another", principal)
    assert name != role_name("catalog", principal + "x")


def test_strange_names_are_roles_like_any_other(ground: Ground) -> None:
    people = [somebody(name, ("SELECT", "things")) for name in ("postgres", "horae", "O'\"Hara; --", "ü\\" * 60)]

    async def body(worker: Worker) -> None:
        for who in people:
            async with worker.joins() as joined:
                [(name, attributes)] = await joined.run_text(
                    "SELECT current_user, (SELECT rolsuper OR rolcanlogin OR rolcreaterole OR rolbypassrls"
                    " FROM pg_roles WHERE rolname = current_user)",
                    who,
                    MOST,
                )
                assert (name, attributes) == (role_name(ground.database, who.name), False)
        await provided(worker.store, *(RoleChange("drop", who.name) for who in people))

    with_people(ground, body, *people, setup=SETUP)


def test_two_catalogs_of_one_server_have_people_of_one_name(ground: Ground) -> None:
    other = new_ground(ground.server, is_superuser=True)

    async def body(worker: Worker) -> None:
        async def elsewhere(there: Worker) -> None:
            await introduced(there.store, somebody("alice"))
            assert isinstance(await fails(there, "SELECT * FROM things", ALICE), StatementFailed)
            await provided(there.store, RoleChange("drop", "alice"))

        await with_worker(other.place, elsewhere, setup=SETUP)
        await ran(worker, "SELECT * FROM things", ALICE)

    with_people(ground, body, ALICE, setup=SETUP)


def test_a_role_that_is_not_ours_is_left_alone(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        role = ground.role("carol")
        ground.as_superuser(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")
        for change in (RoleChange("create_user", "carol"), RoleChange("drop", "carol")):
            with pytest.raises(Conflict, match="not Horae's"):
                await provided(worker.store, change)
        ground.as_superuser(f"DROP ROLE {role}")

    with_people(ground, body)


def test_horaes_schema_must_be_its_own(ground: Ground) -> None:
    fresh = new_ground(ground.server, is_superuser=ground.is_superuser)
    fresh.as_superuser("CREATE SCHEMA horae_run AUTHORIZATION pg_monitor")

    async def body(worker: Worker) -> None:
        with pytest.raises(Conflict, match="schema horae_run"):
            await provided(worker.store, RoleChange("create_user", "alice"))
        with pytest.raises(Conflict, match="schema horae_run"):
            async with worker.joins() as joined:
                await joined.run_text("SELECT 1", LOCAL, MOST)

    with_people(fresh, body)


# ---- rights ----------------------------------------------------------------------------------------------------------


def test_rights_come_and_go_in_the_transaction_that_says_so(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        text = "INSERT INTO things (name) VALUES ('x')"
        await introduced(worker.store, somebody("alice"))
        assert "permission denied" in (await fails(worker, text, ALICE)).message
        grant = RoleChange("grant_table", "alice", privilege="INSERT", table="Things")
        with pytest.raises(InvalidInput):
            await provided(worker.store, grant, RoleChange("grant_table", "alice", privilege="INSERT", table="nowhere"))
        assert "permission denied" in (await fails(worker, text, ALICE)).message
        await provided(worker.store, grant, grant)
        async with worker.joins() as joined:
            assert (await joined.run_text(text, ALICE, MOST)).rowcount == 1
        await provided(worker.store, RoleChange("revoke_table", "alice", privilege="INSERT", table="public.things"))
        assert "permission denied" in (await fails(worker, text, ALICE)).message

    with_people(ground, body, setup=SETUP)


def test_a_user_has_what_their_roles_have_and_a_role_only_its_own(ground: Ground) -> None:
    ops = Identity("ops", is_role=True)

    async def body(worker: Worker) -> None:
        await provided(
            worker.store,
            RoleChange("create_role", "ops"),
            RoleChange("grant_table", "ops", privilege="SELECT", table="others"),
            RoleChange("add_member", "alice", "ops"),
            RoleChange("add_member", "alice", "ops"),
        )
        async with worker.joins() as joined:
            assert await joined.run_text("SELECT count(*) FROM things, others", ALICE, MOST) == [(0,)]
            assert await joined.run_text("SELECT count(*) FROM others", ops, MOST) == [(0,)]
        assert isinstance(await fails(worker, "SELECT * FROM things", ops), StatementFailed)
        await provided(worker.store, RoleChange("remove_member", "alice", "ops"))
        assert isinstance(await fails(worker, "SELECT * FROM others", ALICE), StatementFailed)
        await provided(worker.store, RoleChange("drop", "ops"))

    with_people(ground, body, ALICE, setup=SETUP)


@pytest.mark.parametrize("text", ["DROP OWNED BY {ops}", "REASSIGN OWNED BY {ops} TO {alice}", "SET ROLE {ops}"])
def test_a_member_cannot_take_from_the_role(ground: Ground, text: str) -> None:
    ops = Identity("ops", is_role=True)

    async def body(worker: Worker) -> None:
        await provided(
            worker.store,
            RoleChange("create_role", "ops"),
            RoleChange("grant_table", "ops", privilege="SELECT", table="others"),
            RoleChange("add_member", "alice", "ops"),
        )
        written = text.format(ops=ground.role("ops"), alice=ground.role("alice"))
        assert isinstance(await fails(worker, written, ALICE), StatementFailed)
        assert await ran(worker, "SELECT count(*) FROM others", ops) == [(0,)]

    with_people(ground, body, ALICE, setup=SETUP)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nowhere", "no table"),
        ("lair.things", "no table"),
        ("sys.jobs", "not to be granted"),
        ("SYS.users", "not to be granted"),
        ('"horae_run"."x"', "not to be granted"),
        ("pg_catalog.pg_authid", "not to be granted"),
        ("information_schema.tables", "not to be granted"),
        ("", "Not the name of one table"),
        ("a.b.c", "Not the name of one table"),
        ('things"; DROP TABLE things; --', "Not the name of one table"),
        ("things; DROP TABLE things", "no table"),
        ("THINGS", ""),
        ('public."things"', ""),
        ('"THINGS"', "no table"),
    ],
)
def test_tables_are_named_by_people(ground: Ground, table: str, message: str) -> None:
    async def body(worker: Worker) -> None:
        grant = RoleChange("grant_table", "alice", privilege="DELETE", table=table)
        if not message:
            assert await provided(worker.store, grant) == [role_name(ground.database, "alice")]
            return
        with pytest.raises(InvalidInput, match=message):
            await provided(worker.store, grant)
        if message == "no table":
            # What was dropped cannot be taken back, and need not be.
            await provided(worker.store, RoleChange("revoke_table", "alice", privilege="DELETE", table=table))

    with_people(ground, body, ALICE, setup=SETUP)


def test_tables_of_other_schemas_can_be_reached_once_granted(ground: Ground) -> None:
    setup = f"{SETUP}; DROP SCHEMA IF EXISTS sales CASCADE; CREATE SCHEMA sales; CREATE TABLE sales.orders (a int)"

    async def body(worker: Worker) -> None:
        assert isinstance(await fails(worker, "SELECT * FROM sales.orders", ALICE), StatementFailed)
        await provided(worker.store, RoleChange("grant_table", "alice", privilege="SELECT", table="sales.orders"))
        assert await ran(worker, "SELECT * FROM sales.orders", ALICE) == []

    with_people(ground, body, ALICE, setup=setup)


@pytest.mark.parametrize("ground", PLAIN_GROUND, indirect=True)
def test_a_right_that_the_login_may_not_pass_on_is_refused(ground: Ground) -> None:
    ground.as_superuser("DROP TABLE IF EXISTS public.theirs; CREATE TABLE public.theirs (a int)")

    async def body(worker: Worker) -> None:
        grant = RoleChange("grant_table", "alice", privilege="SELECT", table="theirs")
        with pytest.raises(StoreRefused):
            await provided(worker.store, grant)
        [(login,)] = ground.place.sql("SELECT quote_ident(current_user)")
        ground.as_superuser(f"GRANT SELECT ON public.theirs TO {login}")
        with pytest.raises(StoreRefused, match=r"may not GRANT SELECT ON public\.theirs"):
            await provided(worker.store, grant)
        ground.as_superuser(f"GRANT SELECT ON public.theirs TO {login} WITH GRANT OPTION")
        await provided(worker.store, grant)

    with_people(ground, body, ALICE, setup=SETUP)


def test_the_administrator_is_the_login_and_has_no_role(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        changes = [
            RoleChange("create_user", "local"),
            RoleChange("grant_table", "local", privilege="SELECT", table="things"),
            RoleChange("drop", "local"),
        ]
        assert await provided(worker.store, *changes) == [None, None, None]

    with_people(ground, body, setup=SETUP)


def test_a_login_that_may_not_create_roles_is_told_what_to_do(ground: Ground) -> None:
    fresh = new_ground(ground.server, is_superuser=False)
    fresh.as_superuser(f"ALTER ROLE {fresh.database} NOCREATEROLE")

    async def body(worker: Worker) -> None:
        with pytest.raises(StoreRefused, match="may not create roles") as refused:
            await provided(worker.store, RoleChange("create_user", "alice"))
        assert "CREATEROLE" in str(refused.value.hint)
        # What needs no role goes on.
        assert await ran(worker, "SELECT 1 AS a", LOCAL) == [(1,)]

    with_people(fresh, body)


# ---- coming and going ------------------------------------------------------------------------------------------------


def test_what_was_dropped_leaves_nothing_on_the_server(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        await ran(worker, "INSERT INTO things (name) VALUES ('x')", ALICE)
        await provided(worker.store, RoleChange("drop", "alice"), RoleChange("drop", "alice"))

    with_people(ground, body, ALICE, setup=SETUP)
    name = role_name(ground.database, "alice")
    assert ground.as_superuser(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'") == []
    function = function_of(ground, "alice")
    assert ground.as_superuser(f"SELECT 1 FROM pg_proc WHERE proname = '{function}'") == []


def test_a_role_that_owns_something_is_not_dropped_with_it(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        ground.as_superuser(
            f"CREATE TABLE public.hers (a int); ALTER TABLE public.hers OWNER TO {ground.role('alice')}"
        )
        for kind in ("drop", "create_user"):
            with pytest.raises(InUse, match=r"owns table (public\.)?hers"):
                await provided(worker.store, RoleChange(kind, "alice"))
        ground.as_superuser("DROP TABLE public.hers")
        await provided(worker.store, RoleChange("drop", "alice"))

    with_people(ground, body, ALICE, setup=SETUP)


def test_default_privileges_go_with_their_role(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        alice = ground.role("alice")
        ground.as_superuser(f"ALTER DEFAULT PRIVILEGES FOR ROLE {alice} GRANT SELECT ON TABLES TO PUBLIC")
        ground.as_superuser(
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {alice} IN SCHEMA public GRANT ALL ON TABLES TO {alice}"
        )
        await provided(worker.store, RoleChange("drop", "alice"))
        assert ground.as_superuser("SELECT 1 FROM pg_default_acl") == []

    with_people(ground, body, ALICE, setup=SETUP)


def test_rights_in_another_database_are_named(ground: Ground) -> None:
    other = new_ground(ground.server, is_superuser=True)

    async def body(worker: Worker) -> None:
        other.as_superuser(f"CREATE TABLE theirs (a int); GRANT SELECT ON theirs TO {ground.role('alice')}")
        with pytest.raises(InUse, match=other.database):
            await provided(worker.store, RoleChange("drop", "alice"))
        other.as_superuser("DROP TABLE theirs")

    with_people(ground, body, ALICE, setup=SETUP)


def test_whoever_comes_back_has_nothing_of_before(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        await provided(worker.store, RoleChange("create_user", "alice"))
        assert isinstance(await fails(worker, "SELECT * FROM things", ALICE), StatementFailed)

    with_people(ground, body, ALICE, setup=SETUP)


def test_somebody_without_a_role_runs_nothing(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        stranger = Identity("stranger", grants=frozenset({Grant(Privilege.SELECT, "things")}))
        async with worker.joins() as joined:
            with pytest.raises(StatementFailed, match="no role for"):
                await joined.run_text("SELECT 1", stranger, MOST)
        assert await ran(worker, "SELECT 1 AS a", ALICE) == [(1,)]

    with_people(ground, body, ALICE, setup=SETUP)


TAMPERING = {
    "by the caller's rights": "ALTER FUNCTION {function} SECURITY INVOKER",
    "by another owner": "ALTER FUNCTION {function} OWNER TO pg_monitor",
    "with another path": "ALTER FUNCTION {function} SET search_path = lair",
    "with another setting": "ALTER FUNCTION {function} SET work_mem = '1GB'",
    "by everybody": "GRANT EXECUTE ON FUNCTION {function} TO PUBLIC",
    "with a namesake": "CREATE FUNCTION {function}(text) RETURNS void LANGUAGE sql AS 'SELECT'",
    "within its owner's reach": "GRANT USAGE ON SCHEMA horae_run TO PUBLIC",
    "in another's schema": "ALTER SCHEMA horae_run OWNER TO pg_monitor",
}


@pytest.mark.parametrize("how", TAMPERING)
def test_a_function_that_was_changed_runs_nothing(ground: Ground, how: str) -> None:
    fresh = new_ground(ground.server, is_superuser=ground.is_superuser)

    async def body(worker: Worker) -> None:
        function = f"horae_run.{function_of(fresh, 'alice')}"
        fresh.as_superuser(TAMPERING[how].format(function=function))
        error = await fails(worker, "INSERT INTO things (name) VALUES ('gone')", ALICE)
        assert isinstance(error, StatementFailed)
        assert "not as Horae made it" in error.message

    with_people(fresh, body, ALICE, setup=SETUP)
    assert fresh.place.sql("SELECT * FROM things") == []


def test_a_function_whose_text_was_changed_runs_nothing_until_it_is_dropped(ground: Ground) -> None:
    async def body(worker: Worker) -> None:
        function = function_of(ground, "alice")
        ground.as_superuser(
            "DO $do$ DECLARE made text; BEGIN"
            f" SELECT pg_get_functiondef(p.oid) INTO made FROM pg_proc p WHERE proname = '{function}';"
            " EXECUTE replace(made, 'CLOSE answer', 'NULL; CLOSE answer'); END $do$"
        )
        assert "not as Horae made it" in (await fails(worker, "SELECT 1", ALICE)).message
        ground.as_superuser(f"DROP FUNCTION horae_run.{function}")
        assert await ran(worker, "SELECT 1 AS a", ALICE) == [(1,)]

    with_people(ground, body, ALICE, setup=SETUP)


def test_many_nodes_may_begin_at_once(ground: Ground) -> None:
    """The functions that the first runs need are made once, whoever comes first."""
    fresh = new_ground(ground.server, is_superuser=ground.is_superuser)

    async def body(worker: Worker) -> None:
        stores = [fresh.place.store() for _ in range(3)]
        for store in stores:
            await store.open()
        try:

            async def reads(store: Catalog) -> None:
                async with Worker(store, worker.node, worker.claim).joins() as joined:
                    assert await joined.run_text("SELECT 1 AS a", LOCAL, MOST) == [(1,)]

            await asyncio.gather(
                *(reads(store) for store in stores), *(store.driver.select("SELECT 1", 1, PATIENCE) for store in stores)
            )
        finally:
            for store in stores:
                await store.close()

    with_people(fresh, body)
