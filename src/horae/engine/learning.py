"""Learning: handlers that nobody registered, imported by their path once runs wait, whatever they wait for.

A node asks for runs by the names of what it has. Jobs that others define while it runs, by SQL or over HTTP, may name
what it could import: the runs that wait show which. The learner logs once which handler no live node has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from horae.core.lifecycle import RunState
from horae.core.wait import WaitingFor
from horae.engine.parts import Part, Shared
from horae.engine.wakeup import Alarm
from horae.errors import StoreError
from horae.events import HandlerMissing
from horae.store.port import RunRecord

SPACING = 1.0
"""Seconds between two looks, at the least."""
SELDOM = 10.0
"""The same where nothing may be imported, and there is only something to tell."""
LOOKED_AT = 1000
MOST_TOLD = 100_000
_log = logging.getLogger("horae.engine")


class Learner(Part):
    """One engine's learner; `inline`: imports hold up the loop, as in a simulation."""

    def __init__(self, shared: Shared, *, inline: bool) -> None:
        super().__init__(shared)
        self._inline = inline
        self._told: set[tuple[str, str]] = set()
        self.alarm = Alarm(self._loop)

    def stir(self) -> None:
        self.alarm.ring()

    async def run(self, learned: Callable[[], None]) -> None:
        """Looks for as long as it is not cancelled: when the catalog has changed, and every now and then. Calls
        `learned` when this node has something new."""
        while True:
            await asyncio.sleep(SPACING if self._tuning.modules else SELDOM)
            await self.alarm.wait(self._loop.time() + self._tuning.sweep_every)
            try:
                if await self.look():
                    learned()
            except StoreError as error:
                await self._outage.ride_out(error)

    async def look(self) -> bool:
        """Whether there is something new that this node has."""
        # Before they are due: a handler that no live node has for a while counts as gone.
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
        """Tells, once for each job, of what its runs wait for and no live node has."""
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
