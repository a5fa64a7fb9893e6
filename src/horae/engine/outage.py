"""Outages of the store: loops pause and retry, and the loss and the return are reported once each."""

from __future__ import annotations

import asyncio

from horae.events import StoreFound, StoreLost, Stream

SHORTEST = 0.05
LONGEST = 2.0


class OutageTracker:
    """The outage state that an engine's loops share. A loop whose call fails waits here; the first call that succeeds
    ends it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream
        self._since: float | None = None
        self._pause = SHORTEST
        self.suspicious = False
        """Whether a connection was lost since the last heartbeat. The node may then own runs that it does not know
        of."""

    @property
    def lasts(self) -> bool:
        return self._since is not None

    async def ride_out(self, error: Exception) -> None:
        """Waits before the next try, longer each time, up to LONGEST seconds."""
        self.suspicious = True
        if self._since is None:
            self._since = self._loop.time()
            self._pause = SHORTEST
            self._stream.emit(StoreLost(f"{type(error).__name__}: {error}"))
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST)
        await asyncio.sleep(pause)

    def over(self) -> None:
        if self._since is not None:
            seconds = self._loop.time() - self._since
            self._since = None
            self._stream.emit(StoreFound(seconds))
