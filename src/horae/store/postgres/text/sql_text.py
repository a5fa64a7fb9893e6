"""Execution of SQL text under an identity on PostgreSQL: job text in a run's transaction, and read-only SELECTs.

The text runs inside its principal's function (`roles`, `functions`), which is compared with its source first. Before
Horae uses the catalog again in the same transaction, it resets or checks what the text may have left in the session:

- Settings could change how the catalog's statements are read. Open cursors would run at the commit.
- LISTEN: all notices sent meanwhile, the text's own among them, would come before the answer to the commit.
- Prepared statements: a text can prepare its own under the name of one of Horae's.
- Temporary tables and types would be found before Horae's. One with a pending trigger cannot be dropped.
- A deferred trigger that defers itself again while it is made to run would run at the commit, as Horae. So no permanent
  table that the text writes may have one, unless it calls a function of Horae's login or of a superuser.
- Rights and objects of the role, and of the roles that it is a member of: a member could drop or take them.
- Large objects, which every role may create and which would outlive it, and default privileges, which would apply to
  everything created in the role's name: a text that leaves one is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from math import isfinite
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from horae.core.table_access import ADMINISTRATOR_TABLES
from horae.errors import HoraeError, InvalidInput, StatementFailed, StoreReadOnly, StoreRefused, StoreUnavailable, shown
from horae.store import foreign_statements
from horae.store.catalog.row_codec import LARGEST_INTEGER
from horae.store.driver import Row
from horae.store.postgres import limits
from horae.store.postgres.pool import at_most, flooded
from horae.store.postgres.text.roles import (
    READER,
    SCHEMA,
    VIEWER,
    RoleFunction,
    ServerLogin,
    ensure,
    role_function,
    server_login,
)
from horae.store.postgres.text.statement_split import StatementSpan, split
from horae.store.postgres.transaction import SAFE_PATH, PostgresTransaction
from horae.store.protocols.people import Identity
from horae.store.records import Rows

LARGEST_SELECT = 16_000_000
"""The most characters of JSON in the answer of one SELECT."""
LONGEST_NUMBER = 4000
"""The most digits of a whole number in an answer; a longer one becomes text. Python refuses more than 4,300."""
MOST_NESTED = 200
"""How deep values in an answer may be nested. Code that walks them recurses once for each level."""
THEIR_PLANNING = f"SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL jit TO DEFAULT; {limits.TASK_LIMITS}"
"""The server's own settings, for statements that are not the catalog's."""
_SILENT = "SET LOCAL client_min_messages = error"
"""Suppresses the notices of a text, which Horae does not read."""
_RESET_SESSION = (
    "CLOSE ALL; RESET ALL; DEALLOCATE ALL; UNLISTEN *;"
    f" SET LOCAL search_path = {SAFE_PATH}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off;"
    f" {limits.CATALOG_LIMITS}; SET LOCAL idle_in_transaction_session_timeout = '{limits.IDLE}s'; DISCARD TEMP"
)
_FUNCTION_STATE = """
SELECT pg_get_userbyid(p.proowner)::text, p.prosecdef, p.prosrc, p.proconfig, l.lanname::text, p.prokind::text,
    pg_get_userbyid(n.nspowner)::text,
    ARRAY(SELECT pg_get_userbyid(grantee)::text || '=' || privilege_type
        FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner)))),
    p.proowner <> n.nspowner AND has_schema_privilege(p.proowner, n.oid, 'USAGE')
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE n.nspname = %s AND p.proname = %s
"""
_BELONGINGS = """
SELECT concat_ws(' ', dbid, classid, objid, objsubid, refobjid, deptype) FROM pg_catalog.pg_shdepend
WHERE refclassid = 'pg_catalog.pg_authid'::regclass AND refobjid IN (
    SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = %(role)s
    UNION ALL SELECT m.roleid FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles r ON r.oid = m.member
        WHERE r.rolname = %(role)s)
