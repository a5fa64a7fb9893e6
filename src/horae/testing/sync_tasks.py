"""Sync tasks in a simulation: each runs in a thread, and the loop stands still while it does.

So a sync task takes no virtual time, sees no changes while it runs, and ends in the same order every time. When the
task asks the loop for something (`run.transaction`, `app.sync`), the loop runs until it has the answer, and then waits
for the task again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from horae.executors import loop_wait

Done = Callable[[Any, BaseException | None], None]


class LockstepThreads:
    """A pool of threads of which only one works at a time, and never while the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[_Worker] = []

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        self._loop.call_soon(self._give, call, done)

    def _give(self, call: Callable[[], Any], done: Done) -> None:
        worker = self._idle.pop() if self._idle else _Worker(self)
        worker.work(call, done)

    def over(self, worker: _Worker, done: Done, value: Any, error: BaseException | None) -> None:
        self._idle.append(worker)
        done(value, error)

    def close(self) -> None:
        for worker in self._idle:
            worker.end()
        self._idle.clear()


class _Worker:
    """One thread. `_rests` tells the loop that the thread has ended its call or waits for the loop."""

    def __init__(self, pool: LockstepThreads) -> None:
        self._pool = pool
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._rests: SimpleQueue[tuple[Any, BaseException | None] | None] = SimpleQueue()
        self._done: Done
        threading.Thread(target=self._live, name="horae simulated task", daemon=True).start()

    def work(self, call: Callable[[], Any], done: Done) -> None:
        self._done = done
        self._calls.put(call)
        self._stand_still()

    def _stand_still(self, _: Any = None) -> None:
        """Blocks the loop's thread until the task has ended or waits for the loop."""
        outcome = self._rests.get()
        if outcome is not None:
            self._pool.over(self, self._done, *outcome)

    def _live(self) -> None:
        loop_wait.here.park = self._park
        while (call := self._calls.get()) is not None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = call(), None
            except BaseException as error:  # noqa: BLE001 - any error of a task is reported, as by real threads
                outcome = None, error
            self._rests.put(outcome)

    def _park(self, answer: Future[Any]) -> None:
        """Called in the task's thread. Lets the loop run until it has set `answer`."""
        answer.add_done_callback(self._stand_still)
        self._rests.put(None)

    def end(self) -> None:
        self._calls.put(None)
