"""A budget of arithmetic for one answer: a request may have no end, and other requests wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from horae.core.window.decision import MAX_ATTEMPTS, Decision
from horae.core.window.window import Window

_CLAUSES_A_DRAW = 2
"""Constraint clauses that take about as long to check as one candidate takes to draw."""


def _never() -> bool:
    return False


@dataclass(slots=True)
class Effort:
    """Scheduled times that may still be examined, and candidates that may still be drawn for them. `stopped` returns
    True once no caller waits for the answer."""

    slots: int
    draws: int
    stopped: Callable[[], bool] = _never

    @property
    def is_spent(self) -> bool:
        return self.slots <= 0 or self.draws <= 0 or self.stopped()

    def part(self, slots: int, draws: int) -> Effort:
        """Returns the budget of one part of the answer, which is at most this one. The caller spends on both."""
        return Effort(min(slots, self.slots), min(draws, self.draws), self.stopped)

    def spend(self, window: Window | None = None, decision: Decision | None = None) -> None:
        """Counts one examined scheduled time, and the decision about its start in a window."""
        self.slots -= 1
        if window is not None and decision is not None:
            days = window.length.days if window.exact and decision.attempts >= MAX_ATTEMPTS else 0
            self.draws -= (decision.attempts + days) * _weight(window)


def _weight(window: Window) -> int:
    rules = window.constraints.rules()
    clauses = sum(map(len, (*rules.only, *rules.avoid)))
    return 1 + clauses // _CLAUSES_A_DRAW
