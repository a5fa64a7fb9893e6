"""Wake-ups of loops: a coalescing alarm, a shared timer for all timeouts, and the store's clock in loop time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime


class WakeSignal:
    """Wakes one waiter at a set time or when `ring` is called. A ring without a waiter is kept for the next wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        self.rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ring_within(self, seconds: float) -> None:
        """Rings after `seconds`, unless it rings before."""
        if self._later is None and not self.rung:
            self._later = self._loop.call_later(seconds, self._ring_late)

    def _ring_late(self) -> None:
        self._later = None
        self.ring()

    async def wait(self, until: float | None = None) -> None:
        """Returns when the alarm rings, or at the loop's time `until`."""
        if not self.rung:
            self._waiter = self._loop.create_future()
            timer = None if until is None else self._loop.call_at(until, self.ring)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self.rung = False

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None


class DeadlineTimer:
    """One timer for all timeouts. It is set to the earliest; when it fires, `look` returns the next."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look: Callable[[], float | None]) -> None:
        self._loop = loop
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def at(self, moment: float) -> None:
        if self._timer is None or moment < self._timer.when():
            self.close()
            self._timer = self._loop.call_at(moment, self._fire)

    def _fire(self) -> None:
        self._timer = None
        upcoming = self._look()
        if upcoming is not None:
            self.at(upcoming)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class StoreClock:
    """Converts the store's time to the loop's time. The store's clock decides what is due; the loop's clock measures
    waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset: float | None = None

    def note(self, now: datetime) -> float:
        """Notes a reading of the store's clock; returns by how many seconds it has jumped since the last one, 0 at the
        first."""
        offset = now.timestamp() - self._loop.time()
        before, self._offset = self._offset, offset
        return 0.0 if before is None else offset - before

    def at(self, moment: datetime) -> float:
        """Returns the loop's time for a moment of the store's clock, never before now."""
        now = self._loop.time()
        return now if self._offset is None else max(now, moment.timestamp() - self._offset)
