"""The database server's clock as this process has read it, or an injected clock."""

from __future__ import annotations

from time import monotonic, time_ns
from typing import Any

from psycopg import AsyncConnection

from horae.core.time.instant import EPOCH
from horae.errors import ClockImplausible
from horae.store.driver import Clock, Row
from horae.store.postgres.transaction import CLOCK

YEAR_MS = 366 * 86_400_000
FRESH = 1.0
"""Seconds for which `glance` extrapolates from the last reading."""


class ServerClock:
    """The clock in milliseconds since 1970. Except for `plain`, it never goes back within this process."""

    def __init__(self, injected: Clock | None) -> None:
        self.injected = injected
        self.last = 0
        self._reading = 0
        self._read_at = float("-inf")

    def seen(self, reading: int) -> int:
        """Records a reading of the server's clock and returns the time. The reading is kept as it is, also where the
        clock was set back, because an extrapolation must not run ahead of it."""
        self._reading, self._read_at = reading, monotonic()
        self.last = max(self.last, reading)
        return self.last

    def told(self) -> int:
        """The time by the injected clock."""
        return max(self.last, self._injected())

    def _injected(self) -> int:
        assert self.injected is not None
        elapsed = self.injected() - EPOCH
        return elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000

    async def plain(self, connection: AsyncConnection[Row]) -> int:
        """The clock as it stands, also where it was set back behind an earlier reading."""
        return int(await _reading(connection)) if self.injected is None else self._injected()

    async def read(self, connection: AsyncConnection[Row]) -> int:
        if self.injected is not None:
            return self.seen(self.told())
        return self.seen(await _reading(connection))

    async def begin(self, connection: AsyncConnection[Row], begin: str) -> int:
        """Sends `begin` and reads the clock, in one round trip."""
        if self.injected is not None:
            await connection.execute(begin)
            return await self.read(connection)
        async with connection.pipeline():
            await connection.execute(begin)
            cursor = await connection.execute(f"SELECT {CLOCK}")
        return self.seen((await cursor.fetchall())[0][0])

    async def glance(self, connection: AsyncConnection[Row]) -> int:
        """The time for reads on which nothing is decided: extrapolated from a reading of the last second, without
        another query. It is never ahead of the server, because that answer took time to arrive."""
        ago = monotonic() - self._read_at
        if self.injected is None and ago < FRESH:
            self.last = max(self.last, self._reading + int(ago * 1000))
            return self.last
        return await self.read(connection)

    async def check(self, connection: AsyncConnection[Row], place: str) -> None:
        """Raises ClockImplausible where the server's clock differs from this machine's by more than a year. The
        server's clock decides what is due."""
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
