"""Transactions that a task's own statements join, on PostgreSQL, and the connections they have to themselves.

Such a transaction lasts as long as the task lets it, so it never takes a connection that claims need. Foreign
statements run under the server's own settings. Each is prepared, which the server does with one statement only: what
follows a semicolon cannot slip through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.types.uuid import UUIDLoader

from horae.errors import InvalidInput, StoreUnavailable
from horae.store import foreign
from horae.store.driver import Parameters, Row
from horae.store.postgres import running
from horae.store.postgres.failures import translated
from horae.store.postgres.hoarding import Hoarders, Session, marked
from horae.store.postgres.limits import OURS, STILL
from horae.store.postgres.plain_select import select_as_login
from horae.store.postgres.pooling import Connection
from horae.store.postgres.running import THEIR_PLANNING, Callers
from horae.store.postgres.transaction import PLANNING, SAFE_PATH, PostgresTransaction, Prepared
from horae.store.records import Rows
from horae.store.vault import Identity

_THEIRS = f"{THEIR_PLANNING}; SET LOCAL search_path TO DEFAULT"
_OURS = (
    f"CLOSE ALL; SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL ROLE NONE; SET LOCAL search_path = {SAFE_PATH};"
    f" SET LOCAL enable_seqscan = off; SET LOCAL jit = off; {OURS};"
    f" SET LOCAL idle_in_transaction_session_timeout = '{STILL}s'"
)
_LEFT_BEHIND = (
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();"
    " DISCARD TEMP; DISCARD SEQUENCES; "
) + "; ".join(PLANNING)


_TOLD: WeakSet[AsyncConnection[Row]] = WeakSet()
"""Connections that have run a text: what is prepared on them may not be ours."""


class PostgresJoined(PostgresTransaction):
    """First statements of a task's own, then, from `conclude` on, the catalog's."""

    __slots__ = ("_callers", "_clock", "_failed", "_hoarders", "_link", "_longest", "_place", "_theirs", "session")

    def __init__(
        self,
        connection: Connection,
        prepared: Prepared,
        now: int,
        place: str,
        clock: Callable[[AsyncConnection[Row]], Awaitable[int]],
        callers: Callers,
        longest: float,
        hoarders: Hoarders,
    ) -> None:
        """`longest`: the seconds for which the server may be silent over a statement of the task's."""
        super().__init__(connection, prepared, now)
        self._link = connection
        self._longest = longest
        self._callers = callers
        self._hoarders = hoarders
        self._failed = False
        self._place = place
        self._clock = clock
        self._theirs = False
        self.session: Session | None = None
        """What is to be ended where it is left at work."""

    async def begin(self, limit: float) -> None:
        self.session = await marked(self, limit)

    @property
    def is_left(self) -> bool:
        """Whether its connection was closed: what the server does of it meanwhile is not known."""
        return self._connection.closed

    @property
    def spoiled(self) -> bool:
        return self._failed or self._connection.info.transaction_status != pq.TransactionStatus.INTRANS

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        text = foreign.check(sql, nested=True)
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
                raise foreign.several() from error
            raise
        except psycopg.Error as error:
            if connection.closed:
                raise StoreUnavailable(
                    f"The connection to {self._place} was lost: {error}",
                    hint="Nothing of this transaction was written; try again.",
                ) from error
            raise
        if connection.info.transaction_status == pq.TransactionStatus.IDLE:
            raise InvalidInput("The statement has ended the run's own transaction", hint=foreign.NOT_ITS_OWN)
        return Rows(rows, cursor.rowcount, () if described is None else tuple(column.name for column in described))

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        _TOLD.add(self._connection)
        self._failed = True
        session = self._connection.info.backend_pid
        with self._hoarders.watched(session, trusted=identity.is_admin), self._patiently():
            rows = await running.run_text(self, self._callers, sql, identity, most)
        self._failed = self._theirs = False
        return rows

    async def conclude(self) -> None:
        # What is left for the commit to check runs foreign triggers: under the settings their statements had.
        await self.foreign("SET CONSTRAINTS ALL IMMEDIATE")
        await self.raw(_OURS)
        async with translated(self._place):
            self.now = await self._clock(self._connection)

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """What is a task's own may take long. What is said afterwards may not, nor what is said once it was given
        up. Where the server is silent meanwhile that says nothing of it: a text may go on when it is cancelled."""
        link, before, trust = self._link, self._link.answer_limit, self._link.trust
        link.answer_limit, link.trust = self._longest, None
        try:
            yield
        finally:
            link.answer_limit, link.trust = min(before, link.answer_limit), trust


async def select(
    transaction: PostgresTransaction,
    callers: Callers | None,
    sql: str,
    most: int,
    seconds: float,
    *,
    viewer: bool = False,
) -> Rows:
    """One SELECT, on a connection that is cleaned afterwards; see `running.select`. Without `callers` as the login."""
    _TOLD.add(transaction.connection)
    if callers is None:
        return await select_as_login(transaction, sql, most, seconds)
    return await running.select(transaction, callers, sql, most, seconds, viewer=viewer)


async def clean(connection: AsyncConnection[Row]) -> None:
    """Takes back what foreign statements may have left in a session. What is prepared stays so, unless a text was run:
    with that it is all that DISCARD ALL does, which the driver would not always notice."""
    async with translated("a returned connection"):
        if connection in _TOLD:
            _TOLD.discard(connection)
            await connection.execute(f"DEALLOCATE ALL; DISCARD PLANS; {_LEFT_BEHIND}")
        else:
            await connection.execute(_LEFT_BEHIND)
