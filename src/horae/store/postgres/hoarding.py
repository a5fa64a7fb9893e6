"""Texts of others that take so many locks that nobody else gets any: their sessions are ended.

All sessions of a server share one table of locks, whatever database they are in. A text needs no right to fill it: an
advisory lock for each number does, or temporary tables. While it is full hardly a statement runs, a heartbeat
as little as a claim, and nobody new may log in. The server has no limit on what one session takes of it. So who runs
texts and is told that there is no room looks whether that is because of them, on a connection that is there already: a
look takes no lock which could be missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from horae.errors import HoraeError, TransactionExpired
from horae.store.driver import Row

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


class Hoarders:
    """The sessions of one store's texts, of which those are ended that leave others no locks."""

    def __init__(self, ask: Callable[[str, Sequence[int]], Awaitable[list[Row]]]) -> None:
        """`ask` runs one statement about sessions on a connection that was open before the texts."""
        self._ask = ask
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
            found = await self._ask(_FIND, sorted(self._watched)) if self._watched else []
            # Noted first: the text may hear of its end before we do.
            self._had |= {session: locks for session, locks in found if session in self._watched}
            if self._had:
                await self._ask(_END, sorted(self._had))
