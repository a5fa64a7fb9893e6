"""Learning: callables that nobody registered, imported by their path once runs wait for them.

A node asks for runs by the names of what it has. Jobs that others define while it runs, by SQL or over HTTP, may name
what it could import: the runs that wait show which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from horae.core.lifecycle import RunState
from horae.engine.parts import Part, Shared
from horae.engine.wakeup import Alarm
from horae.errors import StoreError
from horae.store.port import RunRecord

SPACING = 1.0
"""Seconds between two looks, at the least."""
LOOKED_AT = 1000
MOST_SEEN = 100_000
_log = logging.getLogger("horae.engine")


class Learner(Part):
    """One engine's learner; `inline`: imports hold up the loop, as in a simulation."""

    def __init__(self, shared: Shared, *, inline: bool) -> None:
        super().__init__(shared)
        self._inline = inline
        self._seen: set[tuple[str, int]] = set()
        self.alarm = Alarm(self._loop)

    def stir(self) -> None:
        self.alarm.ring()

    async def run(self, learned: Callable[[], None]) -> None:
        """Looks for as long as it is not cancelled: when the catalog has changed, and every now and then. Calls
        `learned` when this node has something new."""
        while True:
            await asyncio.sleep(SPACING)
            await self.alarm.wait(self._loop.time() + self._tuning.sweep_every)
            try:
                if await self.look():
                    learned()
            except StoreError as error:
                await self._outage.ride_out(error)

    async def look(self) -> bool:
        """Whether there is something new that this node has."""
        now = await self._store.now()
        waiting = await self._store.runs(state=RunState.PENDING, limit=LOOKED_AT)
        news = {(run.job_name, run.version) for run in waiting if _is_due(run, now.timestamp())} - self._seen
        if not news:
            return False
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        self._seen |= news
        jobs = await self._store.jobs(sorted({name for name, _ in news}))
        needed = {need for job in jobs for need in job.definition.handlers} - self._registry.names
        if not needed:
            return False
        before = self._registry.names
        failed = self._registry.learn(needed) if self._inline else await asyncio.to_thread(self._registry.learn, needed)
        for reason in failed.values():
            _log.warning("a job waits for what this node should have: %s", reason)
        return self._registry.names != before


def _is_due(run: RunRecord, now: float) -> bool:
    return run.waiting_for is None and (run.not_before is None or run.not_before.timestamp() <= now)
