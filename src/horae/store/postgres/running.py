"""Runs SQL text as somebody on PostgreSQL: job text inside a run's transaction, and SELECTs that cannot write.

The text runs inside its principal's function (`roles`, `functions`), which is compared first with what it must be. What
the text left in its session is taken back before the catalog is touched again as Horae, in the same transaction:

- settings, which could change how the catalog's statements are read; open cursors, which would run at the commit;
- that it listens: all notices that are sent meanwhile, its own among them, would come before the answer to the commit;
- prepared statements: a text can prepare its own under the name of one of ours;
- temporary tables and types, which would be found before ours. One with a trigger still to run cannot be dropped;
- a deferred trigger that defers itself again while it is made to run would run at the commit, for Horae. No table that
  lasts may have one, unless it calls a function of Horae's login or of a superuser;
- rights and belongings of the role, and of the roles it is a member of: a member could drop or take them;
- large objects, which every role may make and which would outlive it, and default privileges, which would be in force
  for whatever is made in its name: a text that leaves one is refused.
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

from horae.core.sight import FROM_VIEWERS
from horae.errors import HoraeError, InvalidInput, StatementFailed, StoreReadOnly, StoreRefused, StoreUnavailable, shown
from horae.store import foreign
from horae.store.driver import Row
from horae.store.postgres import limits
from horae.store.postgres.pooling import at_most, flooded
from horae.store.postgres.roles import READER, SCHEMA, VIEWER, Caller, Place, caller, ensure, here
from horae.store.postgres.splitting import Piece, split
from horae.store.postgres.transaction import SAFE_PATH, PostgresTransaction
from horae.store.records import Rows
from horae.store.rows import LARGEST_INTEGER
from horae.store.vault import Identity

LARGEST_SELECT = 16_000_000
"""Characters that one SELECT may answer."""
LONGEST_NUMBER = 4000
"""Digits of a whole number that is answered as one: Python refuses to read, and to write, more than 4,300."""
MOST_NESTED = 200
"""How deep values may lie in one that is answered: whatever walks it calls itself for each level."""
THEIR_PLANNING = f"SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL jit TO DEFAULT; {limits.THEIRS}"
"""As the server has it, for statements that are not the catalog's."""
_SILENT = "SET LOCAL client_min_messages = error"
"""Nobody hears the notices of a text."""
_OVER = (
    "CLOSE ALL; RESET ALL; DEALLOCATE ALL; UNLISTEN *;"
    f" SET LOCAL search_path = {SAFE_PATH}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off;"
    f" {limits.OURS}; SET LOCAL idle_in_transaction_session_timeout = '{limits.STILL}s'; DISCARD TEMP"
)
_STANDING = """
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
_LATE = """
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
_LEFT = f"""
SELECT ({_LATE}),
    (SELECT count(*) FROM unnest(%(had)s::text[]) had WHERE had NOT IN ({_BELONGINGS})),
    (SELECT min(split_part(line, ' ', 2)::oid::regclass::text) FROM ({_BELONGINGS}) AS has (line)
        WHERE line <> ALL (%(had)s::text[]) AND split_part(line, ' ', 2)::oid
            IN ('pg_catalog.pg_largeobject'::regclass, 'pg_catalog.pg_default_acl'::regclass))
"""  # noqa: S608 - made of the two texts above
_DENIED = re.compile(r"permission denied for table (\w+)")
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "COPY"})
_ITS_OWN_DOING = frozenset({"25P03", "25P04"})
"""A session that the server ended because of a time limit that was set: no sign that the server is away."""


Begin = Callable[[], AbstractAsyncContextManager[PostgresTransaction]]


class Callers:
    """The functions of one database: who Horae is there, and how one that is missing is made."""

    def __init__(self, begin: Begin) -> None:
        """`begin` opens a transaction of its own: a function is made for good, whatever becomes of the text."""
        self._begin = begin
        self._place: Place | None = None
        self._reads: set[str] = set()
        self._lacks_reader = False

    async def reader(self, reader: str = READER, *, optional: bool = False) -> bool:
        """Sees to it, once, that the reader may read the catalog as it is now. Where it is `optional`, the answer is
        False if the login may not make it."""
        if reader in self._reads:
            return True
        if optional and self._lacks_reader:
            return False
        try:
            await self._make(reader)
        except StoreReadOnly:
            # A standby may become the primary: it is asked again the next time.
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

    async def of(self, transaction: PostgresTransaction, principal: str | None) -> Caller:
        """The function of a principal (None: Horae's login; "": the reader), as it stands in this transaction.

        Raises StatementFailed where it is not as it was made.
        """
        if self._place is None:
            self._place = await here(transaction)
        found = caller(self._place, principal)
        if not await _stands(transaction, found, self._place.login):
            await self._make(principal)
            if not await _stands(transaction, found, self._place.login):
                raise StoreUnavailable(f"The function {SCHEMA}.{found.function} is not there", hint="Try again.")
        return found

    async def _make(self, principal: str | None) -> None:
        async with self._begin() as transaction:
            await ensure(transaction, principal)


