"""Ends server sessions of texts that take nearly all locks of the server, and of texts that go on after their attempt.

All sessions of a server share one table of locks, across databases. A text needs no right to fill it: many advisory
locks or temporary tables are enough. While it is full, hardly any statement runs, heartbeats and claims fail, and new
logins are refused. The server has no limit on the locks of one session. So a store that gets the error that there is no
room checks whether its own texts are the reason. It uses an open connection, and the query needs no lock that could be
missing.

A text can catch the cancellation of its statement, and the server does not notice a closed socket while it works: such
a session would outlive its attempt for ever. So each transaction that runs other statements than the catalog's takes an
advisory lock whose numbers identify it and say how long it may last. The lock belongs to the transaction, not to the
session, so a text cannot release it, while it could change a setting or the application's name. By this lock a node
ends the sessions that its own transactions left behind, repeatedly until they are gone, and any node ends those of dead
nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from math import ceil
from random import randrange
from typing import NamedTuple

from horae.errors import HoraeError, StoreConflict, TransactionExpired
from horae.store.driver import Row
from horae.store.postgres.keepalive import CANCELLED
from horae.store.postgres.limits import idle_setting
from horae.store.postgres.transaction import PostgresTransaction

_FIND = """
WITH held AS (SELECT pid, count(*) AS locks FROM pg_catalog.pg_locks WHERE NOT fastpath GROUP BY pid),
    room AS (
        SELECT current_setting('max_locks_per_transaction')::bigint * (current_setting('max_connections')::bigint
            + current_setting('max_prepared_transactions')::bigint) AS most
    )
SELECT pid, locks FROM held, room
WHERE pid = ANY (%s::int[]) AND locks > most / 20 AND (SELECT sum(locks) FROM held) > most / 2
"""
"""Finds sessions that hold more than a twentieth of the locks, where more than half are taken. The server has a little
more room than its settings say."""
_END = "SELECT pg_catalog.pg_terminate_backend(pid) FROM unnest(%s::int[]) AS hoarder (pid)"

_OURS = 0x4852
"""The upper 16 bits of the first number of a mark, the advisory lock of a transaction. The lower 16 bits are random, so
that a text cannot take the next transaction's mark. The second number is how many seconds the transaction may last."""
_LONGEST = 2**31 - 1
_MARK = """
SELECT pg_catalog.pg_try_advisory_xact_lock_shared(%s::int, %s::int),
    pg_catalog.set_config('idle_in_transaction_session_timeout', %s, true)
"""
_END_LEFT = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND objsubid = 2 AND pid = %s::int AND classid = %s::int::oid
"""
SPARE = 30
"""Seconds beyond its limit that a transaction has for its settlement, before any node ends it as a stray."""
_END_STRAYS = f"""
SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a
WHERE a.usesysid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user)
    AND a.datname = current_database() AND EXISTS (
        SELECT FROM pg_catalog.pg_locks l
        WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.objsubid = 2 AND l.database = a.datid
            AND l.classid::bigint >> 16 = {_OURS}
            AND clock_timestamp() > a.xact_start + make_interval(secs => l.objid::bigint + %s::int))
"""  # noqa: S608 - made of a number
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to end a session; usually the first one succeeds."""


class MarkedSession(NamedTuple):
    """The server session of a marked transaction. The server may reuse the pid after the session's end, so the mark is
    needed too."""

    pid: int
    mark: int


async def mark_transaction(transaction: PostgresTransaction, limit: float) -> MarkedSession:
    """Marks a transaction that may last `limit` seconds, and may be idle as long. Raises StoreConflict where no free
    mark is found."""
    seconds = min(ceil(limit), _LONGEST) if limit < _LONGEST else _LONGEST
    for _ in range(10):
        mark = _OURS << 16 | randrange(1 << 16)  # noqa: S311 - what a stranger would have to hold all of, guards enough
        [(is_taken, _)] = await transaction.raw(_MARK, (mark, seconds, idle_setting(limit)))
        if is_taken:
            return MarkedSession(transaction.connection.info.backend_pid, mark)
    raise StoreConflict("Somebody holds the locks that mark transactions of tasks", hint="Look for them in pg_locks.")


class SessionWatcher:
    """Watches the sessions of one store's texts, and ends those that take too many locks or do not end."""

    def __init__(self, ask: Callable[..., Awaitable[list[Row]]]) -> None:
        """`ask` runs one statement with its parameters, on a connection that was open before the texts."""
        self._ask = ask
        self._ending: set[asyncio.Task[None]] = set()
        self._context = copy_context()
        self._watched: set[int] = set()
        self._had: dict[int, int] = {}
        """The number of locks of each session that was ended for them."""

    @contextmanager
    def watched(self, session: int, *, trusted: bool = False) -> Iterator[None]:
        """Watches a session inside the block. Raises TransactionExpired, instead of the block's own error, where the
        session was ended for its locks. A `trusted` session is never ended for them."""
        if not trusted:
            self._watched.add(session)
        try:
            yield
        except Exception as error:
            if session not in self._had:
                raise
            raise TransactionExpired(
                f"The text had taken {self._had[session]:,} locks when the server had no room for others', so its"
                " session was ended",
                hint="Take fewer advisory locks, or make fewer tables, in one transaction.",
            ) from error
        finally:
            self._watched.discard(session)
            self._had.pop(session, None)

    async def relieve(self) -> None:
        """Called when the server has no room for a lock. Ends watched sessions that hold too many."""
        # Ignore a server that does not answer: other statements will notice that.
        with suppress(HoraeError):
            found = await self._ask(_FIND, [*self._watched]) if self._watched else []
            # Note them first: the text may notice its end before this call returns.
            self._had |= {session: locks for session, locks in found if session in self._watched}
            if self._had:
                await self._ask(_END, [*self._had])

    def end(self, session: MarkedSession) -> asyncio.Task[None]:
        """Ends a session whose connection is closed and that may still be at work. The session is watched, and the task
        runs, until the session is gone."""
        self._watched.add(session.pid)
        task = asyncio.get_running_loop().create_task(self._end(session), context=self._context.copy())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _end(self, session: MarkedSession) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                # Where the query fails, try again later.
                with suppress(HoraeError):
                    if not await self._ask(_END_LEFT, *session):
                        return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
        finally:
            self._watched.discard(session.pid)
            self._had.pop(session.pid, None)

    async def end_strays(self) -> None:
        """Ends marked transactions that have lasted too long: a live node would have ended its own."""
        await self._ask(_END_STRAYS, SPARE)

    async def close(self) -> None:
        """Waits a little for sessions that are being ended. Those that are left are strays for other nodes."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=CANCELLED)
        for task in self._ending:
            task.cancel()
