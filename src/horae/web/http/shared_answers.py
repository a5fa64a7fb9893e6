"""Answers that many viewers request at once and that are made once.

When something changes, all viewers of a page request the same part of it at the same moment.
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
"""The least size in bytes of an answer that is compressed."""
LEVEL = 5


class SharedAnswers:
    """Answers by key. An answer is reused for `seconds`, and not after `forget`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._made: dict[Hashable, tuple[float, float, asyncio.Task[Any]]] = {}

    async def get(
        self, key: Hashable, make: Callable[[], Coroutine[Any, Any, Made]], *, since: float = float("-inf")
    ) -> Made:
        """Returns the result of `make`, or of a recent call with the same key that began after `since`, in seconds
        since 1970. The caller gives `since` because another server may know of a change before this one does. A caller
        that is cancelled does not cancel the others."""
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
                # A failure is not kept, so the next caller tries again.
                del self._made[key]
            raise

    def forget(self) -> None:
        self._made.clear()

    def _drop_old(self, now: float) -> None:
        for key in [key for key, (at, *_) in self._made.items() if now - at >= self._seconds]:
            del self._made[key]


class PagePart:
    """A rendered part of a page that several viewers share."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._compressed: bytes | None = None

    def response(self, accepted: str) -> Response:
        """Returns a new response, compressed if `accepted`, the Accept-Encoding header, allows it."""
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
