"""Whether users, roles and grants changed only by what the audit trail tells.

A RIGHTS_DIGESTED row has a digest over all of them, and is sealed like every row. Where two such rows that follow each
other differ, some row between them has to tell of a change; else somebody wrote to the tables by hand. The same holds
between the last of them and what the tables say now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from horae.security.findings import Finding, Findings, Kind, told_row
from horae.store.vault import RIGHTS_DIGESTED, AuditRow

TELLING = frozenset(
    {
        "USER_CREATED",
        "USER_MODIFIED",
        "USER_DROPPED",
        "ROLE_CREATED",
        "ROLE_DROPPED",
        "ROLE_GRANTED",
        "ROLE_REVOKED",
        "PRIVILEGE_GRANTED",
        "PRIVILEGE_REVOKED",
        "JOB_DELETED",  # and the grants on it
    }
)
AT_ONCE = 60_000
"""Milliseconds. A change that was under way when the digest was taken may have a row that is sealed before it."""


class Held:
    """Looks at rows in their sealed order."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._last: AuditRow | None = None
        self._told_at: int | None = None
        """When the newest of the rows so far that tell of a change was written."""

    def look(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            if row.event in TELLING and row.outcome == "OK":
                self._told_at = row.at if self._told_at is None else max(self._told_at, row.at)
            elif row.event == RIGHTS_DIGESTED:
                self._judge(_digest(row), f"before {told_row(row)}", row)
                self._last = row

    def finish(self, rights: str) -> None:
        """`rights` is the digest over what the tables say."""
        self._judge(rights, "by now", None)

    def _judge(self, rights: str | None, until: str, row: AuditRow | None) -> None:
        last = self._last
        if last is None or _digest(last) == rights or (self._told_at or 0) >= last.at - AT_ONCE:
            return
        message = f"users, roles or grants were changed after {told_row(last)} and {until}, and no row tells of it"
        place = last.position if row is None else row.position
        self._findings.add(Finding(Kind.RIGHTS_CHANGED, message, place, place, None if row is None else row.number))


def _digest(row: AuditRow) -> str | None:
    try:
        found = json.loads(row.details or "null")
    except ValueError:
        return None
    digest = found.get("rights") if isinstance(found, dict) else None
    return digest if isinstance(digest, str) else None
