"""What happens while the store cannot be reached: nothing is started, nothing is lost, and it is said once."""

from __future__ import annotations

import asyncio

from horae.events import StoreFound, StoreLost, Stream

SHORTEST = 0.05
LONGEST = 2.0


class Outage:
    """Shared by an engine's loops. Whoever fails waits here; whoever gets through first says that it is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream
        self._since: float | None = None
        self._pause = SHORTEST
        self.suspicious = False
        """A connection was lost since the last heartbeat: the node may own runs it was never told of."""

    @property
    def lasts(self) -> bool:
        return self._since is not None

    async def ride_out(self, error: Exception) -> None:
        """A pause before the next try, longer each time."""
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
