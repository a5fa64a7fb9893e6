"""Matches rows that do not fit their own digest with places that have no row, to recognise moved rows.

A row's digest covers its place. A row that fits its digest in another place was moved from there; it was not edited,
added or deleted. So these findings are reported only after all rows and gaps are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from horae.core.audit import row_digest, row_line
from horae.security.audit.findings import (
    AuditFinding,
    FindingCollector,
    FindingKind,
    NumberRanges,
    list_text,
    places_text,
)
from horae.store.protocols.people import TrailRow

_MOST_COMPARED = 128
"""Rows, and places, that are compared with each other. Beyond this number they are reported without a comparison."""


def own_digest(row: TrailRow) -> str:
    """The digest computed from the row's content, which equals `row.seal` unless the row was edited."""
    return row_digest(row_line(row[:-1]))


def gaps(first: int, last: int, rows: Sequence[TrailRow]) -> Iterator[tuple[int, int]]:
    """The ranges of places from `first` to `last` that no row has."""
    expected = first
    for place in [*sorted({row.position or 0 for row in rows}), last + 1]:
        if place > expected:
            yield expected, place - 1
        expected = max(expected, place + 1)


class DisplacementMatcher:
    """Collects rows with a wrong digest and vacant places, and reports moved, changed and deleted rows."""

    def __init__(self, findings: FindingCollector) -> None:
        self._findings = findings
        self._rows: dict[TrailRow, AuditFinding] = {}
        self._vacant: list[tuple[int, int, int | None]] = []
        self._places: list[int] = []

    def edited(self, row: TrailRow, otherwise: AuditFinding) -> None:
        """Adds a row that does not fit its own digest. `otherwise` is the finding where no other place explains it."""
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

    def stray(self, row: TrailRow) -> bool:
        """Whether a row was moved here from a place that is known to be vacant."""
        return (
            row.seal is not None
            and len(self._rows) < _MOST_COMPARED
            and own_digest(row) != row.seal
            and any(_fits_at(row, row.number, place) for place in self._places)
        )

    def tell(self) -> None:
        """Adds the findings. Rows that took each other's places give one finding together."""
        came = {row: place for row in self._rows if (place := self._origin(row)) is not None}
        self._findings.extend(finding for row, finding in self._rows.items() if row not in came)
        taken = NumberRanges()
        for place in came.values():
            taken.add(place, place)
        for first, last, seal in self._vacant:
            stretch = NumberRanges()
            stretch.add(first, last)
            for left, right in stretch.without(taken):
                self._gone(left, right, seal)
        for row in came:
            # Another row was at its present place, and that row was found nowhere.
            place = row.position
            if place is not None and self._rows[row].kind is FindingKind.ROWS_CHANGED and place not in taken:
                self._gone(place, place, self._rows[row].seal)
        self._tell_moved(came)

    def _origin(self, row: TrailRow) -> int | None:
        if row.seal is None:
            return None
        # An editor changed either the place, or everything but the number and the place.
        tried = [(row.number, place) for place in self._places]
        for other in self._rows:
            if other.position is not None and other.position != row.position:
                tried += ((row.number, other.position), (other.number, other.position))
        return next((place for number, place in tried if _fits_at(row, number, place)), None)

    def _tell_moved(self, came: dict[TrailRow, int]) -> None:
        at = {row.position: row for row in came if self._rows[row].kind is FindingKind.ROWS_CHANGED}
        told: set[TrailRow] = set()
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
                self._findings.add(
                    AuditFinding(FindingKind.ROWS_MOVED, message, origin, origin, row.number, self._rows[row].seal)
                )

    def _gone(self, first: int, last: int, seal: int | None) -> None:
        told = f"{places_text(first, last)} {'is' if first == last else 'are'} gone"
        self._findings.add(AuditFinding(FindingKind.ROWS_GONE, told, first, last, seal=seal))


def moved(places: Sequence[int], seal: int | None) -> AuditFinding:
    """The finding about rows that took each other's places."""
    how = "changed places" if len(places) == 2 else "are in another order than they were sealed in"
    return AuditFinding(
        FindingKind.ROWS_MOVED, f"rows {list_text(places)} {how}", first=places[0], last=places[-1], seal=seal
    )


def _fits_at(row: TrailRow, number: int, place: int) -> bool:
    return own_digest(row._replace(number=number, position=place)) == row.seal