"""
_DEFERRED_TRIGGERS = """
SELECT format('%%s on %%s', t.tgname, c.relname)
FROM pg_catalog.pg_locks k
JOIN pg_catalog.pg_trigger t ON t.tgrelid = k.relation
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_roles o ON o.oid = p.proowner
WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation' AND k.mode NOT IN ('AccessShareLock', 'RowShareLock')
    AND k.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND t.tgdeferrable AND NOT t.tgisinternal AND NOT o.rolsuper AND o.rolname <> current_user
LIMIT 1
"""
_LEFTOVERS = f"""
SELECT ({_DEFERRED_TRIGGERS}),
    (SELECT count(*) FROM unnest(%(had)s::text[]) had WHERE had NOT IN ({_BELONGINGS})),
    (SELECT min(split_part(line, ' ', 2)::oid::regclass::text) FROM ({_BELONGINGS}) AS has (line)
        WHERE line <> ALL (%(had)s::text[]) AND split_part(line, ' ', 2)::oid
            IN ('pg_catalog.pg_largeobject'::regclass, 'pg_catalog.pg_default_acl'::regclass))
"""  # noqa: S608 - made of the two texts above
_DENIED = re.compile(r"permission denied for table (\w+)")
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"})
_ITS_OWN_DOING = frozenset({"25P03", "25P04"})
"""SQLSTATEs of a session that the server ended because of a time limit. They do not mean that the server is away."""


Begin = Callable[[], AbstractAsyncContextManager[PostgresTransaction]]


class RoleFunctions:
    """Finds the functions of one database, and creates missing ones."""

    def __init__(self, begin: Begin) -> None:
        """`begin` opens a separate transaction, in which functions are created, whatever becomes of the text."""
        self._begin = begin
        self._place: ServerLogin | None = None
        self._reads: set[str] = set()
        self._lacks_reader = False

    async def reader(self, reader: str = READER, *, optional: bool = False) -> bool:
        """Makes sure, once, that the reader's role and function exist and fit the present catalog. With `optional`,
        returns False where Horae's login may not create them or the server is read-only."""
        if reader in self._reads:
            return True
        if optional and self._lacks_reader:
            return False
        try:
            await self._make(reader)
        except StoreReadOnly:
            # A standby may become the primary, so try again the next time.
            if optional:
                return False
            raise
        except StoreRefused:
            self._lacks_reader = True
            if optional:
                return False
            raise
        self._reads.add(reader)
        return True

    async def of(self, transaction: PostgresTransaction, principal: str | None) -> RoleFunction:
        """The function of a principal (None: Horae's login; READER and VIEWER: the readers), checked in this
        transaction. Creates a missing one.

        Raises StatementFailed where the function is not as Horae created it.
        """
        if self._place is None:
            self._place = await server_login(transaction)
        found = role_function(self._place, principal)
        if not await _function_exists(transaction, found, self._place.login):
            await self._make(principal)
            if not await _function_exists(transaction, found, self._place.login):
                raise StoreUnavailable(f"The function {SCHEMA}.{found.function} is not there", hint="Try again.")
        return found

    async def _make(self, principal: str | None) -> None:
        async with self._begin() as transaction:
            await ensure(transaction, principal)


async def _function_exists(transaction: PostgresTransaction, found: RoleFunction, login: str) -> bool:
    rows = await transaction.raw(_FUNCTION_STATE, (SCHEMA, found.function))
    source = found.source
    wanted: Row = (found.owner, True, source.body, source.settings, "plpgsql", "f", login, [f"{login}=EXECUTE"], False)
    if rows and rows != [wanted]:
        raise StatementFailed(
            f"The function {SCHEMA}.{found.function} is not as Horae made it, so nothing is run by it",
            hint="Find out who changed it or its schema, then drop the function: it is made anew.",
        )
    return bool(rows)


