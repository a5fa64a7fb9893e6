"""Repeats a verb that lost against another transaction, or whose connection broke.

Every verb may be repeated. The store itself never repeats: the caller decides how long to try. The pauses grow from
SHORTEST to LONGEST seconds, with jitter.
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


async def repeat_verb(verb: Callable[[], Awaitable[Answer]], *, patience: float = 30.0) -> Answer:
    """Returns what `verb` answers. Calls it again after StoreConflict and StoreUnavailable, for up to `patience`
    seconds, then raises the last such error."""
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
