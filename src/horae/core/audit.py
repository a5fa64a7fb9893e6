"""Digests of the audit trail: they chain rows and seals, so that any later edit, deletion or move is detected.

A row gets a digest over all of its columns when it gets its place, so that an edited row is detected by itself. A seal
has one digest over those of the rows it covers, in sealed order, and one over the seal itself, including the seal
before it. The number of a seal is its place in that chain. To change, remove or reorder rows, one would have to rewrite
every later seal, and the last digest would differ from a copy that was kept elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as keyed_digest
from typing import NamedTuple

KEY_BYTES = 32
BEGINNING = "0" * 64
"""The digest that the first seal has as the previous one."""


def row_line(values: Sequence[object]) -> str:
    """One row as text. Equal rows give equal text.

    `values` are its number and its place, then the other columns in the table's order, without the row's digest.
    """
    return json.dumps(list(values), separators=(",", ":"), ensure_ascii=True)


def row_digest(line: str) -> str:
    """The digest of a row, over its `row_line`."""
    return sha256(line.encode()).hexdigest()


def rows_digest(digests: Iterable[str]) -> str:
    """The digest over the digests of a seal's rows, in sealed order."""
    return sha256("\n".join(digests).encode()).hexdigest()


def seal_digest(previous: str, first: int, last: int, sealed_at: int, rows: str) -> str:
    """The digest of a seal over the rows at the places `first` to `last`, whose `rows_digest` is `rows`."""
    return sha256(f"{previous}\n{first}\n{last}\n{sealed_at}\n{rows}\n".encode()).hexdigest()


def seal_mac(key: bytes, digest: str) -> str:
    """The message authentication code of a seal: over its digest, and so over all seals before it."""
    return keyed_digest(key, digest.encode(), "sha256").hex()


def is_keyed(key: bytes, digest: str, mac: str) -> bool:
    return compare_digest(seal_mac(key, digest), mac)


class SealedExtent(NamedTuple):
    """How far the trail is sealed: the number, last place and digest of the newest seal.

    They are 0, 0 and BEGINNING without a seal. The record is rewritten with each seal, so that it is detected when rows
    and seals are cut off and the trail is then sealed again.
    """

    seal: int
    place: int
    digest: str
    mac: str | None = None
    """The message authentication code of the other fields under the audit key; None: it was written without a key."""

    def under(self, key: bytes | None) -> SealedExtent:
        return self._replace(mac=None if key is None else sealed_extent_mac(key, self))


def sealed_extent_mac(key: bytes, reach: SealedExtent) -> str:
    """The message authentication code of a reach.

    The text has line feeds and the digest of a seal has none, so that the code of a seal is never that of a reach.
    """
    return keyed_digest(key, f"reach\n{reach.seal}\n{reach.place}\n{reach.digest}\n".encode(), "sha256").hex()


def sealed_extent_fault(reach: SealedExtent | None, key: bytes | None, *, is_keyed: bool) -> str | None:
    """Why `reach` cannot be the record that was written last, or None.

    `is_keyed`: the catalog has an audit key; `key` is that key, or None where this process does not have it. Without an
    audit key the record may be missing, because earlier releases do not write it.
    """
    if is_keyed and (reach is None or reach.mac is None):
        return "there is an audit key, and no record under it of how far the trail was sealed: it was taken away"
    if reach is not None and reach.mac is not None and key is not None and not _is_code(key, reach):
        return f"the record that the trail was sealed up to seal {reach.seal} was not made with the audit key"
    return None


def _is_code(key: bytes, reach: SealedExtent) -> bool:
    return compare_digest(sealed_extent_mac(key, reach), reach.mac or "")


def rights_digest(lines: Iterable[Sequence[str]]) -> str:
    """The digest of a RIGHTS_DIGESTED row, over all users, roles and grants. Their order does not matter."""
    return sha256("\n".join(sorted(row_line(line) for line in lines)).encode()).hexdigest()


RIGHTS_EVENTS = frozenset(
    {
        "USER_CREATED",
        "USER_MODIFIED",
        "USER_DROPPED",
        "ROLE_CREATED",
        "ROLE_DROPPED",
        "ROLE_GRANTED",
        "ROLE_REVOKED",
        "PRIVILEGE_GRANTED",
        "PRIVILEGE_REVOKED",
        "JOB_DELETED",  # it also deletes the grants on the job
    }
)
"""The events of audit rows that record a change of rights."""


class RightsNote(NamedTuple):
    """The details of a RIGHTS_DIGESTED row: the digest, and which rows about changes of rights existed at that time.

    Those are all rows up to the number `after`, and the rows whose numbers are in the ranges `told`. No earlier
    RIGHTS_DIGESTED row has the numbers in `told`.
    """

    rights: str
    after: int
    told: list[list[int]]

    @classmethod
    def read(cls, details: str | None) -> RightsNote | None:
        """The note in `details`; None where the text is no note."""
        try:
            found = json.loads(details or "")
            return cls(str(found["rights"]), int(found["after"]), [[int(a), int(b)] for a, b in found["told"]])
        except (ValueError, TypeError, LookupError):
            return None

    def write(self) -> str:
        return json.dumps(self._asdict())

    def knows(self, number: int) -> bool:
        return number <= self.after or within(number, self.told)


def next_note(rights: str, after: int, telling: Iterable[int], before: Iterable[RightsNote]) -> RightsNote | None:
    """The note to write for the digest `rights`; None where the last note has it and no row is new.

    `telling` are the numbers beyond `after` of rows about changes of rights. `before` are the notes in rows beyond
    `after`, in order.
    """
    known = list(before)
    told = [number for number in telling if not any(within(number, each.told) for each in known)]
    if known and known[-1].rights == rights and not told:
        return None
    return RightsNote(rights, after, ranges(told))


def version_digest(version: int, definition: str, defaults: str | None, author: str) -> str:
    """The digest of a JOB_CREATED or JOB_MODIFIED row, over the stored version of the job that the row is about."""
    return sha256(row_line([version, definition, defaults, author]).encode()).hexdigest()


def runs_digest(lines: Iterable[str]) -> str:
    """The digest of a JOB_EXECUTED row over its runs, in the order of their numbers."""
    return sha256("\n".join(lines).encode()).hexdigest()


def run_line(run_no: int, run_uuid: str, state: str, fence: int, completed_at: int | None) -> str:
    return f"{run_no} {run_uuid} {state} {fence} {completed_at}"


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """`numbers` as ranges [first, last] of consecutive numbers, so that a row can name very many."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def within(number: int, spans: Sequence[Sequence[int]]) -> bool:
    return any(first <= number <= last for first, last in spans)
