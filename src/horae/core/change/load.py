"""How many runs are under way at once: from starts, durations and overlap policies to peaks and overlaps.

Seconds count from the beginning of the span. A start beyond its end is not counted. A run that starts within the span
and lasts beyond it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from horae.core.job.policies import Overlap, Queue

_MINUTE = 60
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PeakLoad:
    """Peak concurrency and overlaps, ignoring limits. `peak` runs are under way at once, first at `peak_at`. `busiest`
    runs start within the minute that begins at `busiest_at`. Of all `starts`, `overlaps` come due while the previous
    run of the same job is under way. `peaks` has one peak for each of equal steps."""

    peak: int
    peak_at: datetime | None
    busiest: int
    busiest_at: datetime | None
    starts: int
    overlaps: int
    peaks: tuple[int, ...] = ()


class LoadCounter:
    """Adds up runs, job by job."""

    __slots__ = ("_changes", "_minutes", "overlaps", "span", "starts")

    def __init__(self, span: int) -> None:
        self.span = span
        self.starts = 0
        self.overlaps = 0
        self._changes = [0] * (span + 1)
        self._minutes = [0] * (span // _MINUTE + 1)

    def add(self, starts: Sequence[int], seconds: int, overlap: Overlap = "skip", count: int = 1) -> None:
        """Adds `count` jobs that come due at these seconds, in ascending order, and whose runs take `seconds` each."""
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
        for begin, end, is_met in run_intervals(due, lasting, overlap):
            self.overlaps += count * is_met
            if end > begin and begin <= span:
                changes[begin] += count
                if end <= span:
                    changes[end] -= count

    def with_more(self, other: LoadCounter) -> LoadCounter:
        """The sum of both, which have the same span."""
        found = LoadCounter(0)
        found.span = self.span
        found.starts = self.starts + other.starts
        found.overlaps = self.overlaps + other.overlaps
        found._changes = [one + more for one, more in zip(self._changes, other._changes, strict=True)]
        found._minutes = [one + more for one, more in zip(self._minutes, other._minutes, strict=True)]
        return found

    def load(self, begin: datetime, steps: int = 0) -> PeakLoad:
        """The load of all runs added, when the span begins at `begin`. `steps` is how many peaks of equal steps to
        return."""
        running = list(accumulate(self._changes))
        peak, busiest = max(running), max(self._minutes)
        width = max(1, -(-len(running) // steps)) if steps else 1
        return PeakLoad(
            peak,
            begin + running.index(peak) * _SECOND if peak else None,
            busiest,
            begin + self._minutes.index(busiest) * _MINUTE * _SECOND if busiest else None,
            self.starts,
            self.overlaps,
            tuple(max(running[at : at + width]) for at in range(0, len(running), width)) if steps else (),
        )


def run_intervals(due: Sequence[int], seconds: int, overlap: Overlap) -> Iterator[tuple[int, int, bool]]:
    """One job's runs in the order of `due`: begin, end, and whether the run came due while the previous one was under
    way. A run that the policy skips begins and ends at once. A run that is replaced ends when its replacement comes
    due."""
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
