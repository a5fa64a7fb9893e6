"""Effort: how much arithmetic an answer may take. What was asked for may be without end, and others wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from horae.core.decision import MAX_ATTEMPTS, Decision
from horae.core.window import Window

_CLAUSES_A_DRAW = 2
"""Clauses that take about as long to look at as a candidate takes to draw."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Effort:
    """Slots that may still be looked at, and candidates that may still be drawn for them. `stopped` says that nobody
    waits for the answer any more."""

    slots: int
    draws: int
    stopped: Callable[[], bool] = _never

    @property
    def is_spent(self) -> bool:
        return self.slots <= 0 or self.draws <= 0 or self.stopped()

    def part(self, slots: int, draws: int) -> Effort:
        """So much of it as one part of the answer may take at most; spend on both."""
        return Effort(min(slots, self.slots), min(draws, self.draws), self.stopped)

    def spend(self, window: Window | None = None, decision: Decision | None = None) -> None:
        """One slot was looked at, and a start in its window decided."""
        self.slots -= 1
        if window is not None and decision is not None:
            days = window.length.days if window.exact and decision.attempts >= MAX_ATTEMPTS else 0
            self.draws -= (decision.attempts + days) * _weight(window)


def _weight(window: Window) -> int:
    rules = window.constraints.rules()
    clauses = sum(map(len, (*rules.only, *rules.avoid)))
    return 1 + clauses // _CLAUSES_A_DRAW
