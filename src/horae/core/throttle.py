"""How often somebody may try: so many times at once, and then one after the other, at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Left(NamedTuple):
    """Tries that somebody had left at a moment."""

    tries: float
    at: float
    """Seconds, of whatever clock counts."""


class Taken(NamedTuple):
    left: Left
    wait: float
    """Seconds until there is a try again; 0.0: one was taken."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """`burst` tries at once; `rate` more come back every second, up to as many."""

    burst: float
    rate: float

    def take(self, left: Left | None, now: float) -> Taken:
        """Takes one try of those `left`; None: nothing was taken yet. A clock that was set back gives none."""
        tries = self.burst if left is None else min(self.burst, left.tries + max(0.0, now - left.at) * self.rate)
        if tries >= 1.0:
            return Taken(Left(tries - 1.0, now), 0.0)
        return Taken(Left(tries, now), (1.0 - tries) / self.rate)


OLD_PASSWORDS = Throttle(burst=10.0, rate=1 / 60)
"""Old passwords that may be tried, of one user: whoever found a session open guesses no password by it."""
