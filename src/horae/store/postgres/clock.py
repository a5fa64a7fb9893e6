"""The server's clock as this process has seen it; or one that is injected."""

from __future__ import annotations

from time import monotonic, time_ns
from typing import Any

from psycopg import AsyncConnection

from horae.core.instant import EPOCH
from horae.errors import ClockImplausible
from horae.store.driver import Clock, Row
from horae.store.postgres.transaction import CLOCK

YEAR_MS = 366 * 86_400_000
FRESH = 1.0
"""Seconds for which whoever only looks goes on from the last reading, by how long ago that was."""


class ServerClock:
    """Milliseconds since 1970, never before what this process has seen."""

    def __init__(self, injected: Clock | None) -> None:
        self.injected = injected
        self.last = 0
        self._reading = 0
        self._read_at = float("-inf")

    def seen(self, reading: int) -> int:
        """A reading of the server's, as it is: what is carried on from it must not run ahead of a clock that was set
        back, whatever was seen before."""
        self._reading, self._read_at = reading, monotonic()
        self.last = max(self.last, reading)
        return self.last

    def told(self) -> int:
        """The injected clock."""
        return max(self.last, self._injected())

    def _injected(self) -> int:
        assert self.injected is not None
        elapsed = self.injected() - EPOCH
        return elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000

    async def plain(self, connection: AsyncConnection[Row]) -> int:
        """As it stands, also where it was set back to before what was seen."""
        return int(await _reading(connection)) if self.injected is None else self._injected()

    async def read(self, connection: AsyncConnection[Row]) -> int:
        if self.injected is not None:
            return self.seen(self.told())
        return self.seen(await _reading(connection))

    async def begin(self, connection: AsyncConnection[Row], begin: str) -> int:
        """BEGIN and the clock in one round trip."""
        if self.injected is not None:
            await connection.execute(begin)
            return await self.read(connection)
        async with connection.pipeline():
            await connection.execute(begin)
            cursor = await connection.execute(f"SELECT {CLOCK}")
        return self.seen((await cursor.fetchall())[0][0])

    async def glance(self, connection: AsyncConnection[Row]) -> int:
        """For whoever decides nothing: without asking the server, where it was asked a moment ago. That is never ahead
        of the server, whose answer had been on its way for a while when it was seen."""
        ago = monotonic() - self._read_at
        if self.injected is None and ago < FRESH:
            self.last = max(self.last, self._reading + int(ago * 1000))
            return self.last
        return await self.read(connection)

    async def check(self, connection: AsyncConnection[Row], place: str) -> None:
        """The server's clock decides what is due; if it is a year from ours, one of them is wrong."""
        if self.injected is not None:
            return
        apart = abs(await _reading(connection) - time_ns() // 1_000_000)
        if apart > YEAR_MS:
            raise ClockImplausible(
                f"The clock of {place} and this machine's differ by {apart // 86_400_000} days",
                hint="Set the one that is wrong, then start again.",
            )


async def _reading(connection: AsyncConnection[Row]) -> Any:
    return (await (await connection.execute(f"SELECT {CLOCK}")).fetchall())[0][0]