async def _stands(transaction: PostgresTransaction, found: Caller, login: str) -> bool:
    rows = await transaction.raw(_STANDING, (SCHEMA, found.function))
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
    callers: Callers,
    text: str,
    identity: Identity,
    most: int,
) -> Rows:
    """What `port.Joined.run_text` promises."""
    connection = transaction.connection
    pieces = split(writable(text))
    for piece in pieces or [Piece(0, text)]:
        foreign.check(piece.text, nested=True)
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
        await connection.execute(_OVER)
        [(late, missing, made)] = await transaction.raw(_LEFT, {"role": found.owner, "had": belongings})
    except psycopg.Error as error:
        raise _failure(error, connection, text, pieces) from error
    if not identity.is_admin:
        _check_left(late, missing, made)
    return Rows([plain_values(line) for line in kept], _rowcount(pieces, counts, reads), _columns(shape), cut=cut)


def _check_left(late: str | None, missing: int, made: str | None) -> None:
    """Refuses what the text would still do, what it has done to its role's rights, or to those of others, and what it
    has `made` that would outlive it: the catalog's table of that."""
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
    callers: Callers,
    text: str,
    most: int,
    seconds: float,
    *,
    viewer: bool = False,
) -> Rows:
    """One SELECT as the reader, or as a viewer, in a transaction that takes no writes and is to be rolled back."""
    connection = transaction.connection
    foreign.check_select(writable(text), nested=True)
    found = await callers.of(transaction, VIEWER if viewer else READER)
    called = sql.SQL("SELECT kept, shape, cut FROM {}(%s, %s, %s)").format(sql.Identifier(SCHEMA, found.function))
    try:
        milliseconds = min(max(1, round(seconds * 1000)), LARGEST_INTEGER)
        await connection.execute(f"SET LOCAL statement_timeout = {milliseconds}; {_SILENT}")
        with at_most(connection, LARGEST_SELECT):
            cursor = await connection.execute(called, (text, most, LARGEST_SELECT), prepare=False)
            [(kept, shape, cut)] = await cursor.fetchall()
    except psycopg.errors.QueryCanceled as error:
        raise foreign.too_slow(seconds) from error
    except psycopg.errors.InvalidCursorDefinition as error:
        raise foreign.not_a_select() from error
    except psycopg.Error as error:
        failure = _failure(error, connection, text, [Piece(0, text)])
        denied = _DENIED.search(str(error.diag.message_primary)) if viewer else None
        if denied is not None and denied[1] in FROM_VIEWERS:
            raise foreign.for_administrators(denied[1]) from error
        if isinstance(failure, StatementFailed):
            hint = failure.hint or foreign.select_hint(failure.message) or foreign.NOT_SHOWN
            raise InvalidInput(failure.message, hint=hint, details=failure.details) from error
        raise failure from error
    return Rows(selected(kept), len(kept), _columns(shape), cut=cut)


def writable(text: object) -> str:
    """The text, if it is one that a server can be told."""
    try:
        if isinstance(text, str) and b"\0" not in text.encode():
            return text
    except UnicodeEncodeError:
        pass
    raise InvalidInput(
        f"Not a text that a database takes: {shown(text)}", hint="Give SQL text, without strange characters."
    )


def _failure(error: psycopg.Error, connection: AsyncConnection[Row], text: str, pieces: Sequence[Piece]) -> HoraeError:
    """What the server said, and of which place in the text; or that it is not there any more."""
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


def _rowcount(pieces: Sequence[Piece], counts: Sequence[int], reads: Sequence[bool]) -> int:
    """How many rows were changed; where nothing changes any, how many the last statement that reads has read."""
    changed = last_read = -1
    for piece, count, is_read in zip(pieces, counts, reads, strict=True):
        word, _ = foreign.head(piece.text, nested=True)
        if word in _CHANGES or (word == "WITH" and not is_read):
            changed = max(changed, 0) + count
        elif is_read:
            last_read = count
    return changed if changed >= 0 else last_read


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as they come: two columns may have one name."""


def selected(lines: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a SELECT, which was refused rather than failed where they cannot be read."""
    try:
        return [plain_values(line) for line in lines]
    except StatementFailed as error:
        raise InvalidInput(error.message, hint=error.hint) from error


def plain_values(line: str) -> tuple[Any, ...]:
    """Raises StatementFailed for a value in which others lie too deep."""
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
    """As text where Python would not read it, nor anybody write it down again."""
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
