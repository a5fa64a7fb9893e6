"""What the parts of an engine have in common, and what they ask of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from horae.engine.live import Ledger, LiveAttempt, LiveRun
from horae.engine.outage import Outage
from horae.engine.registry import Registry
from horae.engine.tools import Tools
from horae.engine.tuning import Tuning
from horae.engine.wakeup import StoreClock
from horae.events import Stream
from horae.store.port import AttemptEnd, OutputChunk, Store


@dataclass(frozen=True, slots=True)
class Shared:
    """One of each for a whole engine."""

    loop: asyncio.AbstractEventLoop
    store: Store
    registry: Registry
    ledger: Ledger
    stream: Stream
    tuning: Tuning
    outage: Outage
    clock: StoreClock
    tools: Tools | None = None


class Part:
    """A part of an engine, with what all of them share at hand."""

    def __init__(self, shared: Shared) -> None:
        self._loop = shared.loop
        self._store = shared.store
        self._registry = shared.registry
        self._ledger = shared.ledger
        self._stream = shared.stream
        self._tuning = shared.tuning
        self._outage = shared.outage
        self._clock = shared.clock
        self._tools = shared.tools

    def retune(self, tuning: Tuning) -> None:
        """Goes on with other limits and rhythms."""
        self._tuning = tuning


class ThreadPool(Protocol):
    """Where sync tasks run: real threads, or the simulation's own turn-taking."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...

    def close(self) -> None: ...


class Owner(Protocol):
    """Whoever is to be told: the completer."""

    def ended(self, run: LiveRun) -> None: ...

    def keep_output(self, chunk: OutputChunk) -> None: ...

    async def commit(self, run: LiveRun, attempt: LiveAttempt, end: AttemptEnd) -> None: ...

    def work_over(self, attempt: LiveAttempt) -> None: ...


BREATHS = 4
"""Turns of the event loop that others get between two of the engine's: an answer over HTTP takes about so many."""


async def breathe() -> None:
    """Lets others in this loop get something done, though there is more to do here."""
    for _ in range(BREATHS):
        await asyncio.sleep(0)
