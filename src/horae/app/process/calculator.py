"""Calculations that a server makes for its users: one request per user at a time, in processes that can be killed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from horae.errors import InvalidInput
from horae.executors.calculators import LESS, CalculationTimedOut, Calculators, UnportableCall
from horae.services.calculator import Calculate
from horae.services.turns import UserTurns

MOST_AT_ONCE = 2
"""Requests of different users that are calculated at the same time."""
MOST_WAITING = 4
"""Requests of one user that may wait."""
SECONDS = 30.0
"""Time limit of one request, all its calculations together."""

_log = logging.getLogger("horae")


class ProcessCalculator:
    """A `Calculator` with a pool of processes. Its creator closes it, in the event loop that it was used in."""

    def __init__(
        self, *, most: int = MOST_AT_ONCE, waiting: int = MOST_WAITING, seconds: float = SECONDS, **pool: Any
    ) -> None:
        """`most` and `waiting` limit requests as MOST_AT_ONCE and MOST_WAITING do. `pool` goes to `Calculators`."""
        self._turns = UserTurns(most, waiting)
        self._seconds = seconds
        self.processes = Calculators(idle=most, **pool)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Calculate]:
        async with self._turns.taken(name):
            yield _Turn(self.processes, self._seconds)

    async def close(self) -> None:
        await self.processes.close()


class _Turn:
    """One request's share of the processes and of the time limit."""

    def __init__(self, processes: Calculators, seconds: float) -> None:
        self._processes = processes
        self._seconds = self._left = seconds

    async def __call__(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._processes.call(function, arguments, named, seconds=max(self._left, 0.0))
        except CalculationTimedOut:
            raise InvalidInput(
                f"To work this out takes longer than {self._seconds:g} s, so it was ended",
                hint=LESS,
                details={"seconds": self._seconds},
            ) from None
        except UnportableCall as error:
            # A custom schedule that no other process can import. Its code is trusted like this program's.
            _log.debug("calculated in this process: %s", error)
            return await asyncio.to_thread(function, *arguments, **named)
        finally:
            self._left -= loop.time() - began