async def run_text(
    transaction: PostgresTransaction,
    callers: RoleFunctions,
    text: str,
    identity: Identity,
    most: int,
) -> Rows:
    """Runs a text as `store.protocols.store.Joined.run_text` describes."""
    connection = transaction.connection
    pieces = split(writable(text))
    for piece in pieces or [StatementSpan(0, text)]:
        foreign_statements.check(piece.text, nested=True)
    found = await callers.of(transaction, None if identity.is_admin else identity.name)
    belongings = (
        [] if identity.is_admin else [row[0] for row in await transaction.raw(_BELONGINGS, {"role": found.owner})]
    )
    for name, value in identity.variables.items():
        await transaction.raw("SELECT set_config(%s, %s, true)", (f"horae.{name}", value))
    called = sql.SQL("SELECT kept, shape, counts, reads, cut FROM {}(%s::text[], %s)")
    await transaction.raw(f"{THEIR_PLANNING}; {_SILENT}")
    try:
        with at_most(connection, most):
            cursor = await connection.execute(
                called.format(sql.Identifier(SCHEMA, found.function)),
                ([piece.text for piece in pieces], most),
                prepare=False,
            )
            [(kept, shape, counts, reads, cut)] = await cursor.fetchall()
        await connection.execute(_RESET_SESSION)
        [(late, missing, made)] = await transaction.raw(_LEFTOVERS, {"role": found.owner, "had": belongings})
    except psycopg.Error as error:
        raise _failure(error, connection, text, pieces) from error
    if not identity.is_admin:
        _check_left(late, missing, made)
    return Rows([plain_values(line) for line in kept], _rowcount(pieces, counts, reads), _columns(shape), cut=cut)


def _check_left(late: str | None, missing: int, made: str | None) -> None:
    """Raises StatementFailed for what a text must not leave. `late` is a deferrable trigger that would still run;
    `missing` is how many rights and objects its role, or a role of that role, has lost; `made` is the system table of
    something that it created and that would outlive it."""
    if late is not None:
        raise StatementFailed(
            f"The deferrable trigger {late} calls a function that is neither Horae's nor a superuser's",
            hint="Make the trigger not deferrable, or give its function to Horae's login.",
        )
    if missing:
        raise StatementFailed(
            "The text drops or gives away what its role owns or was granted, or a role that it is a member of",
            hint="Leave DROP OWNED and REASSIGN OWNED out. If rights were revoked meanwhile, run it again.",
        )
    if made == "pg_default_acl":
        raise StatementFailed(
            "The text altered default privileges, which are not its own to say",
            hint="Leave ALTER DEFAULT PRIVILEGES out: grant what it is to have by GRANT.",
        )
    if made is not None:
        raise StatementFailed(
            "The text made a large object, which no grant is on and no limit of a table holds for",
            hint="Leave the lo_ functions out: keep the bytes in a column of a table that it may write (bytea).",
        )


async def select(
    transaction: PostgresTransaction,
    callers: RoleFunctions,
    text: str,
    most: int,
    seconds: float,
    *,
    viewer: bool = False,
) -> Rows:
    """Runs one SELECT as the reader, or as the viewer, in a read-only transaction that the caller rolls back."""
    connection = transaction.connection
    foreign_statements.check_select(writable(text), nested=True)
    found = await callers.of(transaction, VIEWER if viewer else READER)
    called = sql.SQL("SELECT kept, shape, cut FROM {}(%s, %s, %s)").format(sql.Identifier(SCHEMA, found.function))
    try:
        milliseconds = min(max(1, round(seconds * 1000)), LARGEST_INTEGER)
        await connection.execute(f"SET LOCAL statement_timeout = {milliseconds}; {_SILENT}")
        with at_most(connection, LARGEST_SELECT):
            cursor = await connection.execute(called, (text, most, LARGEST_SELECT), prepare=False)
            [(kept, shape, cut)] = await cursor.fetchall()
    except psycopg.errors.QueryCanceled as error:
        raise foreign_statements.too_slow(seconds) from error
    except psycopg.errors.InvalidCursorDefinition as error:
        raise foreign_statements.not_a_select() from error
    except psycopg.Error as error:
        failure = _failure(error, connection, text, [StatementSpan(0, text)])
        denied = _DENIED.search(str(error.diag.message_primary)) if viewer else None
        if denied is not None and denied[1] in ADMINISTRATOR_TABLES:
            raise foreign_statements.for_administrators(denied[1]) from error
        if isinstance(failure, StatementFailed):
            hint = failure.hint or foreign_statements.select_hint(failure.message) or foreign_statements.NOT_SHOWN
            raise InvalidInput(failure.message, hint=hint, details=failure.details) from error
        raise failure from error
    return Rows(selected(kept), len(kept), _columns(shape), cut=cut)


