"""The watchdog: stops a node's attempts when no heartbeat has been confirmed for too long.

It is a thread beside the heartbeat and not part of it, because a heartbeat whose packets are lost hangs and cannot
check how late it is. It measures time since the machine started, which goes on while the machine is suspended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_WAIT = 1.0
"""Seconds between two looks at the clock. A wait does not count the time for which the machine is suspended."""


def elapsed() -> float:
    """Returns the seconds since the machine started, including suspended time where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Watchdog:
    """Knows when the last confirmed heartbeat was sent, and how late the next may be.

    This class only answers questions and starts no thread. Simulations use it, because their time stands still while
    code hangs.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self.clock = clock
        self._limit: float | None = None
        self._confirmed = clock()
        self._condition = threading.Condition()
        self._told = False

    def confirm(self, sent_at: float) -> None:
        """Notes that the heartbeat sent at that moment has been confirmed."""
        with self._condition:
            self._confirmed = sent_at
            self._told = False
            self._condition.notify_all()

    def limit(self, seconds: float | None) -> None:
        """Sets how many seconds after the last confirmed heartbeat attempts may go on. None: for ever."""
        with self._condition:
            self._limit = seconds
            self._condition.notify_all()

    def overdue(self) -> float | None:
        """Returns the seconds since the last confirmed heartbeat if they exceed the limit; once only, until the next
        confirmation."""
        with self._condition:
            return self._overdue()

    @property
    def silence(self) -> float:
        """Seconds since the last confirmed heartbeat was sent."""
        return self.clock() - self._confirmed

    @property
    def is_late(self) -> bool:
        """Whether the limit is exceeded, however often that was reported. Until the next confirmed heartbeat other
        nodes may count this node as dead."""
        limit = self._limit
        return limit is not None and self.silence >= limit

    def _overdue(self) -> float | None:
        late = self.silence
        if self._limit is None or self._told or late < self._limit:
            return None
        self._told = True
        return late

    def start(self, stop: Callable[[float], None]) -> None:
        """Starts to watch: `stop` is called with the seconds of silence, in another thread, when the limit is
        exceeded."""

    def close(self) -> None:
        """Stops watching."""


class WatchdogThread(Watchdog):
    """A watchdog with a thread that checks the limit."""

    def __init__(self) -> None:
        super().__init__()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, stop: Callable[[float], None]) -> None:
        self._thread = threading.Thread(target=self._watch, args=(stop,), name="horae watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, stop: Callable[[float], None]) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                late = self._overdue()
                if late is None:
                    self._condition.wait(self._wait())
                    continue
            stop(late)

    def _wait(self) -> float | None:
        if self._limit is None or self._told:
            return None
        return max(0.0, min(self._confirmed + self._limit - self.clock(), LONGEST_WAIT))
