"""Coverage, for `recovery="compressed"`: how far the slots of a job are covered by COMPLETED runs that carry them.

A span reads (from, to]. A run carries the span that its row names, or its own slot alone. Coverage goes on only where a
span begins at or before its end, so a slot stays owed until a run that carries it completes. While a span is open,
ordinary runs carry it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from horae.core.schedule import Schedule


class Span(NamedTuple):
    """The slots with `after < slot <= until`; `after` None: all up to `until`."""

    after: datetime | None
    until: datetime


def carried_span(
    schedule: Schedule | None, slot: datetime, covers_from: datetime | None, covers_to: datetime | None
) -> Span:
    """What the run of a slot carries. Raises what the schedule raises when it is asked."""
    if covers_from is not None and covers_to is not None:
        return Span(covers_from, covers_to)
    return Span(None if schedule is None else schedule.previous(slot), slot)


def covered_by(covered_until: datetime | None, spans: Iterable[Span]) -> datetime | None:
    """How far coverage goes once runs that carry these spans have completed."""
    for span in sorted(spans, key=lambda each: (each.after is not None, each.after, each.until)):
        if covered_until is None or span.after is None or span.after <= covered_until:
            covered_until = span.until if covered_until is None else max(covered_until, span.until)
    return covered_until


def open_span(schedule: Schedule, covered_until: datetime, slot: datetime, carried: Iterable[datetime]) -> Span | None:
    """The span that the ordinary run of `slot` has to carry besides its own slot; None: nothing is open before it.

    `carried` are the slots of the job's other runs that have not ended: they carry all that was open when they were
    created, and are left to it. If one of them fails, the next run after it finds its span open.
    """
    reached = max((at for at in carried if at < slot and schedule.matches(at)), default=covered_until)
    begin = max(covered_until, reached)
    owed = schedule.next(begin)
    return None if owed is None or owed >= slot else Span(begin, slot)