def writable(text: object) -> str:
    """The text, if it can be sent to a server. Raises InvalidInput otherwise."""
    try:
        if isinstance(text, str) and b"\0" not in text.encode():
            return text
    except UnicodeEncodeError:
        pass
    raise InvalidInput(
        f"Not a text that a database takes: {shown(text)}", hint="Give SQL text, without strange characters."
    )


def _failure(
    error: psycopg.Error, connection: AsyncConnection[Row], text: str, pieces: Sequence[StatementSpan]
) -> HoraeError:
    """The error for a failed text, with line and column where the server names a place; or for a lost connection."""
    if (too_much := flooded(error)) is not None:
        return too_much
    if connection.closed and error.sqlstate not in _ITS_OWN_DOING:
        return StoreUnavailable(
            f"The connection was lost: {error}", hint="Nothing of this transaction was written; try again."
        )
    said = error.diag
    message = said.message_primary or str(error).strip() or type(error).__name__
    if said.message_detail:
        message = f"{message}: {said.message_detail}"
    details: dict[str, Any] = {"sqlstate": error.sqlstate}
    for piece in pieces:
        if said.internal_position and said.internal_query == piece.text:
            before = text[: piece.start + int(said.internal_position) - 1]
            details |= {"line": before.count("\n") + 1, "column": len(before) - before.rfind("\n")}
            break
    return StatementFailed(message, hint=said.message_hint, details=details)


def _rowcount(pieces: Sequence[StatementSpan], counts: Sequence[int], reads: Sequence[bool]) -> int:
    """The number of changed rows, or, where no statement changes rows, the row count of the last one that reads."""
    changed = last_read = -1
    for piece, count, is_read in zip(pieces, counts, reads, strict=True):
        word, _ = foreign_statements.head(piece.text, nested=True)
        if word in _CHANGES or (word == "WITH" and not is_read):
            changed = max(changed, 0) + count
        elif is_read:
            last_read = count
    return changed if changed >= 0 else last_read


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of pairs, because two columns may have the same name."""


def selected(lines: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a SELECT. Raises InvalidInput where they cannot be read."""
    try:
        return [plain_values(line) for line in lines]
    except StatementFailed as error:
        raise InvalidInput(error.message, hint=error.hint) from error


def plain_values(line: str) -> tuple[Any, ...]:
    """The values of a row from its JSON. Raises StatementFailed for a value that is nested deeper than MOST_NESTED."""
    try:
        pairs = json.loads(line, object_pairs_hook=_Pairs, parse_int=_integer, parse_float=_fraction)
        return tuple(_plain(value, 0) for _, value in pairs)
    except RecursionError:
        pass
    raise StatementFailed(
        f"The text answers a value in which others lie more than {MOST_NESTED} deep",
        hint="Cast it to text, or answer a part of it.",
    )


def _integer(told: str) -> int | str:
    """A whole number, as text where it is too long for Python to read and write."""
    return int(told) if len(told) <= LONGEST_NUMBER else told


def _fraction(told: str) -> float | str:
    value = float(told)
    return value if isfinite(value) else told


def _columns(shape: list[str] | None) -> tuple[str, ...]:
    return () if shape is None else tuple(shape)


def _plain(value: Any, depth: int) -> Any:
    if not isinstance(value, list):
        return value
    if depth == MOST_NESTED:
        raise RecursionError
    if isinstance(value, _Pairs):
        return {name: _plain(each, depth + 1) for name, each in value}
    return [_plain(each, depth + 1) for each in value]
