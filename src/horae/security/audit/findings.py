"""The findings of an audit trail verification, with messages that say what is wrong and where."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from horae.core.time.instant import EPOCH, rfc3339
from horae.store.protocols.people import TrailRow

MOST_KEPT = 1000
"""Findings that are kept; the rest are only counted."""


class FindingKind(StrEnum):
    ROWS_CHANGED = "ROWS_CHANGED"
    ROWS_GONE = "ROWS_GONE"
    ROWS_ADDED = "ROWS_ADDED"
    ROWS_MOVED = "ROWS_MOVED"
    ROWS_WITHOUT_SEAL = "ROWS_WITHOUT_SEAL"
    SEALS_CHANGED = "SEALS_CHANGED"
    SEALS_GONE = "SEALS_GONE"
    SEALS_MOVED = "SEALS_MOVED"
    CHAIN_BROKEN = "CHAIN_BROKEN"
    RUNS_CHANGED = "RUNS_CHANGED"
    RUNS_GONE = "RUNS_GONE"
    RUNS_UNTOLD = "RUNS_UNTOLD"
    HEAD_GONE = "HEAD_GONE"
    SEALS_FORGED = "SEALS_FORGED"
    TRAIL_CUT = "TRAIL_CUT"
    RIGHTS_CHANGED = "RIGHTS_CHANGED"
    DEFINITIONS_CHANGED = "DEFINITIONS_CHANGED"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One difference. `first` and `last` are places in the sealed order, `number` is the row's own number."""

    kind: FindingKind
    message: str
    first: int | None = None
    last: int | None = None
    number: int | None = None
    seal: int | None = None
    run: int | None = None


class FindingCollector:
    """Collects findings: counts all, and keeps the first MOST_KEPT."""

    def __init__(self) -> None:
        self.kept: list[AuditFinding] = []
        self.count = 0
        self.kinds: set[FindingKind] = set()

    def add(self, found: AuditFinding) -> None:
        self.count += 1
        self.kinds.add(found.kind)
        if len(self.kept) < MOST_KEPT:
            self.kept.append(found)

    def extend(self, found: Iterable[AuditFinding]) -> None:
        for each in found:
            self.add(each)


class NumberRanges:
    """A set of whole numbers, kept as ranges: millions of neighbours take a few bytes."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        # Merge every range that overlaps or touches this one.
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number <= self._lasts[place]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def without(self, other: NumberRanges) -> NumberRanges:
        """The numbers that are in this set and not in `other`."""
        left = NumberRanges()
        taken = list(other)
        place = 0
        for first, last in self:
            start = first
            while place < len(taken) and taken[place][1] < start:
                place += 1
            at = place
            while at < len(taken) and taken[at][0] <= last:
                if taken[at][0] > start:
                    left.add(start, taken[at][0] - 1)
                start = max(start, taken[at][1] + 1)
                at += 1
            if start <= last:
                left.add(start, last)
        return left

    def __bool__(self) -> bool:
        return bool(self._firsts)


def row_text(row: TrailRow) -> str:
    """Names a row in a message."""
    place = f"row {row.position}" if row.position is not None else f"row number {row.number}, not sealed yet"
    return f"{place} ({row.event} at {time_text(row.at)})"


def time_text(at: int) -> str:
    try:
        return rfc3339(EPOCH + timedelta(milliseconds=at))
    except (OverflowError, TypeError, ValueError):
        return f"{at} ms"


def places_text(first: int, last: int, what: str = "row") -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def list_text(numbers: Sequence[int]) -> str:
    """Lists numbers in a message: up to eight, then how many more there are."""
    shown = [str(each) for each in numbers[:8]]
    if len(numbers) > len(shown):
        return f"{', '.join(shown)} and {len(numbers) - len(shown)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
