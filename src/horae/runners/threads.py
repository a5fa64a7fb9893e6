"""Threads: sync tasks run in daemon threads that are kept warm; what they return is told in the event loop.

Made for thousands of short calls a second: a call costs one put into a queue, and results that come in while the loop
is busy are told together, with one wake-up of the loop for all of them.
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
    """Ends a process that a task forked and that came back from it: there is one engine, and it is not this copy."""
    if os.getpid() != pid:
        os._exit(0)


class Threads:
    """A pool that grows to as many threads as there are calls under way. The caller limits how many that are.

    Threads are daemons: one that never comes back keeps neither the pool nor the interpreter from ending.
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
        """Calls that have not come back."""
        return self._busy

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Runs `call` in a thread, then `done(value, error)` in the loop. To be called in the loop's thread.

        `error` is whatever the call raised, SystemExit and KeyboardInterrupt included, or why it has no thread.
        """
        if self._closed:
            raise RuntimeError("these threads were closed")
        self._busy += 1
        # Every call that has not been told of counts as busy, so there is a thread free for each one in the queue.
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
        """Idle threads end. Busy ones are left alone, and what they return is nobody's business any more."""
        if not self._closed:
            self._closed = True
            self._finished.clear()
            for _ in range(self._count):
                self._calls.put(None)

    def _work(self) -> None:
        """A thread's life."""
        while (item := self._calls.get()) is not None and not self._closed:
            call, done = item
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:  # noqa: BLE001 - whatever a task raises is its own end, not the thread's
                error = raised
            leave_if_forked(self._pid)
            if self._closed:
                return
            self._finished.append((done, value, error))
            # An idle thread must not keep alive what the last call returned.
            del item, call, done, value, error
            # First the result, then the look at the flag; the loop does it the other way round, so none is forgotten.
            if not self._waking:
                self._waking = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed: nobody waits for results
                    return

    def _deliver(self) -> None:
        self._waking = False
        finished = self._finished
        # Not "while any": calls that are submitted here and end at once would keep the loop from everything else.
        for _ in range(len(finished)):
            if self._closed:
                return
            done, value, error = finished.popleft()
            self._busy -= 1
            try:
                done(value, error)
            except Exception as raised:  # noqa: BLE001 - one listener's fault must not cost the others their results
                self._loop.call_exception_handler({"message": f"{done!r} failed", "exception": raised})
