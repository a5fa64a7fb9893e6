"""Threads: a pool of warm daemon threads for sync tasks; results are delivered in the event loop.

It is made for thousands of short calls a second: a call costs one queue put, and results that arrive while the loop is
busy are delivered together, with one wake-up of the loop.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

Done = Callable[[Any, BaseException | None], None]

_numbers = itertools.count(1)


def leave_if_forked(pid: int) -> None:
    """Ends the process if it is a fork that a task made and returned from: only the original process has the engine."""
    if os.getpid() != pid:
        os._exit(0)


class Threads:
    """A pool that grows to as many threads as there are calls under way. The caller limits their number.

    The threads are daemons, so a call that never returns keeps neither the pool nor the interpreter from ending.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._waking = False
        self._busy = 0
        self._count = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def busy(self) -> int:
        """Calls that have not returned."""
        return self._busy

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Runs `call` in a thread, then `done(value, error)` in the loop. Must be called in the loop's thread.

        `error` is what the call raised, including SystemExit and KeyboardInterrupt, or the reason why no thread could
        start. Raises RuntimeError if the pool is closed.
        """
        if self._closed:
            raise RuntimeError("these threads were closed")
        self._busy += 1
        # A call counts as busy until its result is delivered, so there is a free thread for each call in the queue.
        if self._busy > self._count:
            thread = Thread(target=self._work, name=f"horae-{next(_numbers)}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system has no thread left
                self._finished.append((done, None, error))
                self._loop.call_soon(self._deliver)
                return
            self._count += 1
        self._calls.put((call, done))

    def close(self) -> None:
        """Ends idle threads. Busy ones go on, and their results are dropped."""
        if not self._closed:
            self._closed = True
            self._finished.clear()
            for _ in range(self._count):
                self._calls.put(None)

    def _work(self) -> None:
        """Runs calls in one thread until the pool is closed."""
        while (item := self._calls.get()) is not None and not self._closed:
            call, done = item
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001 - an error of a task must not end the thread
                error = raised
            leave_if_forked(self._pid)
            if self._closed:
                return
            self._finished.append((done, value, error))
            # An idle thread must not keep alive what the last call returned.
            del item, call, done, value, error
            # The result is added before the flag is read; the loop does the reverse, so no result is missed.
            if not self._waking:
                self._waking = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed, so results are dropped
                    return

    def _deliver(self) -> None:
        self._waking = False
        finished = self._finished
        # A fixed number: calls that are submitted here and end immediately would block the loop.
        for _ in range(len(finished)):
            if self._closed:
                return
            done, value, error = finished.popleft()
            self._busy -= 1
            try:
                done(value, error)
            except Exception as raised:  # noqa: BLE001 - an error in one callback must not lose the other results
                self._loop.call_exception_handler({"message": f"{done!r} failed", "exception": raised})
