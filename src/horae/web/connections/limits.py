"""Limits on the number of connections: in total, for each address, and a reserve for health checks.

Each connection costs a file descriptor, even if it never sends a request. So each address has a share of them. For IPv6
a /64 network counts as one address, since a client usually has all of it.

Beyond the total there is a reserve on which only the health check is answered, so that a full server still reports its
health, also to an address that has used up its share. A reserved connection has a second for its request and ends with
the answer. Where the reserve is full, the oldest connection without a request is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.errors import HoraeError, RateLimited, ServerUnavailable
from horae.web.http import origin
from horae.web.http.middleware import HEADERS
from horae.web.http.problems import ProblemError, problem, problem_response

HEALTH = ("/healthz", "/readyz")
RESERVED = 32
"""How many connections beyond the limit are reserved for the health check."""
LOCAL_SHARES = 5
"""The share of this machine's own addresses, in shares of other addresses. Connections of a local proxy that is not
configured as one come from them too."""
PLACE = "place"
"""The key in a request's state for the `ConnectionPlace` of its connection, until the middleware replaces the state."""


class ConnectionPlace:
    """One connection's place within the limits. `cut` ends the connection at once. On a reserved connection
    `only_health` is the refusal of all requests but health checks; elsewhere it is None."""

    __slots__ = ("cut", "holder", "is_asking", "only_health")

    def __init__(self, holder: str, cut: Callable[[], None], only_health: ProblemError | None = None) -> None:
        self.holder = holder
        self.cut = cut
        self.only_health = only_health
        self.is_asking = False
        """True from the end of a request's head to the end of its answer. Meanwhile the connection is not cut to make
        room."""


class ConnectionLimiter:
    """The counts of one server's connections, used in its event loop only. Connections of `proxies` carry many clients,
    so they have no share of their own and count only in the total."""

    seconds = 1.0
    """Seconds that a reserved connection has for the handshake, and again for the head of its request."""

    def __init__(self, most: int, of_one: int, proxies: frozenset[str] = frozenset()) -> None:
        self._most = most
        self._of_one = of_one
        self._proxies = proxies
        self._here: Counter[str] = Counter()
        self._count = 0
        self._spare: dict[ConnectionPlace, None] = {}
        """The reserved connections, the oldest first."""

    def enter(self, address: str, cut: Callable[[], None]) -> ConnectionPlace | None:
        """Returns a place for a connection, to be given back with `leave`; None if not even the reserve has one."""
        holder = address if address in self._proxies else origin.limit_key(address)
        if self._here[holder] >= self._share(address):
            return self._enter_spare(
                holder, cut, RateLimited(f"There is no room for another connection from {address}")
            )
        if self._count >= self._most:
            error = ServerUnavailable("The server has as many connections as it takes", hint="Ask again in a while.")
            return self._enter_spare(holder, cut, error)
        self._here[holder] += 1
        self._count += 1
        return ConnectionPlace(holder, cut)

    def leave(self, place: ConnectionPlace) -> None:
        if place.only_health is not None:
            # A connection that was cut to make room is no longer in the reserve.
            self._spare.pop(place, None)
            return
        self._count -= 1
        self._here[place.holder] -= 1
        if not self._here[place.holder]:
            del self._here[place.holder]

    def _enter_spare(self, holder: str, cut: Callable[[], None], error: HoraeError) -> ConnectionPlace | None:
        if len(self._spare) >= RESERVED and not self._make_room():
            return None
        place = ConnectionPlace(holder, cut, ProblemError(error))
        self._spare[place] = None
        return place

    def _make_room(self) -> bool:
        """Cuts a reserved connection without a request and returns whether there was one. It takes the oldest of the
        address with the most such connections, so that a probe is not cut before its request is read, however many
        connections another address opens."""
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
        return self._of_one * (LOCAL_SHARES if origin.is_loopback(address) else 1)


class ReserveMiddleware:
    """Wraps an application: a reserved connection gets one answer, and only to a health check."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place: ConnectionPlace | None = scope.get("state", {}).get(PLACE)
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
