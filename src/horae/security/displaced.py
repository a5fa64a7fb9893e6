"""Rows that are not what their own digest says, and places that have no row: which of them explain each other.

A row's digest is over its place too. One that gives its digest again in another place came from there, and is no row
that was edited, or put in, or deleted. So nothing of this kind is told before all of it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from horae.core.trail import row_digest, row_line
from horae.security.findings import Finding, Findings, Kind, Spans, told_list, told_places
from horae.store.vault import AuditRow

_MOST_COMPARED = 128
"""Rows and places that are compared with each other; what is beyond is told as it is found."""


def own_digest(row: AuditRow) -> str:
    """The digest that a row has if nobody edited it."""
    return row_digest(row_line(row[:-1]))


def gaps(first: int, last: int, rows: Sequence[AuditRow]) -> Iterator[tuple[int, int]]:
    """The stretches of places between `first` and `last` that no row has."""
    expected = first
    for place in [*sorted({row.position or 0 for row in rows}), last + 1]:
        if place > expected:
            yield expected, place - 1
        expected = max(expected, place + 1)


class Displaced:
    """Gathers both, and tells what became of them."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._rows: dict[AuditRow, Finding] = {}
        self._vacant: list[tuple[int, int, int | None]] = []
        self._places: list[int] = []

    def edited(self, row: AuditRow, otherwise: Finding) -> None:
        """A row that its own digest does not fit. `otherwise` is told where no other place explains it."""
        if len(self._rows) < _MOST_COMPARED:
            self._rows[row] = otherwise
        else:
            self._findings.add(otherwise)

    def vacant(self, stretches: Iterable[tuple[int, int]], seal: int | None = None) -> None:
        for first, last in stretches:
            if len(self._vacant) < _MOST_COMPARED:
                self._vacant.append((first, last, seal))
                self._places += islice(range(first, last + 1), _MOST_COMPARED - len(self._places))
            else:
                self._gone(first, last, seal)

    def stray(self, row: AuditRow) -> bool:
        """Whether a row came from a place that is known to be empty."""
        return (
            row.seal is not None
            and len(self._rows) < _MOST_COMPARED
            and own_digest(row) != row.seal
            and any(_was(row, row.number, place) for place in self._places)
        )

    def tell(self) -> None:
        """Adds the findings. Those about rows that took each other's places are one for all that did."""
        came = {row: place for row in self._rows if (place := self._origin(row)) is not None}
        self._findings.extend(finding for row, finding in self._rows.items() if row not in came)
        taken = Spans()
        for place in came.values():
            taken.add(place, place)
        for first, last, seal in self._vacant:
            stretch = Spans()
            stretch.add(first, last)
            for left, right in stretch.without(taken):
                self._gone(left, right, seal)
        for row in came:
            # Where it lies now there was another, which is nowhere.
            place = row.position
            if place is not None and self._rows[row].kind is Kind.ROWS_CHANGED and place not in taken:
                self._gone(place, place, self._rows[row].seal)
        self._tell_moved(came)

    def _origin(self, row: AuditRow) -> int | None:
        if row.seal is None:
            return None
        # Either the place was changed, or all but the number and the place.
        tried = [(row.number, place) for place in self._places]
        for other in self._rows:
            if other.position is not None and other.position != row.position:
                tried += ((row.number, other.position), (other.number, other.position))
        return next((place for number, place in tried if _was(row, number, place)), None)

    def _tell_moved(self, came: dict[AuditRow, int]) -> None:
        at = {row.position: row for row in came if self._rows[row].kind is Kind.ROWS_CHANGED}
        told: set[AuditRow] = set()
        for row, origin in sorted(came.items(), key=lambda each: each[1]):
            if row in told:
                continue
            round_trip = [row]
            while (following := at.get(came[round_trip[-1]])) is not None and following not in round_trip:
                round_trip.append(following)
            closed = following is row and len(round_trip) > 1
            if closed:
                self._findings.add(moved(sorted(came[each] for each in round_trip), self._rows[row].seal))
                told.update(round_trip)
            else:
                where = "no place" if row.position is None else f"the place {row.position}"
                message = f"row {origin} ({row.event}) has {where} now"
                self._findings.add(Finding(Kind.ROWS_MOVED, message, origin, origin, row.number, self._rows[row].seal))

    def _gone(self, first: int, last: int, seal: int | None) -> None:
        told = f"{told_places(first, last)} {'is' if first == last else 'are'} gone"
        self._findings.add(Finding(Kind.ROWS_GONE, told, first, last, seal=seal))


def moved(places: Sequence[int], seal: int | None) -> Finding:
    """Rows that took each other's places."""
    how = "changed places" if len(places) == 2 else "are in another order than they were sealed in"
    return Finding(Kind.ROWS_MOVED, f"rows {told_list(places)} {how}", first=places[0], last=places[-1], seal=seal)


def _was(row: AuditRow, number: int, place: int) -> bool:
    return own_digest(row._replace(number=number, position=place)) == row.seal
