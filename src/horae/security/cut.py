"""Whether the end of the audit trail was cut off: what has rows in it knows of more than the trail does."""

from __future__ import annotations

from collections.abc import Iterator

from horae.security.findings import Finding, Kind, told_time
from horae.store.vault import TrailEnds


def cut_off(ends: TrailEnds) -> Iterator[Finding]:
    """A row is written in the transaction that it describes, with its time: so nothing is newer than the newest row."""
    if ends.counter > ends.number:
        last = f"the newest has number {ends.number}" if ends.number else "none is left"
        message = f"rows were given numbers up to {ends.counter}, and {last}: the end of the trail was cut off"
        yield Finding(Kind.TRAIL_CUT, message)
    for what, at in (("a run completed", ends.completed_at), ("a version of a job was written", ends.defined_at)):
        if at > ends.at:
            newest = f"the newest row is of {told_time(ends.at)}" if ends.at else "the trail has no row"
            yield Finding(Kind.TRAIL_CUT, f"{what} at {told_time(at)}, and {newest}: rows were taken away")
