"""PostgreSQL roles for Horae's users and roles: each has a role that cannot log in, and a function that runs as it.

A job's text is run by a SECURITY DEFINER function that its principal's role owns, so the server itself refuses what was
not granted. The functions are in a schema that only Horae's login may use, because an owner that could name its
function could also change it. Roles belong to the whole server, so their names are made from the database and the
principal. A role with such a name but without Horae's comment is left alone. `local` and other administrators run as
Horae's login.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import NamedTuple

import psycopg
from psycopg import sql

from horae.core.access import LOCAL_NAME, TABLE_PRIVILEGES, Privilege
from horae.core.table_access import HIDDEN_COLUMNS, hidden_tables
from horae.errors import Conflict, InUse, InvalidInput, StatementFailed, StoreConflict, StoreError, StoreRefused, shown
from horae.store.driver import RoleChange
from horae.store.postgres.text import table_names
from horae.store.postgres.text.functions import READ_FUNCTION, RUN_FUNCTION, FunctionSource
from horae.store.postgres.transaction import PostgresTransaction

SCHEMA = "horae_run"
LONGEST_NAME = 63
"""The most bytes of a name on PostgreSQL."""
READER, VIEWER = "", " "
"""The principals that SELECTs run as, for administrators and for other users. No user can have these names."""
READERS = {READER: "read", VIEWER: "view"}
"""The prefixes of the names of their functions."""
_MARK = "Functions that run SQL jobs as somebody; Horae's own"
_LOCK = (
    "INSERT INTO sys.locks AS l (lock_name) VALUES ('roles')"
    " ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name"
)
"""Serializes changes of roles: of two concurrent changes of rights on one object, the server lets one fail."""


class ServerLogin(NamedTuple):
    """Horae's login on the server, and the database that role names are made from."""

    database: str
    login: str
    is_superuser: bool
    may_create_roles: bool


class RoleFunction(NamedTuple):
    """A function that runs as a principal: its name, the role that owns it, and its source."""

    function: str
    owner: str
    source: FunctionSource


def role_name(database: str, principal: str) -> str:
    """The name of a principal's role: readable, and different for each principal and each database."""
    digest = _digest(database, principal)
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", principal)[: LONGEST_NAME - len(digest) - 7]
    return f"horae:{readable}:{digest}"


def reader_name(database: str, reader: str = READER) -> str:
    """The name of the role that SELECTs over the catalog run as. It differs from every `role_name`, which has at least
    one character between its colons."""
    return f"horae::{_digest(database, reader)}"


def role_function(place: ServerLogin, principal: str | None) -> RoleFunction:
    """The function of a principal; None is Horae's own login, READER and VIEWER are the readers. The name has a digest
    of the source, so functions of other releases have other names."""
    if principal is None:
        return RoleFunction(f"as_local_{RUN_FUNCTION.digest}", place.login, RUN_FUNCTION)
    if principal in READERS:
        return RoleFunction(
            f"{READERS[principal]}_{READ_FUNCTION.digest}", reader_name(place.database, principal), READ_FUNCTION
        )
    function = f"as_{_digest(place.database, principal)}_{RUN_FUNCTION.digest}"
    return RoleFunction(function, role_name(place.database, principal), RUN_FUNCTION)


def _digest(database: str, principal: str) -> str:
    return sha256(f"{database}\0{principal}".encode()).hexdigest()[:20]


def _mark(place: ServerLogin, principal: str) -> str:
    readers = {READER: "of whoever reads the catalog", VIEWER: "of whoever reads its jobs and runs"}
    who = readers.get(principal, f"of {principal!r}")
    return f"Horae's role {who} in the database {place.database!r}"


async def server_login(transaction: PostgresTransaction) -> ServerLogin:
    [row] = await transaction.raw(
        "SELECT current_database()::text, rolname::text, rolsuper, rolcreaterole OR rolsuper"
        " FROM pg_catalog.pg_roles WHERE rolname = current_user"
    )
    return ServerLogin(*row)


