"""Read access to the tables of the catalog, for SELECT, HTTP, the command line and the pages alike.

A table that is not listed here cannot be read by any principal.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from horae.core.access import Principal


class TableAudience(Enum):
    """Who may read a table. Administrators may also read what viewers may."""

    NOBODY = "nobody"
    """No SELECT shows the table, to any principal."""
    ADMINISTRATORS = "administrators"
    VIEWERS = "viewers"
    """Principals who hold VIEW JOB HISTORY on all jobs."""


TABLE_AUDIENCES = {
    **dict.fromkeys(
        ("tokens", "sessions", "kept_answers", "job_secrets", "secrets", "audit_keys"), TableAudience.NOBODY
    ),
    **dict.fromkeys(("password_tries", "rights_marks", "locks"), TableAudience.NOBODY),
    **dict.fromkeys(
        ("users", "roles", "role_members", "grants", "settings", "shares", "closed"), TableAudience.ADMINISTRATORS
    ),
    **dict.fromkeys(("audit", "audit_seals", "audit_heads"), TableAudience.ADMINISTRATORS),
    **dict.fromkeys(("jobs", "job_tasks", "job_versions", "job_tombstones", "job_dependencies"), TableAudience.VIEWERS),
    **dict.fromkeys(("job_runs", "task_runs", "task_attempts", "attempt_output", "run_windows"), TableAudience.VIEWERS),
    **dict.fromkeys(
        ("run_threads", "pause_rows", "hooks", "outbox", "pools", "nodes", "procedures"), TableAudience.VIEWERS
    ),
    **dict.fromkeys(("schedule_requests", "schema_migrations", "counters"), TableAudience.VIEWERS),
    **dict.fromkeys(("cb_schedules", "performance"), TableAudience.VIEWERS),
}
"""By table or view of the catalog. Only SQLite has `counters`."""
HIDDEN_COLUMNS = {"users": frozenset({"password_hash"})}
"""Columns that no principal may read, of tables that some may read."""


def audience_of(table: str) -> TableAudience:
    return TABLE_AUDIENCES.get(table, TableAudience.NOBODY)


def reads_all(who: Principal) -> bool:
    """Whether `who` may read what administrators may read."""
    return who.is_admin and who.is_enabled


def hidden_tables(tables: Iterable[str], *, viewer: bool) -> frozenset[str]:
    """Those of `tables` that a SELECT does not show to administrators, or with `viewer` to viewers."""
    shown = {TableAudience.VIEWERS} if viewer else {TableAudience.VIEWERS, TableAudience.ADMINISTRATORS}
    return frozenset(table for table in tables if audience_of(table) not in shown)


HIDDEN_TABLES = hidden_tables(TABLE_AUDIENCES, viewer=False)
"""The tables that no SELECT shows."""
ADMINISTRATOR_TABLES = hidden_tables(TABLE_AUDIENCES, viewer=True) - HIDDEN_TABLES
"""The tables that a SELECT shows to administrators alone."""
