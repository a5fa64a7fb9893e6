"""Cancellation of requests whose client has disconnected, so that no work goes into an answer that is never read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from horae.web.http.routes import Endpoint

Answer = TypeVar("Answer")


def cancel_on_disconnect(endpoint: Endpoint) -> Endpoint:
    """Wraps an endpoint: it is cancelled, and ClientDisconnect raised, if the client disconnects before its answer."""

    async def watched(request: Request, named: dict[str, str]) -> Response:
        body = _RequestMessages(request.receive, is_awaited=request.method not in ("GET", "HEAD"))
        answer = endpoint(Request(request.scope, body.receive), named)
        return await _run_unless(body.departure(), answer)

    return watched


async def while_connected(request: Request, work: Awaitable[Answer]) -> Answer:
    """Returns the result of `work`, which is cancelled if the client disconnects. The request's body must have been
    read. Raises ClientDisconnect."""
    return await _run_unless(_wait_for_disconnect(request.receive), work)


async def _run_unless(departure: Awaitable[None], work: Awaitable[Answer]) -> Answer:
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


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _RequestMessages:
    """A request's messages, shared by two readers: the endpoint reads the body, a watcher waits for the disconnect
    after it."""

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
        """Waits until the client has disconnected. It takes no message of the body from the endpoint."""
        await self._is_read.wait()
        await _wait_for_disconnect(self._receive)
