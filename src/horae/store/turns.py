"""Limits how many callers run at once, in all and for one owner, so that no owner takes all places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager


class OwnerTurn:
    """One place that was taken. It is given back when its block has ended and `until`, where set, is done."""

    def __init__(self) -> None:
        self.until: asyncio.Future[None] | None = None


class OwnerTurns:
    """Lets `most` callers run at once, and `most_of_one` of one owner. Later callers wait in order."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._most_of_one = most_of_one
        self._owners: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[OwnerTurn]:
        """Takes a place, and waits for one for as long as its caller does. Nothing is open yet, so the caller can be
        cancelled."""
        own, users = self._owners.setdefault(owner, (asyncio.Semaphore(self._most_of_one), []))
        with ExitStack() as held:
            users.append(None)
            held.callback(self._leave, owner)
            # Wait among the owner's own callers first, so that no common place is held during that wait.
            await own.acquire()
            held.callback(own.release)
            await self._all.acquire()
            held.callback(self._all.release)
            turn = OwnerTurn()
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
