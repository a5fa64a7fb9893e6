"""How a connection notices that its server is gone: the system's own probes, and how long an answer is waited for.

A machine that vanishes closes nothing: no packet says that the connection is over. The system would find that out after
two hours, and where something between the two machines goes on answering for the dead one, never.
"""

from __future__ import annotations

import os
from time import monotonic

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ANSWER = 15.0
"""Seconds without a byte from the server, while it is waited for, after which it is taken to be gone."""
LONGEST_ANSWER = 60.0
SLOW_FOR = 600.0
"""Seconds for which a server that did not answer once is given more time."""
CANCELLED = 2.0
"""Seconds that a statement which was cancelled may take to end."""
PROBE = 3.0
"""Seconds that the listening connection may take to answer that it is there."""
KEPT_ALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "connect_timeout": 10,
}
"""What libpq is told where the URL says nothing: an idle connection is probed after 5 s, and given up 6 s later; what
was sent and not acknowledged within 10 s likewise."""


class Unanswered(psycopg.OperationalError):
    """The server did not answer in time. The connection was closed; what became of the statement is not known."""


def kept_alive(url: str) -> str:
    """The address with KEPT_ALIVE, but for what it says itself. One that cannot be read is left as it is: whoever
    connects is told what is wrong with it."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.Error:
        return url
    told = {name: value for name, value in KEPT_ALIVE.items() if name not in said}
    if os.environ.get("PGCONNECT_TIMEOUT"):
        told.pop("connect_timeout", None)
    return make_conninfo(url, **told)


class Trust:
    """What one process thinks of its connections to a server.

    One that went unanswered casts doubt on all that were last heard before it: they are replaced rather than waited for
    one after the other. A server that is only slow is given more time for a while, else a statement that takes long
    would be given up at the same place each time it is tried.
    """

    def __init__(self) -> None:
        self._limit = ANSWER
        self._slow_until = float("-inf")
        self.doubted_at = float("-inf")

    @property
    def limit(self) -> float:
        return ANSWER if monotonic() >= self._slow_until else self._limit

    def was_unanswered(self) -> None:
        now = monotonic()
        self._limit = min(self.limit * 2, LONGEST_ANSWER)
        self._slow_until = now + SLOW_FOR
        self.doubted_at = now
