"""Rate limits by token bucket: a number of tries at once, then more at a steady rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RemainingTries(NamedTuple):
    """The tries that were left at one moment."""

    tries: float
    at: float
    """Seconds, by the clock of the caller."""


class TryResult(NamedTuple):
    left: RemainingTries
    wait: float
    """Seconds until the next try is possible; 0.0: a try was taken."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Allows `burst` tries at once. Every second `rate` tries come back, up to `burst`."""

    burst: float
    rate: float

    def take(self, left: RemainingTries | None, now: float) -> TryResult:
        """Takes one try of those `left` (None: no try was taken yet). A clock that was set back adds no tries."""
        tries = self.burst if left is None else min(self.burst, left.tries + max(0.0, now - left.at) * self.rate)
        if tries >= 1.0:
            return TryResult(RemainingTries(tries - 1.0, now), 0.0)
        return TryResult(RemainingTries(tries, now), (1.0 - tries) / self.rate)


OLD_PASSWORDS = Throttle(burst=10.0, rate=1 / 60)
"""The limit on tries of one user's old password, so that an open session cannot be used to guess it."""
