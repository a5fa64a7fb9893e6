"""Verifies that no rows of the audit trail were cut off, by what other tables record.

After an attacker cuts the end off or empties the trail, the nodes go on. They write rows that are newer than
everything, and seals that follow the last one left. So checking only the end of the trail is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from horae.core.time.instant import rfc3339
from horae.security.audit.displaced_rows import own_digest
from horae.security.audit.findings import AuditFinding, FindingKind, NumberRanges, list_text, row_text, time_text
from horae.store.protocols.people import TrailEnds, TrailRow

KEY_MADE = "AUDIT_KEY_MADE"
_MOST_TOLD = 100


class TruncationVerifier:
    """Looks at rows in their sealed order. `key_made` is the time when the catalog's audit key was made."""

    def __init__(self, ends: TrailEnds, key_made: datetime | None) -> None:
        self._ends = ends
        self._key_made = key_made
        self._last: TrailRow | None = None
        self._jumps: list[tuple[TrailRow | None, TrailRow]] = []
        self.is_key_told = False
        """Whether an AUDIT_KEY_MADE row was seen. The seal that covers it, and every later seal, must have a code."""

    def look(self, rows: Sequence[TrailRow]) -> None:
        for row in rows:
            self.is_key_told |= row.event == KEY_MADE
            if row.position is not None and self._ends.is_gapless and own_digest(row) == row.seal:
                number, place = (0, 0) if self._last is None else (self._last.number, self._last.position or 0)
                # A missing place is reported elsewhere already.
                if row.position == place + 1 and row.number > number + 1 and len(self._jumps) < _MOST_TOLD:
                    self._jumps.append((self._last, row))
                self._last = row

    def finish(self, untold: NumberRanges) -> Iterator[AuditFinding]:
        """Yields the findings. `untold` are runs that completed and that no row names.

        A row is written in the transaction that it describes, with that transaction's time. So nothing in the catalog
        may be newer than the newest row.
        """
        ends = self._ends
        for before, row in self._jumps:
            first = 1 if before is None else before.number + 1
            message = f"{row_text(row)} has number {row.number}, and no row has one from {first} on before it"
            cut = AuditFinding(
                FindingKind.TRAIL_CUT, f"{message}: rows were taken away", row.position, row.position, row.number
            )
            yield cut
        if ends.counter > ends.number:
            last = f"the newest has number {ends.number}" if ends.number else "none is left"
            message = f"rows were given numbers up to {ends.counter}, and {last}: the end of the trail was cut off"
            yield AuditFinding(FindingKind.TRAIL_CUT, message)
        for what, at in (("a run completed", ends.completed_at), ("a version of a job was written", ends.defined_at)):
            if at > ends.at:
                newest = f"the newest row is of {time_text(ends.at)}" if ends.at else "the trail has no row"
                yield AuditFinding(
                    FindingKind.TRAIL_CUT, f"{what} at {time_text(at)}, and {newest}: rows were taken away"
                )
        if untold:
            count = sum(last - first + 1 for first, last in untold)
            some = [number for first, last in untold for number in range(first, min(last, first + 9) + 1)]
            more = f" and {count - 8} more" if count > 8 else ""
            runs = f"run {some[0]}" if count == 1 else f"runs {list_text(some[:8])}{more}"
            message = f"{runs} completed, and no row tells of it: rows were taken away"
            yield AuditFinding(FindingKind.RUNS_UNTOLD, message, run=some[0])
        if self._key_made is not None and not self.is_key_told:
            made = f"the audit key was made at {rfc3339(self._key_made)}"
            yield AuditFinding(FindingKind.TRAIL_CUT, f"{made}, and no row tells of it: rows were taken away")