async def provision(transaction: PostgresTransaction, change: RoleChange) -> str | None:
    """Changes roles as `store.driver.Transaction.provision` describes."""
    if change.name == LOCAL_NAME:
        return None
    roles = ServerRoles(transaction, await server_login(transaction))
    await transaction.raw(_LOCK)
    match change.kind:
        case "create_user" | "create_role":
            await roles.create(change.name)
        case "drop":
            await roles.drop(change.name)
        case "add_member" | "remove_member":
            await roles.set_member(change.name, change.other, is_member=change.kind == "add_member")
        case "grant_table" | "revoke_table":
            await roles.set_grant(change.name, change.privilege, change.table, is_granted=change.kind == "grant_table")
        case _:
            raise InvalidInput(f"Unknown change of a role: {shown(change.kind)}")
    return role_name(roles.place.database, change.name)


async def ensure(transaction: PostgresTransaction, principal: str | None) -> None:
    """Creates this release's function of a principal that has a role, where it is missing. For a reader, creates the
    role too and grants what it may read. Raises StatementFailed where a principal has no role."""
    roles = ServerRoles(transaction, await server_login(transaction))
    if await transaction.raw("SELECT 1 WHERE current_setting('transaction_read_only') = 'off'"):
        # A read-only server takes no lock either. Nothing can be created there; everything must exist already.
        await transaction.raw(_LOCK)
    if principal in READERS:
        await roles.set_reader(principal)
    elif principal is not None and not await roles.is_ours(principal):
        raise StatementFailed(
            f"The database has no role for {shown(principal)}",
            hint="The catalog came from another server: create its users, roles and grants again.",
        )
    await roles.set_function(principal)


