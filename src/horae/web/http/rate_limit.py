"""Rate limits by token buckets, one for each key, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from horae.core.rate_limit import RemainingTries, Throttle

MOST_KEYS = 10_000


class RateLimiter:
    """Token buckets by key. Each holds at most `burst` tokens and gains `rate` tokens a second.

    Beyond `most` keys, the one that was unused for the longest time is forgotten, as if its bucket were full again."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = monotonic, most: int = MOST_KEYS):
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, RemainingTries] = OrderedDict()

    def take(self, key: str, times: float = 1.0) -> float:
        """Takes a token and returns 0.0, or returns the seconds until there is one. `times` multiplies the bucket's
        size and rate, for keys that stand for several visitors."""
        throttle = Throttle(self._burst * times, self._rate * times)
        left, wait = throttle.take(self._buckets.get(key), self._clock())
        self._buckets[key] = left
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait
