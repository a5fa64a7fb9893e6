"""A flood of the same thing leaves a few audit rows, which say how many there were."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Flood:
    """Lets `rows` through at once, and then one every `seconds`."""

    __slots__ = ("_at", "_clock", "_left", "_rows", "_seconds", "_unwritten")

    def __init__(self, rows: int, seconds: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._rows = float(rows)
        self._seconds = seconds
        self._clock = clock
        self._left = self._rows
        self._at = clock()
        self._unwritten = 0

    @property
    def is_rested(self) -> bool:
        """Whether as many may come at once as at first."""
        return self._left + (self._clock() - self._at) / self._seconds >= self._rows

    @property
    def unwritten(self) -> int:
        """How many went without a row since the last that has one."""
        return self._unwritten

    def admits(self) -> dict[str, int] | None:
        """None: this one goes without a row. Otherwise what its row is to tell besides: how many went without one
        before it, if any did."""
        now = self._clock()
        self._left = min(self._rows, self._left + (now - self._at) / self._seconds)
        self._at = now
        if self._left < 1.0:
            self._unwritten += 1
            return None
        self._left -= 1.0
        unwritten, self._unwritten = self._unwritten, 0
        return {"and_before": unwritten} if unwritten else {}
