"""Repeating a verb that lost against another transaction, or whose connection broke: every verb may be.

The store itself never repeats; whoever calls decides how long to try. Deadlocks and serialization failures are repeated
at once with jitter, a store that cannot be reached with growing pauses.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from horae.errors import StoreConflict, StoreUnavailable

Answer = TypeVar("Answer")
SHORTEST = 0.01
LONGEST = 2.0


async def repeated(verb: Callable[[], Awaitable[Answer]], *, patience: float = 30.0) -> Answer:
    """What `verb` answers, called again for up to `patience` seconds while the store says to; then its error."""
    ends = monotonic() + patience
    pause = SHORTEST
    while True:
        try:
            return await verb()
        except (StoreConflict, StoreUnavailable):
            if monotonic() + pause > ends:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads callers, guards nothing
        pause = min(pause * 2, LONGEST)
