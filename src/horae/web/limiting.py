"""How often somebody may ask: buckets of tokens, one for each who asks, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from horae.core.throttle import Left, Throttle

MOST_KEYS = 10_000


class Buckets:
    """Each key has a bucket of `burst` tokens, into which `rate` more fall every second.

    A key that was not heard of for long is forgotten first; its bucket would be full again by then."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = monotonic, most: int = MOST_KEYS):
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, Left] = OrderedDict()

    def take(self, key: str, times: float = 1.0) -> float:
        """Takes one token, a bucket for `times` as many visitors being so much larger; answers 0.0, or, where there is
        none, the seconds until there is one again."""
        throttle = Throttle(self._burst * times, self._rate * times)
        left, wait = throttle.take(self._buckets.get(key), self._clock())
        self._buckets[key] = left
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait
