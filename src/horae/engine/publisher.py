"""Publishes the head of the audit trail where those who can write to the database cannot: a file, a webhook.

A file that lies on a server which is away, and a webhook that does not answer, keep nothing else waiting: each try is
in a thread of its own, has a deadline, and is made anew with the next head.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from horae.errors import HoraeError
from horae.events import HeadUnpublished
from horae.security.head_file import SeenHead, append_heads, last_head
from horae.store.vault import Head

DEADLINE = 10.0
"""Seconds for one try."""
MOST_HELD = 1000
"""Heads that wait for the file: of more, the oldest are left out."""


class HeadPublisher:
    """One node's. `failed` is told of what could not be published."""

    def __init__(
        self,
        file: str | None,
        webhook: str | None,
        failed: Callable[[HeadUnpublished], None],
        deadline: float = DEADLINE,
    ) -> None:
        self._file = file
        self._webhook = webhook
        self._failed = failed
        self._deadline = deadline
        self._held: list[SeenHead] = []
        self._there = asyncio.Event()
        self._busy: set[str] = set()
        """Where a try goes on, also one that was given up."""

    def offer(self, head: SeenHead) -> None:
        """Has it published soon."""
        if self._file is not None or self._webhook is not None:
            self._held = [*self._held, head][-MOST_HELD:]
            self._there.set()

    async def newest(self) -> Head | None:
        """The last one in the file. None where there is none, or it cannot be read: the next head tells that."""
        found: list[SeenHead] = []
        if self._file is None or self._file in self._busy:
            return None
        file = self._file
        await self._apart(file, lambda: found.append(last_head(file)))
        return Head(found[0].seal, found[0].digest) if found else None

    async def run(self) -> None:
        """Publishes for as long as it is not cancelled."""
        while True:
            await self._there.wait()
            self._there.clear()
            heads, self._held = self._held, []
            if not await self.publish(heads):
                # With the next head. One that was written after its try was given up has two lines then.
                self._held = [*heads, *self._held][-MOST_HELD:]

    async def publish(self, heads: list[SeenHead]) -> bool:
        """The file gets all of them, the webhook the last. Whether the file has them, where there is one."""
        tries = []
        if self._webhook is not None:
            url = self._webhook
            tries.append(self._try(shown_address(url), lambda: post_head(url, heads[-1], self._deadline)))
        if self._file is not None:
            file = self._file
            tries.append(self._try(file, lambda: append_heads(file, heads)))
        done = await asyncio.gather(*tries)
        return self._file is None or done[-1]

    async def _try(self, where: str, work: Callable[[], None]) -> bool:
        reason = "the one before has not ended yet"
        if where not in self._busy:
            reason = await self._apart(where, work)
        if reason:
            self._failed(HeadUnpublished(where, reason))
        return not reason

    async def _apart(self, where: str, work: Callable[[], None]) -> str:
        """Why it failed, or nothing. The thread keeps no process from its end."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()

        def end(reason: str) -> None:
            self._busy.discard(where)
            if not ended.done():
                ended.set_result(reason)

        def run() -> None:
            reason = ""
            try:
                work()
            except HoraeError as error:
                reason = error.message
            except OSError as error:
                # Its text may have the address in it, and that a secret.
                reason = error.strerror or type(error).__name__
            except Exception as error:  # noqa: BLE001 - whatever an answer was, the node goes on
                reason = type(error).__name__
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, reason)

        self._busy.add(where)
        threading.Thread(target=run, name="horae-head", daemon=True).start()
        try:
            async with asyncio.timeout(self._deadline):
                return await ended
        except TimeoutError:
            return f"it took longer than {self._deadline:g} s"


def post_head(url: str, head: SeenHead, timeout: float) -> None:
    """POSTs it as JSON. Redirects are not followed. Raises OSError, HTTPException."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        body = json.dumps({"seal": head.seal, "digest": head.digest, "time": head.time}).encode()
        connection.request("POST", target, body, {"Content-Type": "application/json", "User-Agent": "horae"})
        status = connection.getresponse().status
        if not 200 <= status < 300:
            raise OSError(0, f"the answer was {status}")
    finally:
        connection.close()


def shown_address(url: str) -> str:
    """Where it leads: the path and what comes after may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
