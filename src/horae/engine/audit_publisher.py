"""Publishes the head of the audit trail to places that users with write access to the database cannot change.

The places are a file and a webhook. Each try has its own thread and a deadline, so an unreachable file server or
webhook delays nothing else. A failed try is repeated with the next head.
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
from horae.security.audit.head_file import SeenHead, append_heads, last_head
from horae.store.protocols.people import SealHead

DEADLINE = 10.0
"""Seconds for one try."""
MOST_HELD = 1000
"""Heads that wait for the file. When there are more, the oldest are dropped."""


class HeadPublisher:
    """Publishes heads for one node. It calls `failed` for each head that could not be published."""

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
        """Targets with a try under way, including tries that passed their deadline."""

    def offer(self, head: SeenHead) -> None:
        """Queues a head for publication."""
        if self._file is not None or self._webhook is not None:
            self._held = [*self._held, head][-MOST_HELD:]
            self._there.set()

    async def newest(self) -> SealHead | None:
        """Returns the last head in the file. None if there is none or the file cannot be read; the next try reports
        such an error."""
        found: list[SeenHead] = []
        if self._file is None or self._file in self._busy:
            return None
        file = self._file
        await self._apart(file, lambda: found.append(last_head(file)))
        return SealHead(found[0].seal, found[0].digest) if found else None

    async def run(self) -> None:
        """Publishes heads until it is cancelled."""
        while True:
            await self._there.wait()
            self._there.clear()
            heads, self._held = self._held, []
            if not await self.publish(heads):
                # They are tried again with the next head. A head whose try passed the deadline and still succeeded is
                # in the file twice.
                self._held = [*heads, *self._held][-MOST_HELD:]

    async def publish(self, heads: list[SeenHead]) -> bool:
        """Appends all heads to the file and sends the last one to the webhook.

        Returns whether the file has them; True if no file is configured.
        """
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
        """Runs `work` in a daemon thread. Returns why it failed, or "" if it succeeded."""
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
                # The error's own text may contain the address, and the address may contain a secret.
                reason = error.strerror or type(error).__name__
            except Exception as error:  # noqa: BLE001 - no answer of a webhook may stop the node
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
    """Sends the head as JSON by POST, without following redirects. Raises OSError, HTTPException."""
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
    """Returns scheme and host of the address. Path and query are left out, because they may contain a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
