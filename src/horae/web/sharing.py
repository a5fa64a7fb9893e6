"""Answers that many ask for at once, made once.

Fifty who watch one page want the same part of it again at the same moment: when they are told that something changed.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine, Hashable
from time import time
from typing import Any, TypeVar

from starlette.responses import Response

Made = TypeVar("Made")
COMPRESSED = 1024
"""Bytes from which on an answer is compressed for those who can read that."""
LEVEL = 5


class Shared:
    """Answers by key. None is older than `seconds`, or from before the last `forget`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._made: dict[Hashable, tuple[float, float, asyncio.Task[Any]]] = {}

    async def get(
        self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Made]], *, since: float = float("-inf")
    ) -> Made:
        """What `make` comes to, now or a moment ago, but not before `since`, in seconds since 1970: a server beside
        this one may know of a change that this one does not know of yet. Whoever stops waiting stops nobody else."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        found = self._made.get(key)
        if found is None or now - found[0] >= self._seconds or found[1] <= since:
            self._drop_old(now)
            found = now, time(), loop.create_task(make(), name="horae shared answer")
            self._made[key] = found
        task: asyncio.Task[Made] = found[2]
        try:
            return await asyncio.shield(task)
        except BaseException:
            has_failed = task.done() and (task.cancelled() or task.exception() is not None)
            if has_failed and self._made.get(key) is found:
                # What failed is not kept: the next one tries again.
                del self._made[key]
            raise

    def forget(self) -> None:
        self._made.clear()

    def _drop_old(self, now: float) -> None:
        for key in [key for key, (at, *_) in self._made.items() if now - at >= self._seconds]:
            del self._made[key]


class Part:
    """A part of a page as it is sent, to whoever asks for it."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._compressed: bytes | None = None

    def response(self, accepted: str) -> Response:
        """A response of its own for each, compressed where `accepted`, an Accept-Encoding, allows that."""
        headers = {
            name: value for name, value in self._response.headers.items() if name not in ("content-length", "vary")
        }
        body = bytes(self._response.body)
        if len(body) >= COMPRESSED:
            headers["vary"] = "Accept-Encoding"
            if "gzip" in accepted:
                if self._compressed is None:
                    self._compressed = gzip.compress(body, LEVEL)
                headers["content-encoding"] = "gzip"
                body = self._compressed
        return Response(body, self._response.status_code, headers)
