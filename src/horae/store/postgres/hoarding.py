"""Sessions that are ended: of texts that take so many locks that nobody else gets any, and of texts that go on.

All sessions of a server share one table of locks, whatever database they are in. A text needs no right to fill it: an
advisory lock for each number does, or temporary tables. While it is full hardly a statement runs, a heartbeat
as little as a claim, and nobody new may log in. The server has no limit on what one session takes of it. So who runs
texts and is told that there is no room looks whether that is because of them, on a connection that is there already: a
look takes no lock which could be missing.

A text can catch the cancel of its statement, and the server does not look at a closed socket while it works: such a
session would outlive its attempt for ever. So each transaction that runs what is not the catalog's takes an advisory
lock that says who it is and how long it may last. It is the transaction's, not the session's, so no text can give it
back, as it can change a setting or an application's name. By it a node ends what was left of its own transactions,
again and again until it is gone, and any node what dead ones left behind.
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
from horae.store.postgres.limits import still
from horae.store.postgres.links import CANCELLED
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
"""Those who have much of it, where more than half is taken. The server has some more room than it says."""
_END = "SELECT pg_catalog.pg_terminate_backend(pid) FROM unnest(%s::int[]) AS hoarder (pid)"

_OURS = 0x4852
"""What the locks of marked transactions begin with. The rest of that number is drawn by lot, so that nobody can hold
the next one's; the other number is how many seconds the transaction may last."""
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
"""Seconds beyond its limit that a transaction has for its settlement, before others take its node for dead."""
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
"""Seconds between two tries to end a session: mostly the first one does."""


class Session(NamedTuple):
    """One marked transaction's. The server may give its number to another session when it is gone."""

    pid: int
    mark: int


async def marked(transaction: PostgresTransaction, limit: float) -> Session:
    """Marks a transaction that is to last no longer than `limit` seconds, and may stand still for as long."""
    seconds = min(ceil(limit), _LONGEST) if limit < _LONGEST else _LONGEST
    for _ in range(10):
        mark = _OURS << 16 | randrange(1 << 16)  # noqa: S311 - what a stranger would have to hold all of, guards enough
        [(is_taken, _)] = await transaction.raw(_MARK, (mark, seconds, still(limit)))
        if is_taken:
            return Session(transaction.connection.info.backend_pid, mark)
    raise StoreConflict("Somebody holds the locks that mark transactions of tasks", hint="Look for them in pg_locks.")


class Hoarders:
    """The sessions of one store's texts, of which those are ended that leave others no locks, or that do not end."""

    def __init__(self, ask: Callable[..., Awaitable[list[Row]]]) -> None:
        """`ask` runs one statement about sessions, with what it is given, on a connection that was open before the
        texts."""
        self._ask = ask
        self._ending: set[asyncio.Task[None]] = set()
        self._context = copy_context()
        self._watched: set[int] = set()
        self._had: dict[int, int] = {}
        """How many locks the sessions had that are ended."""

    @contextmanager
    def watched(self, session: int, *, trusted: bool = False) -> Iterator[None]:
        """Raises TransactionExpired, whatever was raised inside, where the session had to be ended; that of whoever is
        `trusted` never is."""
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
        """Called when the server had no room for something."""
        # A server that does not answer is noticed by those who need more of it than a look.
        with suppress(HoraeError):
            found = await self._ask(_FIND, [*self._watched]) if self._watched else []
            # Noted first: the text may hear of its end before we do.
            self._had |= {session: locks for session, locks in found if session in self._watched}
            if self._had:
                await self._ask(_END, [*self._had])

    def end(self, session: Session) -> asyncio.Task[None]:
        """Ends a session that was left: its connection is closed, and it may be at work still. It is watched, and the
        task is under way, until it is gone."""
        self._watched.add(session.pid)
        task = asyncio.get_running_loop().create_task(self._end(session), context=self._context.copy())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _end(self, session: Session) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                # Where the server cannot be asked it is asked later.
                with suppress(HoraeError):
                    if not await self._ask(_END_LEFT, *session):
                        return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
        finally:
            self._watched.discard(session.pid)
            self._had.pop(session.pid, None)

    async def end_strays(self) -> None:
        """Ends marked transactions that have lasted longer than they may: their nodes would have, if they lived."""
        await self._ask(_END_STRAYS, SPARE)

    async def close(self) -> None:
        """Gives what is being ended a little more time. What is left then is a stray."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=CANCELLED)
        for task in self._ending:
            task.cancel()
