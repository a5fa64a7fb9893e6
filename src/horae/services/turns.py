"""Turns of users: a SELECT, a plan or a preview may take long, and must not hold up other users."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from horae.core.access import LOCAL_NAME
from horae.errors import RateLimited

MOST_SELECTING = 2
"""SELECTs of users under way in one process. A store has room for more, which is left for pages."""


class UserTurns:
    """Admits one request of each user at a time, and `most` of all users together. `waiting` limits how many of one
    user's may wait; None: no limit."""

    def __init__(self, most: int = MOST_SELECTING, waiting: int | None = None) -> None:
        self._room = asyncio.Semaphore(most)
        self._waiting = waiting
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._here: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, name: str) -> AsyncIterator[None]:
        """Waits for the user's turn. Raises RateLimited where `waiting` requests of the user wait already."""
        if self._waiting is not None and self._here[name] > self._waiting:
            raise RateLimited(
                f"{self._here[name]} requests of {name} wait for their turn or are worked on, one at a time",
                hint="Wait for the answers before you ask for more.",
                details={"user": name, "waiting": self._waiting},
            )
        self._here[name] += 1
        try:
            async with AsyncExitStack() as stack:
                # Users who opened the store have no name of their own: several may be `local`.
                if name != LOCAL_NAME:
                    await stack.enter_async_context(self._users.setdefault(name, asyncio.Lock()))
                await stack.enter_async_context(self._room)
                yield
        finally:
            self._here[name] -= 1
            if not self._here[name]:
                del self._here[name]


_turns: WeakKeyDictionary[object, UserTurns] = WeakKeyDictionary()
_defining: WeakKeyDictionary[object, UserTurns] = WeakKeyDictionary()


def turns(store: object) -> UserTurns:
    """Returns the turns for SELECTs: one object for each store, for as long as it lives."""
    return _turns.setdefault(store, UserTurns())


def defining(store: object) -> UserTurns:
    """Returns the turns for large definitions: one at a time, so that other tasks of the loop run between two of
    them."""
    return _defining.setdefault(store, UserTurns(most=1))
