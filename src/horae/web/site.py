"""The web's surroundings: what it gets from the program around it, its limits, and one request's visit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from horae.api.api import Api
from horae.core.access import Principal
from horae.events import Stream
from horae.services.service import ServiceCatalog

if TYPE_CHECKING:
    from horae.services.sessions import SessionService


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server.

    `body`: the most bytes of a request's body, which must arrive within `patience` seconds.
    `rate`, `burst`: requests a second of each user, and how many at once. An address may make four times as many, a
    local address or the local user of an open catalog twenty times.
    `viewers`, `own_viewers`: live viewers in total, and of one user. An open catalog has only the total.
    `logins`: tries to sign in a minute, for each address.
    `connections_per_address`: open connections of each address.
    `failures`: invalid tokens and cookies from one address at once.
    `undecided`: seconds that a node has to create the runs of a due slot before the health check is red.
    `health`: seconds within which the health check answers, even if the catalog has not answered.
    """

    body: int = 1 << 20
    patience: float = 15.0
    rate: float = 50.0
    burst: int = 200
    viewers: int = 200
    own_viewers: int = 20
    logins: int = 10
    connections_per_address: int = 100
    failures: int = 20
    undecided: float = 30.0
    health: float = 0.9


@dataclass(frozen=True, slots=True)
class Site:
    """What the web gets from the program around it. The web runs in the event loop of the store."""

    store: Callable[[], Awaitable[ServiceCatalog]]
    """Returns the open catalog. Raises StoreError while it cannot be reached."""
    desk: Callable[[ServiceCatalog, Principal, str], Api]
    """Returns the API for a principal. The last argument is how they signed in: open, session or token."""
    porter: SessionService
    """Checks tokens and sessions, and stores answers by idempotency key."""
    events: Stream
    scrape: Callable[[], Awaitable[str]]
    """Returns the metrics as text."""
    node: Callable[[], dict[str, Any]]
    """Returns facts about this process: state, process id, and, if it runs jobs, node, name, running and slots."""
    is_loopback: bool = True
    """Whether only this machine can reach the server. Otherwise signing in is always required."""
    hosts: frozenset[str] = frozenset()
    """Names that the Host header may have, without ports, besides loopback names and the server's own address."""
    is_secure: bool = False
    """Whether clients use https, to this server or to a proxy before it. Cookies are then sent only over https."""
    proxies: frozenset[str] = frozenset()
    """Addresses of proxies whose X-Forwarded-For header is trusted."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    metrics_type: str = "text/plain; version=0.0.4; charset=utf-8"
    """The content type of the metrics."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One authenticated request. `sign_in` is open, session or token. `csrf` is the token that the page's own requests
    must send; None without a session cookie."""

    who: Principal
    sign_in: str
    desk: Api
    site: Site
    csrf: str | None = None
