"""Coverage under `recovery="compressed"`: how far COMPLETED runs cover the slots of a job.

A span covers the slots in (from, to]. A run carries the span in its row, or its own slot alone. Coverage advances only
where a span begins at or before its end, so a slot stays uncovered until a run that carries it completes. While slots
are uncovered, ordinary runs carry them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from horae.core.schedule.schedules import Schedule


class SlotSpan(NamedTuple):
    """The slots with `after < slot <= until`; `after` None: every slot up to `until`."""

    after: datetime | None
    until: datetime


def carried_span(
    schedule: Schedule | None, slot: datetime, covers_from: datetime | None, covers_to: datetime | None
) -> SlotSpan:
    """The span that the run of a slot carries. Raises whatever the schedule raises."""
    if covers_from is not None and covers_to is not None:
        return SlotSpan(covers_from, covers_to)
    return SlotSpan(None if schedule is None else schedule.previous(slot), slot)


def covered_by(covered_until: datetime | None, spans: Iterable[SlotSpan]) -> datetime | None:
    """How far coverage goes once the runs that carry these spans have completed."""
    for span in sorted(spans, key=lambda each: (each.after is not None, each.after, each.until)):
        if covered_until is None or span.after is None or span.after <= covered_until:
            covered_until = span.until if covered_until is None else max(covered_until, span.until)
    return covered_until


def open_span(
    schedule: Schedule, covered_until: datetime, slot: datetime, carried: Iterable[datetime]
) -> SlotSpan | None:
    """The span that the ordinary run of `slot` has to carry, its own slot included; None: no earlier slot is uncovered.

    `carried` are the slots of the job's other runs that have not ended. Each of them carries every slot that was
    uncovered when it was created, so those slots are left to it. If such a run fails, the next run finds its span
    uncovered.
    """
    reached = max((at for at in carried if at < slot and schedule.matches(at)), default=covered_until)
    begin = max(covered_until, reached)
    owed = schedule.next(begin)
    return None if owed is None or owed >= slot else SlotSpan(begin, slot)
