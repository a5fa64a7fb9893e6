"""How much runs at once: starts, lengths and overlap policies -> peaks, the busiest minute, runs that meet.

Seconds count from the beginning of the span. What starts beyond its end is not counted; what starts within and lasts
longer is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from horae.core.policy import Overlap, Queue

_MINUTE = 60
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Load:
    """`peak` runs at once, first at `peak_at`; `busiest` starts within the minute that begins at `busiest_at`; of all
    `starts`, `overlaps` come due while the same job's run before still goes on. `peaks` are those of equal steps."""

    peak: int
    peak_at: datetime | None
    busiest: int
    busiest_at: datetime | None
    starts: int
    overlaps: int
    peaks: tuple[int, ...] = ()


class Gauge:
    """Adds up runs, job by job."""

    __slots__ = ("_changes", "_minutes", "overlaps", "span", "starts")

    def __init__(self, span: int) -> None:
        self.span = span
        self.starts = 0
        self.overlaps = 0
        self._changes = [0] * (span + 1)
        self._minutes = [0] * (span // _MINUTE + 1)

    def add(self, starts: Sequence[int], seconds: int, overlap: Overlap = "skip", count: int = 1) -> None:
        """`count` jobs that come due at these seconds, in order, and whose runs take so long."""
        due = [at for at in starts if 0 <= at <= self.span]
        lasting = max(1, seconds)
        met = sum(later - earlier < lasting for earlier, later in pairwise(due))
        self.starts += len(due) * count
        minutes, changes, span = self._minutes, self._changes, self.span
        for at in due:
            minutes[at // _MINUTE] += count
        if not met:
            for at in due:
                changes[at] += count
                if at + lasting <= span:
                    changes[at + lasting] -= count
            return
        for begin, end, is_met in stretches(due, lasting, overlap):
            self.overlaps += count * is_met
            if end > begin and begin <= span:
                changes[begin] += count
                if end <= span:
                    changes[end] -= count

    def with_more(self, other: Gauge) -> Gauge:
        """Both together; they are of one span."""
        found = Gauge(0)
        found.span = self.span
        found.starts = self.starts + other.starts
        found.overlaps = self.overlaps + other.overlaps
        found._changes = [one + more for one, more in zip(self._changes, other._changes, strict=True)]
        found._minutes = [one + more for one, more in zip(self._minutes, other._minutes, strict=True)]
        return found

    def load(self, begin: datetime, steps: int = 0) -> Load:
        """What it comes to, when the span begins at `begin`; with the peaks of so many equal steps."""
        running = list(accumulate(self._changes))
        peak, busiest = max(running), max(self._minutes)
        width = max(1, -(-len(running) // steps)) if steps else 1
        return Load(
            peak,
            begin + running.index(peak) * _SECOND if peak else None,
            busiest,
            begin + self._minutes.index(busiest) * _MINUTE * _SECOND if busiest else None,
            self.starts,
            self.overlaps,
            tuple(max(running[at : at + width]) for at in range(0, len(running), width)) if steps else (),
        )


def stretches(due: Sequence[int], seconds: int, overlap: Overlap) -> Iterator[tuple[int, int, bool]]:
    """One job's runs as begin and end, in the order of `due`, and whether each came due while the one before still went
    on. A run that the policy lets not happen begins and ends at once; one that is replaced ends there."""
    room = overlap.limit if isinstance(overlap, Queue) else 1
    lines_up = isinstance(overlap, Queue) or overlap in ("queue", "coalesce")
    free = due[0] if due else 0
    for place, at in enumerate(due):
        is_met = at < free
        begin, end = at, at + seconds
        if is_met and lines_up:
            waiting = -(-(free - at) // seconds) - 1
            begin, end = (free, free + seconds) if room is None or waiting < room else (at, at)
        elif is_met and overlap == "skip":
            end = at
        if overlap == "replace":
            is_met = place > 0 and at - due[place - 1] < seconds
            end = min((end, *due[place + 1 : place + 2]))
        free = max(free, end)
        yield begin, end, is_met
