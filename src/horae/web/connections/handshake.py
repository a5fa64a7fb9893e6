"""TLS connections that count against the limits before the handshake, which has the time limit of a request's head.

With the event loop's own TLS, the server learns of a connection only after the handshake, for which the client has a
minute. Until then it would not be counted, so a client that opens connections and sends nothing could use up all file
descriptors.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import Any

from horae.web.connections.limits import ConnectionLimiter, ConnectionPlace
from horae.web.connections.time_limits import LimitedProtocol
from horae.web.http.origin import UNIX


class TlsLayer(sslproto.SSLProtocol):
    """The TLS layer between a connection and its HTTP protocol. It takes the connection's place, which the protocol
    then shares. A connection for which there is no place is aborted: before the handshake no answer can be sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spoken: LimitedProtocol,
        context: ssl.SSLContext,
        crowd: ConnectionLimiter,
        *,
        seconds: float,
    ) -> None:
        super().__init__(loop, spoken, context, None, server_side=True, ssl_handshake_timeout=seconds)  # type: ignore[arg-type]  # the waiter may be None
        self._crowd = crowd
        self._seconds = seconds
        self._spoken = spoken
        self._place: ConnectionPlace | None = None

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else UNIX
        self._place = self._spoken.place = self._crowd.enter(address, transport.abort)
        if self._place is None:
            transport.abort()
            return
        if self._place.only_health is not None:
            self._ssl_handshake_timeout = min(self._seconds, self._crowd.seconds)  # type: ignore[assignment]  # a float
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._place is not None:
            self._crowd.leave(self._place)
            self._place = None
        super().connection_lost(exc)
