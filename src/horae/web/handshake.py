"""Connections that are encrypted: counted from their beginning, and given as long for the handshake as for a request.

Left to the event loop, a connection is told of only when it has been shaken hands on, for which it has a minute. Until
then nobody would count it, and whoever opens connections and says nothing would take every descriptor there is.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import Any

from horae.web.crowd import Crowd, Place
from horae.web.origin import UNIX
from horae.web.patience import PatientProtocol


class Encrypted(sslproto.SSLProtocol):
    """Between a connection and the protocol that is spoken on it, which does not count it once more. One for which
    there is no room is cut: before the handshake it cannot be told anything."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spoken: PatientProtocol,
        context: ssl.SSLContext,
        crowd: Crowd,
        *,
        seconds: float,
    ) -> None:
        super().__init__(loop, spoken, context, None, server_side=True, ssl_handshake_timeout=seconds)  # type: ignore[arg-type]  # nobody waits for it
        self._crowd = crowd
        self._seconds = seconds
        self._spoken = spoken
        self._place: Place | None = None

    def connection_made(self, transport: Any) -> None:
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else UNIX
        self._place = self._spoken.place = self._crowd.enter(address, transport.abort)
        if self._place is None:
            transport.abort()
            return
        if self._place.only_health is not None:
            self._ssl_handshake_timeout = min(self._seconds, self._crowd.seconds)  # type: ignore[assignment]  # a part of one, too
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._place is not None:
            self._crowd.leave(self._place)
            self._place = None
        super().connection_lost(exc)
