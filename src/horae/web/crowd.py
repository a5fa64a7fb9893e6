"""How many connections a server holds: in all, of one address, and some that are kept for its health alone.

Each connection costs a file descriptor, also one that never asks for anything. So one address has a share of them (one
network of IPv6, where 2^64 addresses are no dearer than one), and beyond those for everybody there are a few on which
the health check alone is answered: a server that is full still says how it is.
"""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from horae.errors import ServerUnavailable
from horae.web import origin
from horae.web.door import HEADERS
from horae.web.problems import Refused, problem, problem_response

HEALTH = ("/healthz", "/readyz")
RESERVED = 32
"""Connections beyond the most, for the health check."""
NEAR_TIMES = 5
"""So many addresses' worth may come from this machine, where proxies that nobody named come from too."""


class Crowd:
    """The connections of one server, all of them in its loop. Those of `proxies` are everybody's, and count in all
    only."""

    def __init__(self, most: int, of_one: int, proxies: frozenset[str] = frozenset()) -> None:
        self._most = most
        self._of_one = of_one
        self._proxies = proxies
        self._here: Counter[str] = Counter()
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether those who are here are as many as may ask for anything but the server's health."""
        return self._count > self._most

    def enter(self, address: str) -> bool:
        """Counts a connection, which `leave` ends; False where there is no room for it, and nothing is counted."""
        holder = self._holder(address)
        if self._count >= self._most + RESERVED or self._here[holder] >= self._share(address):
            return False
        self._here[holder] += 1
        self._count += 1
        return True

    def leave(self, address: str) -> None:
        holder = self._holder(address)
        self._count -= 1
        self._here[holder] -= 1
        if not self._here[holder]:
            del self._here[holder]

    def _holder(self, address: str) -> str:
        return address if address in self._proxies else origin.holder(address)

    def _share(self, address: str) -> int:
        if address == origin.UNIX or address in self._proxies:
            return self._most + RESERVED
        return self._of_one * (NEAR_TIMES if origin.is_loopback(address) else 1)


class Reserving:
    """Wraps an application: while the server is full, only its health is told."""

    def __init__(self, app: ASGIApp, crowd: Crowd) -> None:
        self._app = app
        self._crowd = crowd

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._crowd.is_full or scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        error = ServerUnavailable("The server has as many connections as it takes", hint="Ask again in a while.")
        told = problem(Refused(error, 503), instance="", request_id="")
        await problem_response(told, {**HEADERS, "retry-after": "1", "connection": "close"})(scope, receive, send)
