"""A declarative scheduler with many registrations, measured from inside its own process; run by `bench.declarative`.

Callbacks note when they were called and return. The clock is the host's, moved so that the minute everything is due in
comes soon after initialize() has returned.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from time import perf_counter
from typing import Any

from bench.engine_child import serve
from horae.declarative import Scheduler

MINUTE = 30
AHEAD = 12.0
"""Seconds between the moment everything is ready and the minute: more than an engine needs to notice another clock."""


class Called:
    """Counts calls, and says when all were made."""

    def __init__(self, expected: int) -> None:
        self.times: list[float] = []
        self.expected = expected
        self.all = asyncio.Event()

    def note(self) -> None:
        self.times.append(perf_counter())
        if len(self.times) == self.expected:
            self.all.set()


def registrations(count: int, callback: Any) -> list[tuple[str, str, Any, timedelta]]:
    """Twenty expressions that all have the minute in common, and a thousand delays."""
    return [
        (f"task {number:07}", f"{number % 20},{MINUTE} * * * *", callback, timedelta(seconds=300 + number % 1000))
        for number in range(count)
    ]


async def due(url: str, count: int) -> dict[str, float]:
    """initialize() of new registrations and of the same again, and how soon all have been called once they are due."""
    called = Called(count)

    async def callback() -> None:
        called.note()

    scheduler = Scheduler(url, tz="UTC")
    moved = datetime.now(UTC).replace(minute=MINUTE - 2, second=0) - datetime.now(UTC)
    scheduler.app.clock = lambda: datetime.now(UTC) + moved
    begun = perf_counter()
    await scheduler.initialize(registrations(count, callback))
    first = perf_counter() - begun
    await scheduler.stop()
    begun = perf_counter()
    await scheduler.initialize(registrations(count, callback))
    again = perf_counter() - begun
    boundary = scheduler.app.clock().replace(minute=MINUTE, second=0, microsecond=0)
    moved += boundary - timedelta(seconds=AHEAD) - scheduler.app.clock()
    at = perf_counter() + (boundary - scheduler.app.clock()).total_seconds()
    await called.all.wait()
    lags = sorted(each - at for each in called.times)
    await scheduler.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "initialize": first,
        "initialize_again": again,
        "median": quantiles(lags, n=100)[49] if len(lags) > 1 else lags[0],
        "last": lags[-1],
        "memory_mb": memory,
    }


async def cut(url: str, count: int) -> dict[str, float]:
    """Is killed as soon as every callback is at work."""
    called = Called(count)

    async def callback() -> None:
        called.note()
        await asyncio.Event().wait()

    scheduler = Scheduler(url, tz="UTC")
    moved = datetime.now(UTC).replace(minute=MINUTE, second=0) - datetime.now(UTC)
    scheduler.app.clock = lambda: datetime.now(UTC) + moved
    await scheduler.initialize(registrations(count, callback))
    await called.all.wait()
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


async def restart(url: str, count: int) -> dict[str, float]:
    """How soon after initialize() was called everything that was cut off has been called again."""
    called = Called(count)

    async def callback() -> None:
        called.note()

    scheduler = Scheduler(url, tz="UTC")
    moved = datetime.now(UTC).replace(minute=MINUTE + 5, second=0) - datetime.now(UTC)
    scheduler.app.clock = lambda: datetime.now(UTC) + moved
    begun = perf_counter()
    await scheduler.initialize(registrations(count, callback))
    initialized = perf_counter() - begun
    await called.all.wait()
    last = called.times[-1] - begun
    await scheduler.stop()
    return {"initialize": initialized, "last": last}


if __name__ == "__main__":
    raise SystemExit(serve({"due": due, "cut": cut, "restart": restart}))
