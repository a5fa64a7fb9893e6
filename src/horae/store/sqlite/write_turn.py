"""Whose turn it is to write, among the texts of others on one node.

SQLite lets one write at a time and keeps no order among those that wait, so texts that follow each other closely would
keep the node itself from its heartbeats. One text writes at a time, in the order in which they asked. What all of them
hold together is a debt, which time without them pays back; while it is too large, none begins.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from time import monotonic

MOST_DEBT = 0.5
"""Seconds that texts may have held the writer's place beyond half of the time, before the next has to wait."""


class WriteTurn:
    """For threads: each waits in `take` on behalf of a text."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Hashable] = deque()
        self._holder: Hashable | None = None
        self._since = 0.0
        self._debt = 0.0
        self._counted_at = clock()

    def take(self, text: Hashable, is_over: Callable[[], bool]) -> bool:
        """Waits for the text's turn. False: `is_over` came true meanwhile; `look` has it asked again."""
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
        """The text writes no more; nothing where it is not its turn."""
        with self._changed:
            if self._holder == text:
                self._pause()
                self._debt += self._clock() - self._since
                self._holder = None
                self._changed.notify_all()

    def look(self) -> None:
        """Has everyone who waits ask whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def _pause(self) -> float:
        """Seconds until the next may begin. Time pays the debt back while nobody writes."""
        now = self._clock()
        if self._holder is None:
            self._debt = max(0.0, self._debt - (now - self._counted_at))
        self._counted_at = now
        return self._debt - MOST_DEBT
