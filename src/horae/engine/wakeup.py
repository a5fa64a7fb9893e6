"""Waking: one coalescing alarm, one timer for all time limits, and the store's clock as the loop sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime


class Alarm:
    """Rings at a set time or when somebody rings it; a ring nobody waited for is kept for the next wait."""

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
        """Rings after `seconds`, unless it is to ring before that anyway."""
        if self._later is None and not self.rung:
            self._later = self._loop.call_later(seconds, self._ring_late)

    def _ring_late(self) -> None:
        self._later = None
        self.ring()

    async def wait(self, until: float | None = None) -> None:
        """Returns when it rings, or at the loop's time `until`."""
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


class Watch:
    """One timer for all time limits: set to the earliest, asked again when it fires."""

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
    """The store's clock decides what is due; the loop's own only measures how long it is until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset: float | None = None

    def note(self, now: datetime) -> float:
        """Takes a reading of the store's clock; returns by how much it has jumped since the last, 0 at the first."""
        offset = now.timestamp() - self._loop.time()
        before, self._offset = self._offset, offset
        return 0.0 if before is None else offset - before

    def at(self, moment: datetime) -> float:
        """When that is, by the loop's time; never before now."""
        now = self._loop.time()
        return now if self._offset is None else max(now, moment.timestamp() - self._offset)
