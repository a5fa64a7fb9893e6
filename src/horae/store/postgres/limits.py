"""How long the server lets a transaction of ours stand still, wait for a lock, or work.

A process that is stopped or cut off in the middle of a transaction says nothing more, and its connection stays: what it
has locked would stay locked for as long as it is silent. So the server itself ends such a session.
"""

from __future__ import annotations

from math import isfinite

from horae.store.rows import LARGEST_INTEGER

STILL = 5
"""Seconds that a transaction of the catalog's own may stand still between two statements."""
LONG_STILL = 60
"""The same, where definitions are worked out in the middle of one."""
WAITING = 8
"""Seconds that a statement waits for a lock: longer than one who stands still may hold it."""
WORKING = 60
"""Seconds that a statement may take."""
WHOLE = 60
"""Seconds that a transaction may take. A session that stops in the middle of what it sends does not count as one that
stands still: from PostgreSQL 17 on this limit ends it."""

LIMITS = (
    f"SET idle_in_transaction_session_timeout = '{STILL}s'",
    f"SET lock_timeout = '{WAITING}s'",
    f"SET statement_timeout = '{WORKING}s'",
    # The server, too, is to notice that the other machine is gone: the session ends, with its locks.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    # Probes are not sent while an answer of the server's own is on its way, which the system would repeat for minutes.
    "SET tcp_user_timeout = 10000",
)
"""Of each session, from its start on."""
PATIENT = "SET tcp_keepalives_idle = 900; SET tcp_user_timeout = 0"
"""Of the session that holds liveness locks. A lock that falls free says that its process is gone. Where packets are
swallowed the process lives, and works until its heartbeat is late: its lock must not fall free before that."""
MIGRATING = (
    f"SET LOCAL idle_in_transaction_session_timeout = '{LONG_STILL}s'; SET LOCAL lock_timeout = '10s';"
    " SET LOCAL statement_timeout = '6h'"
)
"""A change of the schema may rewrite large tables."""
THEIRS = "SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT"
"""For statements that are not the catalog's: as the server has it. The task that runs them has limits of its own."""
OURS = f"SET LOCAL lock_timeout = '{WAITING}s'; SET LOCAL statement_timeout = '{WORKING}s'"
"""After them."""
WITHOUT_WHOLE = "SET LOCAL transaction_timeout = 0"
HAS_WHOLE = 170_000
"""The server's version from which on it knows `transaction_timeout`."""


def still(limit: float) -> str:
    """A transaction that a task joins may stand still for as long as it may last: milliseconds, as a setting."""
    return str(min(max(1, round(limit * 1000)), LARGEST_INTEGER) if isfinite(limit) else 0)
