"""Verification of one seal and the rows it covers: the smallest explanation of every difference.

A seal that does not fit its own digest was edited. Values that it may have had, taken from its neighbours and its rows,
are tried until the digest fits again. A row that does not fit its own digest was edited, whatever its seal says. Where
every row and the seal fit their own digests, but the seal does not fit the rows, rows were edited together with their
digests: then only the seal's whole range can be reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from horae.core.audit import rows_digest, seal_digest
from horae.security.audit.displaced_rows import gaps, moved, own_digest
from horae.security.audit.findings import AuditFinding, FindingKind, places_text, row_text
from horae.store.protocols.people import SealRow, TrailRow

MOST_UNDER_ONE = 100_000
"""Rows that one seal may cover. A seal that claims more was changed."""
_MOST_TRIED = 64


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """The state before a seal: the number and the first place that it must have, and the digest that it must follow."""

    number: int
    first: int
    digest: str


@dataclass(frozen=True, slots=True)
class SealVerdict:
    """The result for one seal: the seal as it was made, as far as that can be restored, and the findings.

    `edited` are rows that do not fit their own digests, each with the finding to report where no better explanation is
    found. `vacant` are ranges of places without a row.
    """

    seal: SealRow
    findings: tuple[AuditFinding, ...] = ()
    edited: tuple[tuple[TrailRow, AuditFinding], ...] = ()
    vacant: tuple[tuple[int, int], ...] = ()


def judge(
    seal: SealRow, before: ChainPosition, following: SealRow | None, head: str | None, rows: Sequence[TrailRow]
) -> SealVerdict:
    """Verifies one seal. `rows` are the rows at the places that it might cover, in order; `following` is the next seal;
    `head` is a digest that the newest seal must have."""
    if _fits(seal):
        return _rows_under(seal, rows, whole=True)
    vouched = following.previous if following is not None else head
    end = rows[-1].position or 0 if rows else 0
    firsts = dict.fromkeys((seal.first, before.first))
    lasts = dict.fromkeys((seal.last, end if following is None else following.first - 1))
    previouses = dict.fromkeys((seal.previous, before.digest))
    for first, last, previous in product(firsts, lasts, previouses):
        for covered in dict.fromkeys((seal.rows, _covered(seal._replace(first=first, last=last), rows))):
            found = seal_digest(previous, first, last, seal.sealed_at, covered)
            if found == seal.digest or (found == vouched and first <= last):
                right = seal._replace(first=first, last=last, previous=previous, digest=found, rows=covered)
                under = _rows_under(right, rows, whole=True)
                return SealVerdict(right, (_difference(seal, right), *under.findings), under.edited, under.vacant)
    return _changed_somehow(seal, before, following, rows)


def _changed_somehow(
    seal: SealRow, before: ChainPosition, following: SealRow | None, rows: Sequence[TrailRow]
) -> SealVerdict:
    """The result for a seal whose digest nothing restores. Its range is taken from its neighbours."""
    last = seal.last if following is None else following.first - 1
    right = seal._replace(first=before.first, last=last)
    if last < before.first or last - before.first >= MOST_UNDER_ONE:
        # Its end is unknown: its rows will be reported as rows without a seal.
        reason = "it ends before it begins" if seal.last < seal.first else "it does not end where it did"
        changed = AuditFinding(FindingKind.SEALS_CHANGED, f"seal {seal.number} was changed: {reason}", seal=seal.number)
        return SealVerdict(seal._replace(first=before.first, last=before.first - 1), (changed,))
    if (right.first, right.last) == (seal.first, seal.last) and _covered(right, rows) == seal.rows:
        reason = "its digest or the time it was made at was another"
    else:
        reason = "more than one thing of it was another"
    message = f"seal {seal.number}, over {places_text(right.first, last)}, was changed: {reason}"
    changed = AuditFinding(FindingKind.SEALS_CHANGED, message, right.first, last, seal=seal.number)
    under = _rows_under(right, rows, whole=False)
    return SealVerdict(right, (changed, *under.findings), under.edited, under.vacant)


def _rows_under(seal: SealRow, rows: Sequence[TrailRow], *, whole: bool) -> SealVerdict:
    """Verifies the rows under a seal that is as it was made. Without `whole`, its digest of the rows is not certain."""
    under = _between(rows, seal.first, seal.last)
    digests = [own_digest(row) for row in under]
    fit = _covered(seal, under) == seal.rows
    if fit and digests == [row.seal for row in under]:
        return SealVerdict(seal)
    strangers = dict(_doubled(seal, under))
    vacant = tuple(gaps(seal.first, seal.last, under))
    if strangers or vacant or fit:
        lost, more = [], ""
    else:
        if places := _other_order(seal, under):
            return SealVerdict(seal, (moved(places, seal.number),))
        lost = _digests_lost(seal, under, digests)
        more = "" if lost else ", and others may have been,"
    edited = [row for row, digest in zip(under, digests, strict=True) if row.seal != digest]
    findings = [_changed(row, "lost its own digest", seal) for row in lost]
    if not (edited or strangers or vacant or fit) and whole:
        findings.append(_changed_with_digests(seal, under))
    told = [
        (row, _changed(row, f"was changed{more}", seal)) for row in edited if row not in lost and row not in strangers
    ]
    return SealVerdict(seal, tuple(findings), (*told, *strangers.items()), vacant)


def _other_order(seal: SealRow, rows: Sequence[TrailRow]) -> list[int]:
    """The places of rows whose order alone was changed; rows are sealed in the order of their numbers."""
    places = [row.position for row in rows]
    by_number = sorted(rows, key=lambda row: row.number)
    restored = [row._replace(position=place) for row, place in zip(by_number, places, strict=True)]
    if rows_digest(map(own_digest, restored)) != seal.rows:
        return []
    return [row.position or 0 for row, right in zip(rows, restored, strict=True) if row != right]


def _digests_lost(seal: SealRow, rows: Sequence[TrailRow], digests: Sequence[str]) -> list[TrailRow]:
    """The rows of which only the digest was edited: with the computed digests the seal fits again."""
    edited = [index for index, row in enumerate(rows) if row.seal != digests[index]]
    for some in (edited, *([index] for index in edited[:_MOST_TRIED])):
        if (
            rows_digest(digests[index] if index in some else row.seal or "" for index, row in enumerate(rows))
            == seal.rows
        ):
            return [rows[index] for index in some]
    return []


def _doubled(seal: SealRow, rows: Sequence[TrailRow]) -> Iterator[tuple[TrailRow, AuditFinding]]:
    """Rows that were put in a place where another row belongs, by that row's own digest or else by the seal's."""
    places: dict[int | None, list[TrailRow]] = {}
    for row in rows:
        places.setdefault(row.position, []).append(row)
    for place, those in places.items():
        if len(those) == 1:
            continue
        right = [row for row in those if own_digest(row) == row.seal]
        if len(right) > 1:
            right = [
                row
                for row in right
                if _covered(seal, [each for each in rows if each.position != place or each is row]) == seal.rows
            ]
        for row in those if right else those[:1]:
            if row not in right:
                which = row_text(row) if right else f"one of {len(those)} rows at place {place}"
                message = f"{which} was put in later"
                yield row, AuditFinding(FindingKind.ROWS_ADDED, message, place, place, row.number, seal.number)


def _fits(seal: SealRow) -> bool:
    return seal_digest(seal.previous, seal.first, seal.last, seal.sealed_at, seal.rows) == seal.digest


def _between(rows: Sequence[TrailRow], first: int, last: int) -> Sequence[TrailRow]:
    return [row for row in rows if row.position is not None and first <= row.position <= last]


def _covered(seal: SealRow, rows: Sequence[TrailRow]) -> str:
    """The digest over the stored digests of the rows that the seal covers."""
    return rows_digest(row.seal or "" for row in _between(rows, seal.first, seal.last))


def _difference(seal: SealRow, right: SealRow) -> AuditFinding:
    was: list[str] = []
    if right.first != seal.first:
        was.append(f"it began at row {right.first}, not {seal.first}")
    if right.last != seal.last:
        was.append(f"it ended at row {right.last}, not {seal.last}")
    if right.previous != seal.previous:
        was.append("the digest before it was another")
    if right.rows != seal.rows:
        was.append("the digest of its rows was another")
    if right.digest != seal.digest:
        was.append("its own digest was another")
    message = f"seal {seal.number} was changed: {', and '.join(was)}"
    return AuditFinding(FindingKind.SEALS_CHANGED, message, first=right.first, last=right.last, seal=seal.number)


def _changed(row: TrailRow, what: str, seal: SealRow) -> AuditFinding:
    message = f"{row_text(row)} {what} after it was sealed by seal {seal.number}"
    return AuditFinding(FindingKind.ROWS_CHANGED, message, row.position, row.position, row.number, seal.number)


def _changed_with_digests(seal: SealRow, rows: Sequence[TrailRow]) -> AuditFinding:
    if len(rows) == 1:
        return _changed(rows[0], "was changed, and its own digest with it,", seal)
    what = f"one or more of {places_text(seal.first, seal.last)} were changed, and their own digests with them,"
    message = f"{what} after they were sealed by seal {seal.number}"
    return AuditFinding(FindingKind.ROWS_CHANGED, message, seal.first, seal.last, seal=seal.number)