class ServerRoles:
    """Changes the server's roles in one transaction, as Horae's login, which is a superuser or has CREATEROLE."""

    def __init__(self, transaction: PostgresTransaction, place: ServerLogin) -> None:
        self._transaction = transaction
        self.place = place

    async def create(self, principal: str) -> None:
        """Creates the role and its function. Replaces a role that is left over, for example from an emptied catalog."""
        name = role_name(self.place.database, principal)
        if await self.is_ours(principal):
            await self.drop(principal)
        await self._create_role(name, principal)
        await self.set_function(principal)

    async def drop(self, principal: str) -> None:
        """Drops the role with its function, rights and memberships. Raises InUse where the role owns other objects, or
        has rights in another database. Its objects are never given away, because a SECURITY DEFINER function among them
        would then run as another role."""
        if not await self.is_ours(principal):
            return
        name = role_name(self.place.database, principal)
        owned = await self._transaction.raw(
            "SELECT CASE WHEN d.dbid IN (0, b.oid) THEN pg_catalog.pg_describe_object(classid, objid, objsubid)"
            " ELSE 'something in another database' END"
            " FROM pg_catalog.pg_shdepend d, pg_catalog.pg_database b"
            " WHERE b.datname = current_database() AND refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass"
            " AND refobjid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = %s) AND deptype = 'o'"
            # DROP OWNED drops default privileges; rights that they have granted stay.
            " AND NOT (d.dbid = b.oid AND classid = 'pg_catalog.pg_default_acl'::pg_catalog.regclass)"
            " AND NOT (d.dbid = b.oid AND classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND objid IN"
            " (SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace"
            " WHERE nspname = %s)) ORDER BY 1 LIMIT 3",
            (name, SCHEMA),
        )
        if owned:
            raise InUse(
                f"{shown(principal)} owns {', '.join(row[0] for row in owned)} in the database",
                hint=f"Drop that, or give it to another owner: its role there is {name}.",
            )
        functions = await self._transaction.raw(
            "SELECT proname::text FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_roles r ON r.oid = proowner"
            " JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace WHERE nspname = %s AND rolname = %s",
            (SCHEMA, name),
        )
        for (function,) in functions:
            await self._do("DROP FUNCTION {}", sql.Identifier(SCHEMA, function))
        role = sql.Identifier(name)
        try:
            async with self._belonging(role):
                await self._do("DROP OWNED BY {}", role)
            await self._do("DROP ROLE {}", role)
        except StoreError as error:
            if isinstance(error.__cause__, psycopg.errors.DependentObjectsStillExist):
                said = error.__cause__.diag.message_detail
                raise InUse(
                    f"The role of {shown(principal)} has rights in another database: {said}",
                    hint=f"Run there: DROP OWNED BY {role.as_string(None)}",
                ) from error.__cause__
            raise

    async def set_member(self, user: str, role: str, *, is_member: bool) -> None:
        """Adds a user to a role or removes it. The user's function inherits the role's rights, but cannot act as the
        role."""
        member, group = [sql.Identifier(await self._known(each)) for each in (user, role)]
        if is_member:
            await self._do("GRANT {} TO {} WITH INHERIT TRUE, SET FALSE, ADMIN FALSE", group, member)
        else:
            await self._do("REVOKE {} FROM {}", group, member)

    async def set_grant(self, principal: str, privilege: str, table: str, *, is_granted: bool) -> None:
        if privilege not in TABLE_PRIVILEGES:
            raise InvalidInput(f"{shown(privilege)} is no privilege on a table")
        name = await self._known(principal)
        found = await table_names.find(self._transaction, table, must_exist=is_granted)
        if found is None:
            return
        schema, relation, number = found
        role, target = sql.Identifier(name), sql.Identifier(schema, relation)
        words = (sql.SQL("GRANT"), sql.SQL("TO")) if is_granted else (sql.SQL("REVOKE"), sql.SQL("FROM"))
        await self._do("{} {} ON TABLE {} {} {}", words[0], sql.SQL(Privilege(privilege).value), target, words[1], role)
        for owned in await table_names.serials(self._transaction, number) if privilege == Privilege.INSERT else []:
            await self._do("{} USAGE ON SEQUENCE {} {} {}", words[0], sql.Identifier(*owned), words[1], role)
        if not is_granted:
            return
        asked = "SELECT has_table_privilege(%s, %s::oid, %s), has_schema_privilege(%s, %s, 'USAGE')"
        [(granted, reaches)] = await self._transaction.raw(asked, (name, number, privilege, name, schema))
        if not reaches:
            await self._do("GRANT USAGE ON SCHEMA {} TO {}", sql.Identifier(schema), role)
        if not granted:
            # The server only warns where the login has no right to grant.
            what = f"{privilege} ON {schema}.{relation}"
            raise StoreRefused(
                f"Horae's login {self.place.login} may not GRANT {what}",
                hint=f"Run as its owner: GRANT {what} TO {self.place.login} WITH GRANT OPTION",
            )

    async def is_ours(self, principal: str) -> bool:
        """Whether the principal's role exists. Raises Conflict where a role of that name is not Horae's."""
        make = reader_name if principal in READERS else role_name
        name = make(self.place.database, principal)
        rows = await self._transaction.raw(
            "SELECT shobj_description(oid, 'pg_authid') FROM pg_catalog.pg_roles WHERE rolname = %s", (name,)
        )
        if rows and rows[0][0] != _mark(self.place, principal):
            raise Conflict(
                f"The server has a role {name} that is not Horae's",
                hint="Rename or drop it; Horae would have to give it rights.",
            )
        return bool(rows)

    async def set_reader(self, reader: str) -> None:
        """Creates the reader's role where it is missing, and grants exactly what it may read of the present catalog."""
        name = reader_name(self.place.database, reader)
        if not await self.is_ours(reader):
            await self._create_role(name, reader)
        rows = await self._transaction.raw(
            "SELECT relname::text, attname::text, has_column_privilege(%s, c.oid, attnum, 'SELECT')"
            " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON attrelid = c.oid"
            " WHERE relnamespace = 'sys'::regnamespace AND relkind IN ('r', 'v', 'm', 'p')"
            " AND attnum > 0 AND NOT attisdropped ORDER BY relname, attnum",
            (name,),
        )
        wanted: dict[str, list[str]] = {}
        hidden = hidden_tables({row[0] for row in rows}, viewer=reader == VIEWER)
        for relation, column, _ in rows:
            if relation not in hidden and column not in HIDDEN_COLUMNS.get(relation, ()):
                wanted.setdefault(relation, []).append(column)
        if all(is_readable == (column in wanted.get(relation, ())) for relation, column, is_readable in rows):
            return
        role = sql.Identifier(name)
        await self._do("GRANT USAGE ON SCHEMA sys TO {}", role)
        await self._do("REVOKE ALL ON ALL TABLES IN SCHEMA sys FROM {}", role)
        for relation, columns in wanted.items():
            listed = sql.SQL(", ").join(map(sql.Identifier, columns))
            target = sql.Identifier("sys", relation)
            if relation in HIDDEN_COLUMNS:
                await self._do("GRANT SELECT ({}) ON {} TO {}", listed, target, role)
            else:
                await self._do("GRANT SELECT ON {} TO {}", target, role)

    async def set_function(self, principal: str | None) -> None:
        """Creates this release's function of a principal where it is missing."""
        made = role_function(self.place, principal)
        await self._set_schema()
        asked = "SELECT to_regproc(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL"
        if (await self._transaction.raw(asked, (SCHEMA, made.function)))[0][0]:
            return
        function = sql.Identifier(SCHEMA, made.function)
        login, owner, schema = (sql.Identifier(each) for each in (self.place.login, made.owner, SCHEMA))
        source = made.source
        await self._do(
            "CREATE FUNCTION {}({}) LANGUAGE plpgsql SECURITY DEFINER SET search_path = {} AS {}",
            function,
            sql.SQL(source.arguments),
            sql.SQL(", ").join(map(sql.Identifier, source.path)),
            sql.Literal(source.body),
        )
        await self._do("REVOKE ALL ON FUNCTION {} FROM PUBLIC", function)
        if principal is None:
            return
        async with self._belonging(owner):
            # A new owner needs CREATE on the schema. From then on only the owner may grant EXECUTE on the function.
            await self._do("GRANT CREATE ON SCHEMA {} TO {}", schema, owner)
            await self._do("ALTER FUNCTION {} OWNER TO {}", function, owner)
            await self._do("GRANT EXECUTE ON FUNCTION {} TO {}", function, login)
            await self._do("REVOKE ALL ON FUNCTION {} FROM {}", function, owner)
            await self._do("REVOKE CREATE ON SCHEMA {} FROM {}", schema, owner)

    async def _set_schema(self) -> None:
        rows = await self._transaction.raw(
            "SELECT pg_get_userbyid(nspowner), obj_description(oid, 'pg_namespace') FROM pg_catalog.pg_namespace"
            " WHERE nspname = %s",
            (SCHEMA,),
        )
        if rows and tuple(rows[0]) != (self.place.login, _MARK):
            raise Conflict(
                f"The database has a schema {SCHEMA} that is not Horae's, or another login's",
                hint=f"Rename it, or make {self.place.login} its owner if a Horae has made it.",
            )
        if not rows:
            await self._do("CREATE SCHEMA {}", sql.Identifier(SCHEMA))
            await self._do("COMMENT ON SCHEMA {} IS {}", sql.Identifier(SCHEMA), sql.Literal(_MARK))

    async def _create_role(self, name: str, principal: str) -> None:
        if not self.place.may_create_roles:
            raise StoreRefused(
                f"Horae's login {self.place.login} may not create roles, which users, roles and SELECTs of users need",
                hint=f"Run as a superuser: ALTER ROLE {sql.Identifier(self.place.login).as_string(None)} CREATEROLE",
            )
        await self._do("CREATE ROLE {} NOLOGIN", sql.Identifier(name))
        mark = sql.Literal(_mark(self.place, principal))
        await self._do("COMMENT ON ROLE {} IS {}", sql.Identifier(name), mark)

    async def _known(self, principal: str) -> str:
        if principal == LOCAL_NAME or not await self.is_ours(principal):
            raise Conflict(
                f"The database has no role for {shown(principal)}",
                hint="Create the user or role again; rights of the administrator cannot be changed.",
            )
        return role_name(self.place.database, principal)

    @asynccontextmanager
    async def _belonging(self, role: sql.Identifier) -> AsyncIterator[None]:
        """Lets the login act as the role inside the block. The creator of a role may always grant that to itself, but
        does not have it at first."""
        if self.place.is_superuser:
            yield
            return
        login = sql.Identifier(self.place.login)
        await self._do("GRANT {} TO {} WITH INHERIT TRUE, SET TRUE", role, login)
        yield
        await self._do("REVOKE {} FROM {} GRANTED BY {}", role, login, login)

    async def _do(self, text: str, *parts: sql.Composable) -> None:
        try:
            await self._transaction.raw(sql.SQL(text).format(*parts).as_string(None))
        except StoreConflict:
            raise
        except StoreRefused as error:
            said = error.__cause__.diag.message_primary if isinstance(error.__cause__, psycopg.Error) else error.message
            raise StoreRefused(
                f"Horae's login {self.place.login} may not do that: {said}",
                hint="Give it CREATEROLE and CREATE on the database, and the rights that it is to pass on.",
            ) from error.__cause__
