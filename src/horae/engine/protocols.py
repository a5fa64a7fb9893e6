"""The objects that the parts of an engine share, and the interfaces through which they call each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from horae.engine.attempts.tools import TaskResources
from horae.engine.handlers import HandlerRegistry
from horae.engine.limits import EngineSettings
from horae.engine.live_runs import LiveAttempt, LiveRun, LiveRuns
from horae.engine.outage import OutageTracker
from horae.engine.wakeup import StoreClock
from horae.events import Stream
from horae.store.protocols.store import AttemptEnd, OutputChunk, Store


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The objects that all parts of one engine share."""

    loop: asyncio.AbstractEventLoop
    store: Store
    registry: HandlerRegistry
    ledger: LiveRuns
    stream: Stream
    tuning: EngineSettings
    outage: OutageTracker
    clock: StoreClock
    tools: TaskResources | None = None


class EnginePart:
    """A part of an engine, with the shared objects as attributes."""

    def __init__(self, shared: EngineContext) -> None:
        self._loop = shared.loop
        self._store = shared.store
        self._registry = shared.registry
        self._ledger = shared.ledger
        self._stream = shared.stream
        self._tuning = shared.tuning
        self._outage = shared.outage
        self._clock = shared.clock
        self._tools = shared.tools

    def retune(self, tuning: EngineSettings) -> None:
        """Replaces the settings of this part."""
        self._tuning = tuning


class ThreadPool(Protocol):
    """Runs sync tasks: in real threads, or in turns under a simulation."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...

    def close(self) -> None: ...


class AttemptListener(Protocol):
    """The part that receives the ends and the output of attempts: the settler."""

    def ended(self, run: LiveRun) -> None: ...

    def keep_output(self, chunk: OutputChunk) -> None: ...

    async def commit(self, run: LiveRun, attempt: LiveAttempt, end: AttemptEnd) -> None: ...

    def work_over(self, attempt: LiveAttempt) -> None: ...


LOOP_TURNS = 4
"""How many turns the event loop gives to other code between two turns of an engine loop. An HTTP request takes about
this many."""


async def yield_to_loop() -> None:
    """Lets other code in this event loop run although the calling loop has more to do."""
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
