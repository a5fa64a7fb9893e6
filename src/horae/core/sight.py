"""Who may read which table of the catalog: the one table of rights behind SELECT, HTTP, the command line and pages.

A table that is not named here is nobody's to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from horae.core.access import Principal


class Sight(Enum):
    """Each reads what those before it may not."""

    NOBODY = "nobody"
    """No SELECT shows it, whoever says it."""
    ADMINISTRATORS = "administrators"
    VIEWERS = "viewers"
    """Whoever holds VIEW JOB HISTORY on all jobs."""


SIGHTS = {
    **dict.fromkeys(("tokens", "sessions", "kept_answers", "job_secrets", "secrets", "audit_keys"), Sight.NOBODY),
    **dict.fromkeys(("password_tries", "rights_marks", "locks"), Sight.NOBODY),
    **dict.fromkeys(("users", "roles", "role_members", "grants", "settings", "shares", "closed"), Sight.ADMINISTRATORS),
    **dict.fromkeys(("audit", "audit_seals", "audit_heads"), Sight.ADMINISTRATORS),
    **dict.fromkeys(("jobs", "job_tasks", "job_versions", "job_tombstones", "job_dependencies"), Sight.VIEWERS),
    **dict.fromkeys(("job_runs", "task_runs", "task_attempts", "attempt_output", "run_windows"), Sight.VIEWERS),
    **dict.fromkeys(("run_threads", "pause_rows", "hooks", "outbox", "pools", "nodes", "procedures"), Sight.VIEWERS),
    **dict.fromkeys(("schedule_requests", "schema_migrations", "counters"), Sight.VIEWERS),
    **dict.fromkeys(("cb_schedules", "performance"), Sight.VIEWERS),
}
"""Of the catalog's tables and views. `counters` are SQLite's alone."""
HIDDEN_COLUMNS = {"users": frozenset({"password_hash"})}
"""Columns that nobody reads, of tables that some may."""


def sight_of(table: str) -> Sight:
    return SIGHTS.get(table, Sight.NOBODY)


def reads_all(who: Principal) -> bool:
    """Whether `who` reads what administrators read."""
    return who.is_admin and who.is_enabled


def withheld(tables: Iterable[str], *, viewer: bool) -> frozenset[str]:
    """Those of the catalog's tables that a SELECT does not show: to administrators, or to a `viewer`."""
    shown = {Sight.VIEWERS} if viewer else {Sight.VIEWERS, Sight.ADMINISTRATORS}
    return frozenset(table for table in tables if sight_of(table) not in shown)


HIDDEN = withheld(SIGHTS, viewer=False)
"""What no SELECT shows to anybody."""
FROM_VIEWERS = withheld(SIGHTS, viewer=True) - HIDDEN
"""What a SELECT shows to administrators alone."""
