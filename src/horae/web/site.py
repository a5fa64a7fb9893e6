"""What the web is given by the program around it, and who is on a visit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from horae.control.service import Kept
from horae.core.access import Principal
from horae.desk.desk import Desk
from horae.events import Stream

if TYPE_CHECKING:
    from horae.control.visiting import Porter


@dataclass(frozen=True, slots=True)
class Limits:
    """`body` in bytes, which may take `patience` seconds to arrive; `rate` requests a second for each visitor, in
    bursts of up to `burst` (an address may have four visitors' worth, a server that is open to its machine twenty);
    `viewers` live at once, of whom one visitor may be `own_viewers` (where it is open, all); `logins` tries a minute
    for each address, which may have `connections_per_address` open; `failures`, tokens and cookies that open nothing,
    from one address at once; `undecided` seconds that a due slot may stay unplanned before the health check is red,
    which answers within `health` seconds, whatever is still waited for: a watchdog has little patience."""

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
    """A server's surroundings. The web runs in the loop that the store lives in."""

    store: Callable[[], Awaitable[Kept]]
    """The open catalog. Raises StoreUnavailable and its like while it cannot be reached."""
    desk: Callable[[Kept, Principal, str], Desk]
    """The desk for a principal, who signed in that way: open, session or token."""
    porter: Porter
    """Who a visitor is, and what they were answered before."""
    events: Stream
    scrape: Callable[[], Awaitable[str]]
    """The metrics page."""
    node: Callable[[], dict[str, Any]]
    """What this process says of its own engine: node, name, running, slots, state (running, stopping, failed; none
    where this process runs no jobs)."""
    is_loopback: bool = True
    """Bound to this machine alone. Elsewhere signing in is never optional."""
    hosts: frozenset[str] = frozenset()
    """Names that the server may be asked under, besides those of loopback and its own address; without ports."""
    is_secure: bool = False
    """Reached by https, here or at a proxy before it: cookies are then sent by https alone."""
    proxies: frozenset[str] = frozenset()
    """Addresses whose X-Forwarded-For is believed."""
    limits: Limits = field(default_factory=Limits)
    metrics_type: str = "text/plain; version=0.0.4; charset=utf-8"
    """The content type of what `scrape` answers."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request's who and how. `csrf` is what a page's own requests must bring along; None: no cookie is involved."""

    who: Principal
    sign_in: str
    desk: Desk
    site: Site
    csrf: str | None = None
