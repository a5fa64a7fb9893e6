"""Whether rows of the audit trail were cut off: what has rows in it knows of more than the trail does.

Whoever cuts the end off, or empties the trail, leaves a catalog whose nodes go on: they write rows after the cut, which
are newer than everything, and seals that follow the last one left. So it is not enough to look at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from horae.core.instant import rfc3339
from horae.security.displaced import own_digest
from horae.security.findings import Finding, Kind, Spans, told_list, told_row, told_time
from horae.store.vault import AuditRow, TrailEnds

KEY_MADE = "AUDIT_KEY_MADE"
_MOST_TOLD = 100


class Cut:
    """Looks at rows in their sealed order. `key_made` is when the catalog's audit key was made."""

    def __init__(self, ends: TrailEnds, key_made: datetime | None) -> None:
        self._ends = ends
        self._key_made = key_made
        self._last: AuditRow | None = None
        self._jumps: list[tuple[AuditRow | None, AuditRow]] = []
        self.is_key_told = False
        """Whether a row was seen that tells of an audit key: every seal over it, and after it, has a code."""

    def look(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            self.is_key_told |= row.event == KEY_MADE
            if row.position is not None and self._ends.is_gapless and own_digest(row) == row.seal:
                number, place = (0, 0) if self._last is None else (self._last.number, self._last.position or 0)
                # Where a place is missing too, that is told already.
                if row.position == place + 1 and row.number > number + 1 and len(self._jumps) < _MOST_TOLD:
                    self._jumps.append((self._last, row))
                self._last = row

    def finish(self, untold: Spans) -> Iterator[Finding]:
        """`untold` are runs that completed and that no row names. A row is written in the transaction that it
        describes, with its time: so nothing is newer than the newest row."""
        ends = self._ends
        for before, row in self._jumps:
            first = 1 if before is None else before.number + 1
            message = f"{told_row(row)} has number {row.number}, and no row has one from {first} on before it"
            cut = Finding(Kind.TRAIL_CUT, f"{message}: rows were taken away", row.position, row.position, row.number)
            yield cut
        if ends.counter > ends.number:
            last = f"the newest has number {ends.number}" if ends.number else "none is left"
            message = f"rows were given numbers up to {ends.counter}, and {last}: the end of the trail was cut off"
            yield Finding(Kind.TRAIL_CUT, message)
        for what, at in (("a run completed", ends.completed_at), ("a version of a job was written", ends.defined_at)):
            if at > ends.at:
                newest = f"the newest row is of {told_time(ends.at)}" if ends.at else "the trail has no row"
                yield Finding(Kind.TRAIL_CUT, f"{what} at {told_time(at)}, and {newest}: rows were taken away")
        if untold:
            count = sum(last - first + 1 for first, last in untold)
            some = [number for first, last in untold for number in range(first, min(last, first + 9) + 1)]
            more = f" and {count - 8} more" if count > 8 else ""
            runs = f"run {some[0]}" if count == 1 else f"runs {told_list(some[:8])}{more}"
            message = f"{runs} completed, and no row tells of it: rows were taken away"
            yield Finding(Kind.RUNS_UNTOLD, message, run=some[0])
        if self._key_made is not None and not self.is_key_told:
            made = f"the audit key was made at {rfc3339(self._key_made)}"
            yield Finding(Kind.TRAIL_CUT, f"{made}, and no row tells of it: rows were taken away")
