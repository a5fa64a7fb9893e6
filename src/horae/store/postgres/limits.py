"""Time limits that the server enforces on Horae's transactions: idle in a transaction, waiting for a lock, working.

A process that is stopped or cut off in the middle of a transaction keeps its connection, and its locks would stay taken
as long. So the server itself ends such a session.
"""

from __future__ import annotations

from math import isfinite

from horae.store.catalog.row_codec import LARGEST_INTEGER

IDLE = 5
"""Seconds that a transaction of the catalog may be idle between two statements."""
MIGRATION_IDLE = 60
"""Seconds that a transaction which changes the schema may be idle between two statements."""
LOCK_WAIT = 8
"""Seconds that a statement waits for a lock: longer than an idle transaction may hold one."""
WORKING = 60
"""Seconds that a statement may take."""
TRANSACTION_TIME = 60
"""Seconds that a transaction may take. A session that stops in the middle of sending a message does not count as idle;
from PostgreSQL 17 on this limit ends it."""

LIMITS = (
    f"SET idle_in_transaction_session_timeout = '{IDLE}s'",
    f"SET lock_timeout = '{LOCK_WAIT}s'",
    f"SET statement_timeout = '{WORKING}s'",
    # The server must notice too that the other machine is gone, to end the session and free its locks.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    # No probes are sent while an answer is unacknowledged, and the system would retransmit it for minutes.
    "SET tcp_user_timeout = 10000",
)
"""The settings of each session, from its start."""
LOCK_HOLDER_LIMITS = "SET tcp_keepalives_idle = 900; SET tcp_user_timeout = 0"
"""The settings of the session that holds liveness locks. A lock that becomes free says that its process is gone. Where
packets are lost, the process lives and works until its heartbeat is late, so its lock must not become free earlier."""
MIGRATING = (
    f"SET LOCAL idle_in_transaction_session_timeout = '{MIGRATION_IDLE}s'; SET LOCAL lock_timeout = '10s';"
    " SET LOCAL statement_timeout = '6h'"
)
"""The settings for a change of the schema, which may rewrite large tables."""
TASK_LIMITS = "SET LOCAL lock_timeout TO DEFAULT; SET LOCAL statement_timeout TO DEFAULT"
"""The settings for a task's statements: the server's defaults. The task that runs them has limits of its own."""
CATALOG_LIMITS = f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'; SET LOCAL statement_timeout = '{WORKING}s'"
"""The settings for the catalog's statements after a task's statements."""
NO_TRANSACTION_TIMEOUT = "SET LOCAL transaction_timeout = 0"
HAS_TRANSACTION_TIMEOUT = 170_000
"""The first server version that has `transaction_timeout`."""


def idle_setting(limit: float) -> str:
    """The idle limit, as a setting in milliseconds, of a transaction that a task joins and that may last `limit`
    seconds: it may be idle as long as it may last. 0 is no limit."""
    return str(min(max(1, round(limit * 1000)), LARGEST_INTEGER) if isfinite(limit) else 0)
