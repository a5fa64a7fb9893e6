"""A rate limit for audit rows of repeated refusals, which counts the refusals that get no row."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class RefusalLimiter:
    """Admits `rows` rows at once, and then one every `seconds`."""

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
        """Whether the full allowance of `rows` is available again."""
        return self._left + (self._clock() - self._at) / self._seconds >= self._rows

    @property
    def unwritten(self) -> int:
        """How many refusals got no row since the last one that did."""
        return self._unwritten

    def admits(self) -> dict[str, int] | None:
        """Counts a refusal. None where it gets no row; otherwise the details to add to its row, which say how many
        refusals before it got none, if there were any."""
        now = self._clock()
        self._left = min(self._rows, self._left + (now - self._at) / self._seconds)
        self._at = now
        if self._left < 1.0:
            self._unwritten += 1
            return None
        self._left -= 1.0
        unwritten, self._unwritten = self._unwritten, 0
        return {"and_before": unwritten} if unwritten else {}
