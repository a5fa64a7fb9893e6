"""What a server calculates with for its users: one request of each user at a time, in processes that are killed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from horae.control.calculator import Calculate
from horae.control.turns import Turns
from horae.errors import InvalidInput
from horae.runners.calculators import LESS, Calculators, Overdue, Unportable

MOST_AT_ONCE = 2
"""Requests that are worked on at once, of different users."""
MOST_WAITING = 4
"""Requests of one user that may wait for their turn."""
SECONDS = 30.0
"""How long one request may be calculated, all of its parts together."""

_log = logging.getLogger("horae")


class ProcessCalculator:
    """A `Calculator` with a pool of processes. Whoever made it closes it, in the loop that it was used in."""

    def __init__(
        self, *, most: int = MOST_AT_ONCE, waiting: int = MOST_WAITING, seconds: float = SECONDS, **pool: Any
    ) -> None:
        """`pool` goes to `Calculators`."""
        self._turns = Turns(most, waiting)
        self._seconds = seconds
        self.processes = Calculators(idle=most, **pool)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Calculate]:
        async with self._turns.taken(name):
            yield _Turn(self.processes, self._seconds)

    async def close(self) -> None:
        await self.processes.close()


class _Turn:
    """One request's share of the processes."""

    def __init__(self, processes: Calculators, seconds: float) -> None:
        self._processes = processes
        self._seconds = self._left = seconds

    async def __call__(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._processes.call(function, arguments, named, seconds=max(self._left, 0.0))
        except Overdue:
            raise InvalidInput(
                f"To work this out takes longer than {self._seconds:g} s, so it was ended",
                hint=LESS,
                details={"seconds": self._seconds},
            ) from None
        except Unportable as error:
            # A schedule of the program's own, which no other process can import: its code is trusted as this one's is.
            _log.debug("calculated in this process: %s", error)
            return await asyncio.to_thread(function, *arguments, **named)
        finally:
            self._left -= loop.time() - began
