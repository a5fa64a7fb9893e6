"""Detection of a server that is gone: TCP keepalive probes, and limits on the wait for an answer.

A machine that vanishes closes no connection. By default the operating system notices that after two hours, or never,
where a device between the two machines goes on answering for the dead one.
"""

from __future__ import annotations

import os
from time import monotonic

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ANSWER = 15.0
"""Seconds without a byte from the server, while an answer is awaited, after which the server counts as gone."""
LONGEST_ANSWER = 60.0
"""The most seconds to which a slow server's answer limit grows; also the answer limit of pages and migrations."""
SLOW_FOR = 600.0
"""Seconds for which a server gets more time after it did not answer once."""
CANCELLED = 2.0
"""Seconds that a cancelled statement may take to end."""
PROBE = 3.0
"""Seconds that the listening connection may take to answer a probe."""
KEPT_ALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "connect_timeout": 10,
}
"""Parameters for libpq, where the URL does not set them: an idle connection is probed after 5 s and given up 6 s later;
a connection whose data is not acknowledged within 10 s is given up too."""


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time. The connection was closed, and the outcome of the statement is unknown."""


def kept_alive(url: str) -> str:
    """The URL with the parameters of KEPT_ALIVE that it does not set itself. Returns an unreadable URL unchanged: the
    attempt to connect will say what is wrong with it."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.Error:
        return url
    told = {name: value for name, value in KEPT_ALIVE.items() if name not in said}
    if os.environ.get("PGCONNECT_TIMEOUT"):
        told.pop("connect_timeout", None)
    return make_conninfo(url, **told)


class ConnectionTrust:
    """The answer limit of one process' connections to a server, and the time since which they are doubted.

    A connection without an answer casts doubt on all connections whose last answer is older: they are replaced, rather
    than waited for one after the other. A slow server gets a longer limit for a while. Otherwise a long statement would
    be given up at the same point at each attempt.
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
