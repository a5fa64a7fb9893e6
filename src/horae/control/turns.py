"""Whose turn it is: one user's SELECT, plan or preview may take long, and must not keep other users from theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from horae.core.access import LOCAL_NAME
from horae.errors import RateLimited

MOST_SELECTING = 2
"""SELECTs that people have under way in one process; a store has room for more, which is for what pages need."""


class Turns:
    """One at a time of each user, and `most` of all users together. With `waiting`, so many of one user may wait."""

    def __init__(self, most: int = MOST_SELECTING, waiting: int | None = None) -> None:
        self._room = asyncio.Semaphore(most)
        self._waiting = waiting
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._here: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, name: str) -> AsyncIterator[None]:
        """Waits for the user's turn. Raises RateLimited where as many requests of the user wait as may."""
        if self._waiting is not None and self._here[name] > self._waiting:
            raise RateLimited(
                f"{self._here[name]} requests of {name} wait for their turn or are worked on, one at a time",
                hint="Wait for the answers before you ask for more.",
                details={"user": name, "waiting": self._waiting},
            )
        self._here[name] += 1
        try:
            async with AsyncExitStack() as stack:
                # Whoever opened the store has no name of their own: several may be `local`.
                if name != LOCAL_NAME:
                    await stack.enter_async_context(self._users.setdefault(name, asyncio.Lock()))
                await stack.enter_async_context(self._room)
                yield
        finally:
            self._here[name] -= 1
            if not self._here[name]:
                del self._here[name]


_turns: WeakKeyDictionary[object, Turns] = WeakKeyDictionary()
_defining: WeakKeyDictionary[object, Turns] = WeakKeyDictionary()


def turns(store: object) -> Turns:
    """Those of SELECTs: one for each store, for as long as it lives."""
    return _turns.setdefault(store, Turns())


def defining(store: object) -> Turns:
    """Those of large definitions: one at a time, so that the loop has others' turns between any two of them."""
    return _defining.setdefault(store, Turns(most=1))
