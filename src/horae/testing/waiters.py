"""Code outside a simulation that waits on its time, such as a test that iterates a ticker.

The simulation moves time in its own loop, in a thread. A waiter lives in the test's loop. When its wait ends, simulated
time stands still until the waiter has done its part. So a waiter never misses a moment and never moves time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from horae.testing.alternation import LoopThread

Answer = TypeVar("Answer")
QUIET_TURNS = 20
"""Turns of the test's loop without a call to the simulation, after which its tasks count as done with this moment. This
is a guess: a task may await something real, or the simulation itself."""
MOST_TURNS = 1000
"""Turns after which time goes on in any case, because a task may call the app without end."""


class Waiters:
    """The calls and waits of loops other than the simulation's."""

    def __init__(self, turns: LoopThread) -> None:
        self._turns = turns
        self._loop = turns.loop
        self._waits: set[Future[Any]] = set()
        self._calls = 0
        """How many calls have begun or ended."""
        self._open_calls = 0
        self._is_over = False

    async def call(self, function: Callable[[], Answer]) -> Answer:
        """Calls the function in the simulation's thread. `advance` moves time only after that."""
        self._calls += 1
        self._open_calls += 1
        try:
            return await self._turns.call(function)
        finally:
            self._calls += 1
            self._open_calls -= 1

    async def wait_for(self, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer | None:
        """Awaits `work` in the simulation's loop without moving time. Returns None if the simulation ends first."""
        if self._is_over:
            return None
        answer: Future[Answer] | None = None

        def begin() -> Future[Answer]:
            # In the simulation's thread: its loop gets new work only while it is idle, so that the order is
            # deterministic.
            nonlocal answer
            answer = asyncio.run_coroutine_threadsafe(work(), self._loop)
            answer.add_done_callback(self._pause)
            self._waits.add(answer)
            self._loop.run_ready()
            return answer

        try:
            future = asyncio.wrap_future(await self.call(begin))
            await asyncio.wait({future})
            return None if future.cancelled() else future.result()
        finally:
            if answer is not None:
                self._waits.discard(answer)
                answer.cancel()

    def _pause(self, answer: Future[Any]) -> None:
        if not answer.cancelled():
            self._loop.pause()

    async def settled(self) -> None:
        """Returns when the other tasks of the running loop have done what they can do at this moment."""
        if len(asyncio.all_tasks()) == 1:
            return
        quiet = 0
        for _ in range(MOST_TURNS):
            calls = self._calls
            if self._open_calls:
                await self._turns.call(_nothing)  # calls are carried out in order: earlier ones have ended then
            else:
                await asyncio.sleep(0)
            quiet = 0 if self._open_calls or self._calls != calls else quiet + 1
            if quiet == QUIET_TURNS:
                return

    def end(self) -> None:
        """Ends every wait, and refuses new ones."""
        self._is_over = True
        for answer in tuple(self._waits):
            answer.cancel()


def _nothing() -> None: ...
