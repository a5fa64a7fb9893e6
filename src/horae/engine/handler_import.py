"""Imports unregistered handlers by their import path when runs wait, whatever they wait for.

A node claims runs by the names of its handlers. Jobs that are defined by SQL or HTTP while it runs may name handlers
that it could import; waiting runs show which. The node reports once, for each job, a handler that no live node has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from horae.core.run.lifecycle import RunState
from horae.core.run.waiting_reason import WaitingFor
from horae.engine.protocols import EngineContext, EnginePart
from horae.engine.wakeup import WakeSignal
from horae.errors import StoreError
from horae.events import HandlerMissing
from horae.store.protocols.store import RunRecord

SPACING = 1.0
"""Least seconds between two looks at waiting runs."""
SELDOM = 10.0
"""The same on a node that may not import modules and only reports missing handlers."""
LOOKED_AT = 1000
"""Most runs that one look reads in each state."""
MOST_TOLD = 100_000
"""Reports remembered. When there are more, all are forgotten and reports may repeat."""
_log = logging.getLogger("horae.engine")


class HandlerImporter(EnginePart):
    """Imports handlers for one engine. With `inline` it imports in the event loop's thread, as simulations need."""

    def __init__(self, shared: EngineContext, *, inline: bool) -> None:
        super().__init__(shared)
        self._inline = inline
        self._told: set[tuple[str, str]] = set()
        self.alarm = WakeSignal(self._loop)

    def stir(self) -> None:
        self.alarm.ring()

    async def run(self, learned: Callable[[], None]) -> None:
        """Looks for missing handlers until it is cancelled: after each change of the catalog, and at least every
        `sweep_every` seconds. Calls `learned` when this node has new handlers."""
        while True:
            await asyncio.sleep(SPACING if self._tuning.modules else SELDOM)
            await self.alarm.wait(self._loop.time() + self._tuning.sweep_every)
            try:
                if await self.look():
                    learned()
            except StoreError as error:
                await self._outage.ride_out(error)

    async def look(self) -> bool:
        """Imports what waiting runs need; returns whether this node has new handlers."""
        # Pending runs are included before they are due: a handler that no live node has for a while counts as gone.
        pending = await self._store.runs(state=RunState.PENDING, limit=LOOKED_AT)
        queued = await self._store.runs(state=RunState.QUEUED, limit=LOOKED_AT)
        waiting = [run for run in (*pending, *queued) if run.waiting_for != WaitingFor.REGISTRATION]
        needed = {need for run in waiting for need in _requires(run)} - self._registry.names
        before = self._registry.names
        fresh = needed - self._registry.failed
        if fresh:
            failed = (
                self._registry.learn(fresh) if self._inline else await asyncio.to_thread(self._registry.learn, fresh)
            )
            for reason in failed.values():
                _log.warning("a job waits for what this node should have: %s", reason)
        if needed - self._registry.names:
            await self._tell(waiting)
        return self._registry.names != before

    async def _tell(self, waiting: Sequence[RunRecord]) -> None:
        """Reports, once for each job, handlers that its runs wait for and no live node has."""
        lacking = {(run.job_name, need) for run in waiting for need in _requires(run) - self._registry.names}
        news = lacking - self._told
        if not news:
            return
        had = {each for node in await self._store.nodes() if node.is_live for each in node.details.get("handlers", ())}
        if len(self._told) > MOST_TOLD:
            self._told.clear()
        for job, need in sorted(news):
            if need not in had:
                self._told.add((job, need))
                self._stream.emit(HandlerMissing(job, need, self._registry.why_missing(need)))


def _requires(run: RunRecord) -> frozenset[str]:
    return frozenset() if run.requires is None else run.requires.handlers
