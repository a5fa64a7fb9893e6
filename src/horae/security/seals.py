"""One seal and the rows it covers: whether all is as it was, and else the least that explains what is different.

A seal that does not fit its own digest was edited: what it may have said before, by its neighbours and its rows, is
tried until that digest comes out again. A row that does not fit its own digest was edited, whatever its seal says. Rows
that all fit, under a seal that fits too but not them, were edited together with their digests: then only the seal's
whole range can be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from horae.core.trail import rows_digest, seal_digest
from horae.security.displaced import gaps, moved, own_digest
from horae.security.findings import Finding, Kind, told_places, told_row
from horae.store.vault import AuditRow, SealRow

MOST_UNDER_ONE = 100_000
"""Rows that one seal may cover; one that says it covers more was changed."""
_MOST_TRIED = 64


@dataclass(frozen=True, slots=True)
class Before:
    """What a seal has to go on from: the number, the first place and the digest it must have."""

    number: int
    first: int
    digest: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What one seal came to: what it said when it was made, as far as can be known, and what is wrong.

    `edited` are rows that do not fit their own digests, each with what to say of it where nothing explains it better;
    `vacant` are places without a row.
    """

    seal: SealRow
    findings: tuple[Finding, ...] = ()
    edited: tuple[tuple[AuditRow, Finding], ...] = ()
    vacant: tuple[tuple[int, int], ...] = ()


def judge(
    seal: SealRow, before: Before, following: SealRow | None, head: str | None, rows: Sequence[AuditRow]
) -> Judged:
    """`rows` are those at the places that this seal might cover, in order; `following` is the seal after it."""
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
                return Judged(right, (_difference(seal, right), *under.findings), under.edited, under.vacant)
    return _changed_somehow(seal, before, following, rows)


def _changed_somehow(seal: SealRow, before: Before, following: SealRow | None, rows: Sequence[AuditRow]) -> Judged:
    """One that nothing gives its digest again. Its neighbours know best where it lay."""
    last = seal.last if following is None else following.first - 1
    right = seal._replace(first=before.first, last=last)
    if last < before.first or last - before.first >= MOST_UNDER_ONE:
        # Nothing is known of where it ended: its rows are left to be found without a seal.
        reason = "it ends before it begins" if seal.last < seal.first else "it does not end where it did"
        changed = Finding(Kind.SEALS_CHANGED, f"seal {seal.number} was changed: {reason}", seal=seal.number)
        return Judged(seal._replace(first=before.first, last=before.first - 1), (changed,))
    if (right.first, right.last) == (seal.first, seal.last) and _covered(right, rows) == seal.rows:
        reason = "its digest or the time it was made at was another"
    else:
        reason = "more than one thing of it was another"
    message = f"seal {seal.number}, over {told_places(right.first, last)}, was changed: {reason}"
    changed = Finding(Kind.SEALS_CHANGED, message, right.first, last, seal=seal.number)
    under = _rows_under(right, rows, whole=False)
    return Judged(right, (changed, *under.findings), under.edited, under.vacant)


def _rows_under(seal: SealRow, rows: Sequence[AuditRow], *, whole: bool) -> Judged:
    """The rows under a seal that says what it said when it was made; unless `whole`, its digest of them is unsure."""
    under = _between(rows, seal.first, seal.last)
    digests = [own_digest(row) for row in under]
    fit = _covered(seal, under) == seal.rows
    if fit and digests == [row.seal for row in under]:
        return Judged(seal)
    strangers = dict(_doubled(seal, under))
    vacant = tuple(gaps(seal.first, seal.last, under))
    if strangers or vacant or fit:
        lost, more = [], ""
    else:
        if places := _other_order(seal, under):
            return Judged(seal, (moved(places, seal.number),))
        lost = _digests_lost(seal, under, digests)
        more = "" if lost else ", and others may have been,"
    edited = [row for row, digest in zip(under, digests, strict=True) if row.seal != digest]
    findings = [_changed(row, "lost its own digest", seal) for row in lost]
    if not (edited or strangers or vacant or fit) and whole:
        findings.append(_changed_with_digests(seal, under))
    told = [
        (row, _changed(row, f"was changed{more}", seal)) for row in edited if row not in lost and row not in strangers
    ]
    return Judged(seal, tuple(findings), (*told, *strangers.items()), vacant)


def _other_order(seal: SealRow, rows: Sequence[AuditRow]) -> list[int]:
    """The places of rows that are as they were but for their order; they were sealed in that of their numbers."""
    places = [row.position for row in rows]
    by_number = sorted(rows, key=lambda row: row.number)
    restored = [row._replace(position=place) for row, place in zip(by_number, places, strict=True)]
    if rows_digest(map(own_digest, restored)) != seal.rows:
        return []
    return [row.position or 0 for row, right in zip(rows, restored, strict=True) if row != right]


def _digests_lost(seal: SealRow, rows: Sequence[AuditRow], digests: Sequence[str]) -> list[AuditRow]:
    """The rows of which only the digest was edited: with the right ones the seal fits again."""
    edited = [index for index, row in enumerate(rows) if row.seal != digests[index]]
    for some in (edited, *([index] for index in edited[:_MOST_TRIED])):
        if (
            rows_digest(digests[index] if index in some else row.seal or "" for index, row in enumerate(rows))
            == seal.rows
        ):
            return [rows[index] for index in some]
    return []


def _doubled(seal: SealRow, rows: Sequence[AuditRow]) -> Iterator[tuple[AuditRow, Finding]]:
    """Rows in a place that another row has, which is there rightly: by its own digest, or else by the seal's."""
    places: dict[int | None, list[AuditRow]] = {}
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
                which = told_row(row) if right else f"one of {len(those)} rows at place {place}"
                message = f"{which} was put in later"
                yield row, Finding(Kind.ROWS_ADDED, message, place, place, row.number, seal.number)


def _fits(seal: SealRow) -> bool:
    return seal_digest(seal.previous, seal.first, seal.last, seal.sealed_at, seal.rows) == seal.digest


def _between(rows: Sequence[AuditRow], first: int, last: int) -> Sequence[AuditRow]:
    return [row for row in rows if row.position is not None and first <= row.position <= last]


def _covered(seal: SealRow, rows: Sequence[AuditRow]) -> str:
    """The digest over those of the rows, as they stand."""
    return rows_digest(row.seal or "" for row in _between(rows, seal.first, seal.last))


def _difference(seal: SealRow, right: SealRow) -> Finding:
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
    return Finding(Kind.SEALS_CHANGED, message, first=right.first, last=right.last, seal=seal.number)


def _changed(row: AuditRow, what: str, seal: SealRow) -> Finding:
    message = f"{told_row(row)} {what} after it was sealed by seal {seal.number}"
    return Finding(Kind.ROWS_CHANGED, message, row.position, row.position, row.number, seal.number)


def _changed_with_digests(seal: SealRow, rows: Sequence[AuditRow]) -> Finding:
    if len(rows) == 1:
        return _changed(rows[0], "was changed, and its own digest with it,", seal)
    what = f"one or more of {told_places(seal.first, seal.last)} were changed, and their own digests with them,"
    message = f"{what} after they were sealed by seal {seal.number}"
    return Finding(Kind.ROWS_CHANGED, message, seal.first, seal.last, seal=seal.number)
