"""Transactions that a task's own statements join, on PostgreSQL, and the cleaning of their connections.

Such a transaction lasts as long as the task keeps it open, so it never uses a connection that claims need. The task's
statements run under the server's own settings. Each is prepared, and the server prepares only single statements: a
second one after a semicolon is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.types.uuid import UUIDLoader

from horae.errors import InvalidInput, StoreUnavailable
from horae.store import foreign_statements
from horae.store.driver import Parameters, Row
from horae.store.postgres.failures import translated
from horae.store.postgres.limits import CATALOG_LIMITS, IDLE
from horae.store.postgres.pool import PostgresConnection
from horae.store.postgres.text import sql_text
from horae.store.postgres.text.plain_select import select_as_login
from horae.store.postgres.text.runaway_sessions import MarkedSession, SessionWatcher, mark_transaction
from horae.store.postgres.text.sql_text import THEIR_PLANNING, RoleFunctions
from horae.store.postgres.transaction import PLANNING, SAFE_PATH, PostgresTransaction, PreparedStatements
from horae.store.protocols.people import Identity
from horae.store.records import Rows

_THEIRS = f"{THEIR_PLANNING}; SET LOCAL search_path TO DEFAULT"
_OURS = (
    f"CLOSE ALL; SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL ROLE NONE; SET LOCAL search_path = {SAFE_PATH};"
    f" SET LOCAL enable_seqscan = off; SET LOCAL jit = off; {CATALOG_LIMITS};"
    f" SET LOCAL idle_in_transaction_session_timeout = '{IDLE}s'"
)
_LEFT_BEHIND = (
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();"
    " DISCARD TEMP; DISCARD SEQUENCES; "
) + "; ".join(PLANNING)


_RAN_TEXT: WeakSet[AsyncConnection[Row]] = WeakSet()
"""Connections that have run a text, which may have replaced prepared statements."""


class PostgresJoinedTransaction(PostgresTransaction):
    """Runs a task's own statements first, then, after `conclude`, the catalog's."""

    __slots__ = ("_callers", "_clock", "_failed", "_hoarders", "_link", "_longest", "_place", "_theirs", "session")

    def __init__(
        self,
        connection: PostgresConnection,
        prepared: PreparedStatements,
        now: int,
        place: str,
        clock: Callable[[AsyncConnection[Row]], Awaitable[int]],
        callers: RoleFunctions,
        longest: float,
        hoarders: SessionWatcher,
    ) -> None:
        """`longest` is how many seconds the server may stay silent during a statement of the task."""
        super().__init__(connection, prepared, now)
        self._link = connection
        self._longest = longest
        self._callers = callers
        self._hoarders = hoarders
        self._failed = False
        self._place = place
        self._clock = clock
        self._theirs = False
        self.session: MarkedSession | None = None
        """The server session to end where its connection is closed while it works."""

    async def begin(self, limit: float) -> None:
        self.session = await mark_transaction(self, limit)

    @property
    def is_left(self) -> bool:
        """Whether the connection was closed. The server session may still be at work."""
        return self._connection.closed

    @property
    def spoiled(self) -> bool:
        return self._failed or self._connection.info.transaction_status != pq.TransactionStatus.INTRANS

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        text = foreign_statements.check(sql, nested=True)
        connection = self._connection
        if not self._theirs:
            await self.raw(_THEIRS)
            self._theirs = True
        cursor = connection.cursor()
        cursor.adapters.register_loader("uuid", UUIDLoader)
        try:
            with self._patiently():
                await cursor.execute(text.encode(), parameters, prepare=True)
                described = cursor.description
                rows = [] if described is None else await cursor.fetchall()
        except psycopg.errors.SyntaxError as error:
            if "multiple commands" in str(error):
                raise foreign_statements.several() from error
            raise
        except psycopg.Error as error:
            if connection.closed:
                raise StoreUnavailable(
                    f"The connection to {self._place} was lost: {error}",
                    hint="Nothing of this transaction was written; try again.",
                ) from error
            raise
        if connection.info.transaction_status == pq.TransactionStatus.IDLE:
            raise InvalidInput("The statement has ended the run's own transaction", hint=foreign_statements.NOT_ITS_OWN)
        return Rows(rows, cursor.rowcount, () if described is None else tuple(column.name for column in described))

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        _RAN_TEXT.add(self._connection)
        self._failed = True
        session = self._connection.info.backend_pid
        with self._hoarders.watched(session, trusted=identity.is_admin), self._patiently():
            rows = await sql_text.run_text(self, self._callers, sql, identity, most)
        self._failed = self._theirs = False
        return rows

    async def conclude(self) -> None:
        # Deferred constraints run users' triggers, so check them under the settings of the task's statements.
        await self.foreign("SET CONSTRAINTS ALL IMMEDIATE")
        await self.raw(_OURS)
        async with translated(self._place):
            self.now = await self._clock(self._connection)

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Extends the answer limit for a task's own statement, which may take long, and lowers it again afterwards,
        also where the statement was cancelled. Meanwhile a silent server casts no doubt on other connections, because a
        text may go on after its cancellation."""
        link, before, trust = self._link, self._link.answer_limit, self._link.trust
        link.answer_limit, link.trust = self._longest, None
        try:
            yield
        finally:
            link.answer_limit, link.trust = min(before, link.answer_limit), trust


async def select(
    transaction: PostgresTransaction,
    callers: RoleFunctions | None,
    sql: str,
    most: int,
    seconds: float,
    *,
    viewer: bool = False,
) -> Rows:
    """Runs one SELECT on a connection that is cleaned afterwards: as `sql_text.select`, or, without `callers`, as
    Horae's login."""
    _RAN_TEXT.add(transaction.connection)
    if callers is None:
        return await select_as_login(transaction, sql, most, seconds)
    return await sql_text.select(transaction, callers, sql, most, seconds, viewer=viewer)


async def clean(connection: AsyncConnection[Row]) -> None:
    """Resets what foreign statements may have left in a session. Prepared statements stay, unless a text was run; then
    this does all that DISCARD ALL does, which the driver would not always notice."""
    async with translated("a returned connection"):
        if connection in _RAN_TEXT:
            _RAN_TEXT.discard(connection)
            await connection.execute(f"DEALLOCATE ALL; DISCARD PLANS; {_LEFT_BEHIND}")
        else:
            await connection.execute(_LEFT_BEHIND)
