"""Verifies that users, roles and grants changed only as the audit trail records.

A RIGHTS_DIGESTED row has a digest over all of them, lists the rows about changes of rights that existed when it was
taken, and is sealed like every row. Where two consecutive digests differ, the second must list a row about a change
that the first did not; otherwise the tables were written by hand. The same holds between the last digest and the
present tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from horae.core.audit import RIGHTS_EVENTS, RightsNote
from horae.security.audit.findings import AuditFinding, FindingCollector, FindingKind, row_text
from horae.store.protocols.people import RIGHTS_DIGESTED, TrailRow

_MOST_BEFORE = 10_000
"""Row numbers before the first digest that are kept. The first digest covers all but the newest thousand anyway."""


class RightsVerifier:
    """Looks at rows in their sealed order. `until` is the newest row number from before the rights given to `finish`
    were read; later digests may cover newer changes than those rights."""

    def __init__(self, findings: FindingCollector, until: int) -> None:
        self._findings = findings
        self._until = until
        self._last: TrailRow | None = None
        self._unseen: set[int] = set()
        """Numbers of rows about a change that no digest so far covers."""
        self._before: TrailRow | None = None
        """The last digest up to `until`."""
        self._told_since = False
        """Whether there is a row about a change that `_before` does not cover."""

    def look(self, rows: Sequence[TrailRow]) -> None:
        for row in rows:
            if row.event in RIGHTS_EVENTS and row.outcome == "OK":
                self._unseen.add(row.number)
                self._told_since = True
                if self._last is None and len(self._unseen) > _MOST_BEFORE:
                    self._unseen = set(heapq.nlargest(_MOST_BEFORE // 2, self._unseen))
            elif row.event == RIGHTS_DIGESTED:
                self._digested(row)

    def finish(self, rights: str) -> None:
        """Compares the last digest with `rights`, the digest over the present tables."""
        if self._before is not None and _digest(self._last) != rights:
            self._judge(self._before, rights, "by now", None, is_told=self._told_since)

    def _digested(self, row: TrailRow) -> None:
        note = RightsNote.read(row.details)
        seen = set() if note is None else {number for number in self._unseen if note.knows(number)}
        if self._last is not None:
            self._judge(self._last, _digest(row), f"before {row_text(row)}", row, is_told=bool(seen))
        self._unseen -= seen
        self._last = row
        if row.number <= self._until:
            self._before, self._told_since = row, bool(self._unseen)

    def _judge(self, last: TrailRow, rights: str | None, until: str, row: TrailRow | None, *, is_told: bool) -> None:
        if _digest(last) == rights or is_told:
            return
        message = f"users, roles or grants were changed after {row_text(last)} and {until}, and no row tells of it"
        place = last.position if row is None else row.position
        self._findings.add(
            AuditFinding(FindingKind.RIGHTS_CHANGED, message, place, place, None if row is None else row.number)
        )


def _digest(row: TrailRow | None) -> str | None:
    note = None if row is None else RightsNote.read(row.details)
    return None if note is None else note.rights
