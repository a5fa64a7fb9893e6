"""Turns at what only so many may do at once, on either store: no owner takes all there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager


class Turn:
    """One that was taken. It is given back when its block has ended, and not before `until` is done."""

    def __init__(self) -> None:
        self.until: asyncio.Future[None] | None = None


class Turns:
    """So many at once in all, and of one owner; who comes later waits in order."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._most_of_one = most_of_one
        self._owners: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[Turn]:
        """Waits for as long as its caller does: nothing is open yet, and the caller can be cancelled."""
        own, users = self._owners.setdefault(owner, (asyncio.Semaphore(self._most_of_one), []))
        with ExitStack() as held:
            users.append(None)
            held.callback(self._leave, owner)
            # First among one's own: a place among all is not held while one waits for oneself.
            await own.acquire()
            held.callback(own.release)
            await self._all.acquire()
            held.callback(self._all.release)
            turn = Turn()
            try:
                yield turn
            finally:
                if turn.until is not None:
                    later = held.pop_all()
                    turn.until.add_done_callback(lambda _: later.close())

    def _leave(self, owner: str) -> None:
        _, users = self._owners[owner]
        users.pop()
        if not users:
            del self._owners[owner]
