"""Whose turn it is to SELECT: somebody's own may take long, and must not keep others from theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakKeyDictionary, WeakValueDictionary

from horae.core.access import LOCAL_NAME

MOST_SELECTING = 2
"""SELECTs that people have under way in one process; a store has room for more, which is for what pages need."""


class Turns:
    """Those who wait to SELECT from one store: one at a time of each user, and a few of all."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MOST_SELECTING)
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, name: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            # Whoever opened the store has no name of their own: several may be `local`.
            if name != LOCAL_NAME:
                await stack.enter_async_context(self._users.setdefault(name, asyncio.Lock()))
            await stack.enter_async_context(self._room)
            yield


_turns: WeakKeyDictionary[object, Turns] = WeakKeyDictionary()


def turns(store: object) -> Turns:
    """One for each store, for as long as it lives."""
    return _turns.setdefault(store, Turns())
