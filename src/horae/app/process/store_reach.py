"""Access to the store for requests: answers quickly that the store is unavailable, instead of waiting for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from horae.errors import StoreError, StoreUnavailable
from horae.events import StoreLost
from horae.services.service import ServiceCatalog

if TYPE_CHECKING:
    from horae.app.horae import Horae

FRESH = 2.0
"""Seconds for which a successful check counts."""
PATIENCE = 8.0
"""Seconds that a reachable store has to answer the check."""
LITTLE_PATIENCE = 1.0
"""Seconds that a store that was lost has to answer the check."""


class StoreProbe:
    """Checks that the store is reachable. An engine can wait for its store; an HTTP client needs an answer."""

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

    async def store(self) -> ServiceCatalog:
        """The open store. Raises StoreUnavailable within seconds if the store cannot be reached."""
        store = await self._app.home.store()
        if self._is_lost or asyncio.get_running_loop().time() - self._seen > FRESH:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().create_task(self._asked(store))
                # Retrieves the error even if every caller has gone, so that asyncio does not log it.
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._asking)
        return store

    async def _asked(self, store: ServiceCatalog) -> None:
        """Checks the store once for all concurrent callers."""
        try:
            async with asyncio.timeout(LITTLE_PATIENCE if self._is_lost else PATIENCE):
                # A read that neither a writer, here or in another process, nor a long SELECT delays.
                await store.has_credentials()
        except (TimeoutError, StoreError) as error:
            self._is_lost = True
            raise StoreUnavailable(
                "The catalog cannot be reached just now", hint="It is tried again by itself: ask again in a moment."
            ) from error
        self._is_lost = False
        self._seen = asyncio.get_running_loop().time()
