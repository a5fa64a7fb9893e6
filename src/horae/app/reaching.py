"""The store as visitors are given it: while it is known to be away, nobody waits for it long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from horae.control.service import Kept
from horae.errors import StoreError, StoreUnavailable
from horae.events import StoreLost

if TYPE_CHECKING:
    from horae.app.horae import Horae

FRESH = 2.0
"""Seconds for which an answer says that the store is there."""
PATIENCE = 8.0
LITTLE_PATIENCE = 1.0
"""Seconds that a store has for a question of no weight; and one that was lost, to show that it is back."""


class Reach:
    """An engine can wait as long as its store is away; whoever asks over HTTP wants to be told."""

    def __init__(self, app: Horae) -> None:
        self._app = app
        self._is_lost = False
        self._seen = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._forget = app.events.listen(self._lost, StoreLost)

    def close(self) -> None:
        self._forget()
        if self._asking is not None:
            self._asking.cancel()

    def _lost(self, event: StoreLost) -> None:
        self._is_lost = True

    async def store(self) -> Kept:
        """The open store. Raises StoreUnavailable within seconds where it is away, instead of waiting for it."""
        store = await self._app.home.store()
        if self._is_lost or asyncio.get_running_loop().time() - self._seen > FRESH:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().create_task(self._asked(store))
                # Whoever asked may be gone by the time it is known; nobody needs to be told of that.
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._asking)
        return store

    async def _asked(self, store: Kept) -> None:
        """Whether it is there, found out once for all who ask meanwhile."""
        try:
            async with asyncio.timeout(LITTLE_PATIENCE if self._is_lost else PATIENCE):
                # A look: neither a writer, here or in another process, nor a long SELECT holds it up.
                await store.has_credentials()
        except (TimeoutError, StoreError) as error:
            self._is_lost = True
            raise StoreUnavailable(
                "The catalog cannot be reached just now", hint="It is tried again by itself: ask again in a moment."
            ) from error
        self._is_lost = False
        self._seen = asyncio.get_running_loop().time()
