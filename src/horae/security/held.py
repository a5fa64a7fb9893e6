"""Whether users, roles and grants changed only by what the audit trail tells.

A RIGHTS_DIGESTED row has a digest over all of them, says which rows that tell of changes were there when it was taken,
and is sealed like every row. Where two such rows that follow each other differ, the second has to know of such a row
that the first did not; else somebody wrote to the tables by hand. The same holds between the last of them and what the
tables say now.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from horae.core.trail import TELLING, RightsNote
from horae.security.findings import Finding, Findings, Kind, told_row
from horae.store.vault import RIGHTS_DIGESTED, AuditRow

_MOST_BEFORE = 10_000
"""Rows before the first digest that are held: it knows of all but the newest thousand, whatever it says."""


class Held:
    """Looks at rows in their sealed order. `until` is the number of a row that was there before the rights of `finish`
    were read: later digests may know of more than those do."""

    def __init__(self, findings: Findings, until: int) -> None:
        self._findings = findings
        self._until = until
        self._last: AuditRow | None = None
        self._unseen: set[int] = set()
        """Numbers of rows that tell of a change which no digest so far knows of."""
        self._before: AuditRow | None = None
        """The last digest up to `until`."""
        self._told_since = False
        """Whether a row tells of a change that it did not know of."""

    def look(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            if row.event in TELLING and row.outcome == "OK":
                self._unseen.add(row.number)
                self._told_since = True
                if self._last is None and len(self._unseen) > _MOST_BEFORE:
                    self._unseen = set(heapq.nlargest(_MOST_BEFORE // 2, self._unseen))
            elif row.event == RIGHTS_DIGESTED:
                self._digested(row)

    def finish(self, rights: str) -> None:
        """`rights` is the digest over what the tables say."""
        if self._before is not None and _digest(self._last) != rights:
            self._judge(self._before, rights, "by now", None, is_told=self._told_since)

    def _digested(self, row: AuditRow) -> None:
        note = RightsNote.read(row.details)
        seen = set() if note is None else {number for number in self._unseen if note.knows(number)}
        if self._last is not None:
            self._judge(self._last, _digest(row), f"before {told_row(row)}", row, is_told=bool(seen))
        self._unseen -= seen
        self._last = row
        if row.number <= self._until:
            self._before, self._told_since = row, bool(self._unseen)

    def _judge(self, last: AuditRow, rights: str | None, until: str, row: AuditRow | None, *, is_told: bool) -> None:
        if _digest(last) == rights or is_told:
            return
        message = f"users, roles or grants were changed after {told_row(last)} and {until}, and no row tells of it"
        place = last.position if row is None else row.position
        self._findings.add(Finding(Kind.RIGHTS_CHANGED, message, place, place, None if row is None else row.number))


def _digest(row: AuditRow | None) -> str | None:
    note = None if row is None else RightsNote.read(row.details)
    return None if note is None else note.rights
