"""The HTTP protocol with time limits for clients, and with the limits on connections.

uvicorn waits without limit for the head of a request and for the client to read an answer, and accepts every
connection. The time limit of a request's body is in `horae.web.http.middleware`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from horae.errors import HoraeError, InvalidInput, RateLimited
from horae.web.connections.limits import PLACE, ConnectionLimiter, ConnectionPlace
from horae.web.http.origin import UNIX
from horae.web.http.problems import MEDIA_TYPE, ProblemError, problem

HEAD_SECONDS = 10.0
"""Seconds from a connection's start, or a request's first byte, to the end of the request's head."""
UNREAD_SECONDS = 30.0
"""Seconds that an answer may stay unread before its connection is cut."""


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with these limits."""

    head_seconds = HEAD_SECONDS
    unread_seconds = UNREAD_SECONDS
    crowd: ConnectionLimiter
    """The connections of the server."""
    place: ConnectionPlace | None = None
    """The connection's place. The TLS layer may have taken it already."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._counted: ConnectionPlace | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # the same as in uvicorn
        super().connection_made(transport)
        address = self.client[0] if self.client else UNIX
        if self.place is None:
            self.place = self._counted = self.crowd.enter(address, transport.abort)
        if self.place is None:
            self._refuse(429, RateLimited(f"There is no room for another connection from {address}"))
            return
        self.app_state = {**self.app_state, PLACE: self.place}
        if self.place.only_health is not None:
            self.head_seconds = min(self.head_seconds, self.crowd.seconds)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_question()
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_question()
        if not self.transport.is_closing() and self.conn.trailing_data[0]:
            # The beginning of the next request arrived before this answer was complete.
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(head=True, unread=True)
        if self._counted is not None:
            self.crowd.leave(self._counted)
            self._counted = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.unread_seconds, self._cut)

    def resume_writing(self) -> None:
        self._stop(unread=True)
        super().resume_writing()

    def _note_question(self) -> None:
        if self.place is not None:
            self.place.is_asking = self.conn.their_state is not h11.IDLE and not self.transport.is_closing()

    def _watch_head(self) -> None:
        is_waiting = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if not is_waiting:
            self._stop(head=True)
        elif self._head is None:
            self._head = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self, *, head: bool = False, unread: bool = False) -> None:
        if head and self._head is not None:
            self._head.cancel()
            self._head = None
        if unread and self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._head = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        self.logger.info("A request did not arrive in time.")
        self._refuse(408, InvalidInput("The request did not arrive in time"))

    def send_400_response(self, msg: str) -> None:
        """Answers data that is not HTTP, or too large a head, with a problem document. uvicorn calls it."""
        self._refuse(400, InvalidInput("This is no HTTP request, or its head is too large"))

    def _refuse(self, status: int, error: HoraeError) -> None:
        refused = ProblemError(error, status)
        body = msgspec.json.encode(problem(refused, instance="", request_id=""))
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close"), (b"cache-control", b"no-store")]
        parts = (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        # If the connection's state allows no answer, it is only closed.
        with suppress(h11.LocalProtocolError):
            for part in parts:
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def _cut(self) -> None:
        self._unread = None
        self.logger.info("An answer was not read in time.")
        self.transport.abort()
