"""Requests that end when the connection of whoever asked does: an answer that nobody reads is not worked on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from horae.web.routing import Endpoint

Answer = TypeVar("Answer")


def given_up(endpoint: Endpoint) -> Endpoint:
    """`endpoint`, cancelled when the connection ends before it has answered."""

    async def watched(request: Request, named: dict[str, str]) -> Response:
        body = _Body(request.receive, is_awaited=request.method not in ("GET", "HEAD"))
        answer = endpoint(Request(request.scope, body.receive), named)
        return await _unless(body.departure(), answer)

    return watched


async def while_connected(request: Request, work: Awaitable[Answer]) -> Answer:
    """What `work` comes to, on behalf of a request whose body has been read; cancelled when the connection ends."""
    return await _unless(_departure(request.receive), work)


async def _unless(departure: Awaitable[None], work: Awaitable[Answer]) -> Answer:
    answer, gone = asyncio.ensure_future(work), asyncio.ensure_future(departure)
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Body:
    """A request's body, which one reads, and the connection's end behind it, for which another waits."""

    def __init__(self, receive: Receive, *, is_awaited: bool) -> None:
        self._receive = receive
        self._is_read = asyncio.Event()
        if not is_awaited:
            self._is_read.set()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._is_read.set()
        return message

    async def departure(self) -> None:
        """Waits until the connection has ended; no message of the body is taken from who reads that."""
        await self._is_read.wait()
        await _departure(self._receive)
