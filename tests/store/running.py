"""What the tests of SQL text share: people with rights on both stores, and PostgreSQL under two kinds of login."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from tests.store.catalogs import Place
from tests.store.databases import _EMPTY, _migrated
from tests.store.joining import Worker, with_worker
from tests.tier import ON_16
from tools.postgres import PostgresServer

from horae.core.access import Grant, Privilege
from horae.errors import HoraeError
from horae.store.catalog.catalog import Catalog
from horae.store.driver import RoleChange
from horae.store.postgres.text.roles import role_name
from horae.store.protocols.people import Identity
from horae.store.records import Rows, SettlementVerdict

VARIABLES = {"job_uuid": "7a3e", "job_run_uuid": "91bc", "job_name": "nightly"}
LOCAL = Identity("local", is_admin=True, variables=VARIABLES)
PLAIN_GROUND = (pytest.param("16 plain", marks=ON_16), "18 plain")
EVERY_GROUND = (pytest.param("16 superuser", marks=ON_16), "18 superuser", *PLAIN_GROUND)
MOST = 10_000
_BARE = """
DO $$
DECLARE
    found text;
BEGIN
    FOR found IN
        SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'sys', 'horae_run')
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', found);
    END LOOP;
    CREATE SCHEMA public AUTHORIZATION pg_database_owner;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$
"""
"""Leaves nothing of what a test made beside the catalog: the next one may use the same names."""
ADVISORY = (
    "locktype = 'advisory' AND objid = 42"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""The lock that tests leave behind, where pg_locks has it; a session of another catalog may not have ended yet."""


def somebody(name: str, *rights: tuple[str, str]) -> Identity:
    grants = frozenset(Grant(Privilege(privilege), table) for privilege, table in rights)
    return Identity(name, grants=grants, variables=VARIABLES)


async def provided(store: Catalog, *changes: RoleChange) -> list[str | None]:
    """Tells the database of people, as the verbs do."""
    async with store.driver.transaction() as transaction:
        return [await transaction.provision(change) for change in changes]


async def introduced(store: Catalog, *people: Identity) -> None:
    """Users with their rights."""
    for who in people:
        grants = [RoleChange("grant_table", who.name, privilege=each.privilege, table=each.name) for each in who.grants]
        await provided(store, RoleChange("create_user", who.name), *grants)


def apart(who: Identity) -> str | None:
    """Whose text it is, where that is run apart."""
    return None if who.name == LOCAL.name else who.name


async def ran(worker: Worker, text: str, who: Identity, most: int = MOST) -> Rows:
    """The whole SQL job: its text, and its end in the same transaction, which must be taken."""
    async with worker.joins(apart(who)) as joined:
        rows = await joined.run_text(text, who, most)
        assert (await joined.settle(worker.word(0))).verdict is SettlementVerdict.SETTLED
        return rows


async def fails(worker: Worker, text: str, who: Identity) -> HoraeError:
    """A text that fails keeps nothing, and the run can then only be settled by the ordinary verb."""
    async with worker.joins(apart(who)) as joined:
        try:
            answer = await joined.run_text(text, who, MOST)
        except HoraeError as error:
            with suppress(HoraeError):
                await joined.settle(worker.word(0))
                raise AssertionError("a text that failed was settled in its own transaction") from error
            return error
        raise AssertionError(f"{text} was not refused: {answer}")


@dataclass
class Ground:
    """A catalog on a server, and the login Horae has there."""

    server: PostgresServer
    url: str
    version: int
    is_superuser: bool

    @property
    def place(self) -> Place:
        return Place("postgres", self.url)

    @property
    def database(self) -> str:
        return self.url.rsplit("/", 1)[1]

    def role(self, principal: str) -> str:
        """What the server calls a principal, ready to be put into a statement."""
        return '"' + role_name(self.database, principal) + '"'

    def as_superuser(self, text: str) -> list[tuple[object, ...]]:
        return self.server.execute(text, database=self.database)

    def emptied(self) -> Ground:
        self.server.terminate_backends(self.url)
        self.as_superuser(_BARE)
        self.server.execute(_EMPTY, database=self.database)
        return self


def new_ground(server: PostgresServer, *, is_superuser: bool) -> Ground:
    """A database that belongs to a superuser, or to a login that may create roles and nothing else."""
    if is_superuser:
        url = server.create_database()
    else:
        name = f"plain_{uuid4().hex[:12]}"
        server.execute(f"CREATE ROLE {name} LOGIN CREATEROLE PASSWORD 'plain'")
        server.execute(f"CREATE DATABASE {name} OWNER {name}")
        parts = urlsplit(server.url(name))
        url = urlunsplit(parts._replace(netloc=f"{name}:plain@{parts.hostname}:{parts.port}"))
    asyncio.run(_migrated(url))
    return Ground(server, url, server.version, is_superuser)


_GROUNDS: dict[tuple[int, str], Ground] = {}


def ground_of(request: pytest.FixtureRequest) -> Ground:
    """The emptied catalog of a fixture's parameter, one of EVERY_GROUND; made by the first test that asks."""
    version, login = request.param.split()
    server: PostgresServer = request.getfixturevalue(f"postgres_{version}")
    key = (server.port, login)
    if key not in _GROUNDS:
        _GROUNDS[key] = new_ground(server, is_superuser=login == "superuser")
    return _GROUNDS[key].emptied()


def with_people(
    ground: Ground | Place, body: Callable[[Worker], Awaitable[None]], *people: Identity, setup: str = ""
) -> None:
    """Runs `body` with a claimed run of two tasks, on a catalog in which these people are known."""
    place = ground.place if isinstance(ground, Ground) else ground

    async def whole(worker: Worker) -> None:
        await introduced(worker.store, *people)
        await body(worker)

    asyncio.run(with_worker(place, whole, setup=setup, tasks=("one", "two")))
