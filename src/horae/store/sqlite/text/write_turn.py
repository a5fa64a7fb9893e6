"""The order in which users' texts on one node write to SQLite, and a limit on the time that they write.

SQLite lets one process write at a time and keeps no order among the waiting ones, so texts in close succession could
keep the node from writing its heartbeats. So one text writes at a time, in the order of their requests. The time that
texts hold the write lock is added to an account, and the time in which none writes is subtracted. While the account is
over MOST_DEBT, no text begins to write.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from time import monotonic

MOST_EXCESS = 0.5
"""Seconds that texts may have held the write lock beyond half of the time, before the next text must wait."""


class WriteTurn:
    """Gives texts their turn to write. Each text waits in `take`, in a thread of its own."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Hashable] = deque()
        self._holder: Hashable | None = None
        self._since = 0.0
        self._debt = 0.0
        self._counted_at = clock()

    def take(self, text: Hashable, is_over: Callable[[], bool]) -> bool:
        """Waits for the text's turn. False where `is_over` became true meanwhile; `look` makes it check again."""
        with self._changed:
            if self._holder == text:
                return True
            self._waiting.append(text)
            try:
                while not is_over():
                    pause = self._pause()
                    if self._holder is None and self._waiting[0] == text:
                        if pause <= 0:
                            self._holder, self._since = text, self._clock()
                            return True
                        self._changed.wait(pause)
                    else:
                        self._changed.wait()
                return False
            finally:
                self._waiting.remove(text)
                self._changed.notify_all()

    def give_back(self, text: Hashable) -> None:
        """Ends the text's turn. Does nothing where it is not its turn."""
        with self._changed:
            if self._holder == text:
                self._pause()
                self._debt += self._clock() - self._since
                self._holder = None
                self._changed.notify_all()

    def look(self) -> None:
        """Makes every waiting text check `is_over` again."""
        with self._changed:
            self._changed.notify_all()

    def _pause(self) -> float:
        """Seconds until the next text may begin. The account decreases while no text writes."""
        now = self._clock()
        if self._holder is None:
            self._debt = max(0.0, self._debt - (now - self._counted_at))
        self._counted_at = now
        return self._debt - MOST_EXCESS
