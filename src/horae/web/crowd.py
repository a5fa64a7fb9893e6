"""How many connections a server holds: in all, of one address, and some that are kept for its health alone.

Each connection costs a file descriptor, also one that never asks for anything. So one address has a share of them (one
network of IPv6, where 2^64 addresses are no dearer than one), and beyond those for everybody there are a few on which
the health check alone is answered: a server that is full still says how it is, and says so too to an address that has
used up its share. Those few are nobody's to hold: each has a second for its question and ends with the answer, and
where all are taken, the oldest without a question makes room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.errors import HoraeError, RateLimited, ServerUnavailable
from horae.web import origin
from horae.web.door import HEADERS
from horae.web.problems import Refused, problem, problem_response

HEALTH = ("/healthz", "/readyz")
RESERVED = 32
"""Connections beyond the most, for the health check."""
NEAR_TIMES = 5
"""So many addresses' worth may come from this machine, where proxies that nobody named come from too."""
PLACE = "place"
"""Where a request's state has the place of its connection, until the door is reached."""


class Place:
    """What one connection has of a crowd. `cut` ends the connection at once; `only_health` says why nothing but the
    server's health is told on it, and is None where everything is."""

    __slots__ = ("cut", "holder", "is_asking", "only_health")

    def __init__(self, holder: str, cut: Callable[[], None], only_health: Refused | None = None) -> None:
        self.holder = holder
        self.cut = cut
        self.only_health = only_health
        self.is_asking = False
        """From the end of a request's head to that of its answer: as long, it is not cut to make room."""


class Crowd:
    """The connections of one server, all of them in its loop. Those of `proxies` are everybody's, and count in all
    only."""

    seconds = 1.0
    """For the handshake, and again for the head of the request, of a connection that is for the health check alone."""

    def __init__(self, most: int, of_one: int, proxies: frozenset[str] = frozenset()) -> None:
        self._most = most
        self._of_one = of_one
        self._proxies = proxies
        self._here: Counter[str] = Counter()
        self._count = 0
        self._spare: dict[Place, None] = {}
        """In the order in which they came."""

    def enter(self, address: str, cut: Callable[[], None]) -> Place | None:
        """A connection's place, until `leave`; None where there is none, not even one for the health check."""
        holder = address if address in self._proxies else origin.holder(address)
        if self._here[holder] >= self._share(address):
            return self._enter_spare(
                holder, cut, RateLimited(f"There is no room for another connection from {address}")
            )
        if self._count >= self._most:
            error = ServerUnavailable("The server has as many connections as it takes", hint="Ask again in a while.")
            return self._enter_spare(holder, cut, error)
        self._here[holder] += 1
        self._count += 1
        return Place(holder, cut)

    def leave(self, place: Place) -> None:
        if place.only_health is not None:
            # One that made room for another has left before.
            self._spare.pop(place, None)
            return
        self._count -= 1
        self._here[place.holder] -= 1
        if not self._here[place.holder]:
            del self._here[place.holder]

    def _enter_spare(self, holder: str, cut: Callable[[], None], error: HoraeError) -> Place | None:
        if len(self._spare) >= RESERVED and not self._make_room():
            return None
        place = Place(holder, cut, Refused(error))
        self._spare[place] = None
        return place

    def _make_room(self) -> bool:
        """Cuts the oldest that asks for nothing, of the address that has the most such: so a probe that has just come
        is not cut before its question is read, however many others come with it from elsewhere."""
        silent = [each for each in self._spare if not each.is_asking]
        if not silent:
            return False
        counts = Counter(each.holder for each in silent)
        place = max(silent, key=lambda each: counts[each.holder])
        del self._spare[place]
        place.cut()
        return True

    def _share(self, address: str) -> int:
        if address == origin.UNIX or address in self._proxies:
            return self._most
        return self._of_one * (NEAR_TIMES if origin.is_loopback(address) else 1)


class Reserving:
    """Wraps an application: on connections that are kept for it, only its health is told, once each."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place: Place | None = scope.get("state", {}).get(PLACE)
        if place is None or place.only_health is None:
            await self._app(scope, receive, send)
            return

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        if scope["path"] in HEALTH:
            await self._app(scope, receive, send_last)
            return
        told = problem(place.only_health, instance="", request_id="")
        await problem_response(told, {**HEADERS, "retry-after": "1"})(scope, receive, send_last)
