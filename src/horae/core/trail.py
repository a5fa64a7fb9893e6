"""The audit trail's arithmetic: how rows and seals become digests, so that any later edit, deletion or move shows.

A row that gets its place gets a digest over every column of it, so that a row which was edited is known by itself. A
seal has a digest over those of the rows it covers, in their sealed order, and one over all that the seal says, the seal
before it included; its number is its place in that chain. Whoever changes a row, takes one out, or changes their order
would have to write every seal from there on anew, and the last digest, which people can keep elsewhere, would be
another.
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
"""What the first seal has before it."""


def row_line(values: Sequence[object]) -> str:
    """One row as text: its number and its place first, then every column in the table's order, but not the digest over
    them. Equal rows give equal text."""
    return json.dumps(list(values), separators=(",", ":"), ensure_ascii=True)


def row_digest(line: str) -> str:
    """What a row is sealed with: the digest of its own line."""
    return sha256(line.encode()).hexdigest()


def rows_digest(digests: Iterable[str]) -> str:
    """The digest over those of a seal's rows, in their sealed order."""
    return sha256("\n".join(digests).encode()).hexdigest()


def seal_digest(previous: str, first: int, last: int, sealed_at: int, rows: str) -> str:
    """The digest of a seal over the rows at `first` to `last`, whose `rows_digest` is `rows`."""
    return sha256(f"{previous}\n{first}\n{last}\n{sealed_at}\n{rows}\n".encode()).hexdigest()


def seal_mac(key: bytes, digest: str) -> str:
    """The code of a seal under the audit key, over its digest, and so over all before it."""
    return keyed_digest(key, digest.encode(), "sha256").hex()


def is_keyed(key: bytes, digest: str, mac: str) -> bool:
    return compare_digest(seal_mac(key, digest), mac)


class Reach(NamedTuple):
    """How far the trail was sealed: the newest seal's number, last place and digest; 0 and BEGINNING where there is
    none. It is written anew with each seal, so that a trail which somebody cut, for others to seal again, shows."""

    seal: int
    place: int
    digest: str
    mac: str | None = None
    """The code of all that under the audit key; None: it is unkeyed."""

    def under(self, key: bytes | None) -> Reach:
        return self._replace(mac=None if key is None else reach_mac(key, self))


def reach_mac(key: bytes, reach: Reach) -> str:
    """In a domain of its own: no seal's code is a reach's, as what a seal's is over has no line's end."""
    return keyed_digest(key, f"reach\n{reach.seal}\n{reach.place}\n{reach.digest}\n".encode(), "sha256").hex()


def reach_fault(reach: Reach | None, key: bytes | None, *, is_keyed: bool) -> str | None:
    """Why this cannot be what was written last. `is_keyed`: the catalog has an audit key, which `key` is, if it is
    here. Where there is none, nothing may be written yet: releases before do not write it."""
    if is_keyed and (reach is None or reach.mac is None):
        return "there is an audit key, and no record under it of how far the trail was sealed: it was taken away"
    if reach is not None and reach.mac is not None and key is not None and not _is_code(key, reach):
        return f"the record that the trail was sealed up to seal {reach.seal} was not made with the audit key"
    return None


def _is_code(key: bytes, reach: Reach) -> bool:
    return compare_digest(reach_mac(key, reach), reach.mac or "")


def rights_digest(lines: Iterable[Sequence[str]]) -> str:
    """The digest of a RIGHTS_DIGESTED row: over who there is and what they may, in any order."""
    return sha256("\n".join(sorted(row_line(line) for line in lines)).encode()).hexdigest()


TELLING = frozenset(
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
        "JOB_DELETED",  # and the grants on it
    }
)
"""The rows that tell of a change of rights."""


class RightsNote(NamedTuple):
    """What a RIGHTS_DIGESTED row says: the digest, and which rows that tell of changes were there when it was taken.
    Those are all up to the number `after`, and those whose numbers are in the spans `told`, which no such row before it
    has."""

    rights: str
    after: int
    told: list[list[int]]

    @classmethod
    def read(cls, details: str | None) -> RightsNote | None:
        """None where that is no such text."""
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
    """What is to be noted of the digest `rights`: `telling` are the numbers beyond `after` of rows that tell of
    changes, `before` what was noted beyond it, in order. None where that says it all."""
    known = list(before)
    told = [number for number in telling if not any(within(number, each.told) for each in known)]
    if known and known[-1].rights == rights and not told:
        return None
    return RightsNote(rights, after, ranges(told))


def version_digest(version: int, definition: str, defaults: str | None, author: str) -> str:
    """The digest of a JOB_CREATED or JOB_MODIFIED row over the version of a job that it tells of, as it is kept."""
    return sha256(row_line([version, definition, defaults, author]).encode()).hexdigest()


def runs_digest(lines: Iterable[str]) -> str:
    """The digest of a JOB_EXECUTED row over its runs, in the order of their numbers."""
    return sha256("\n".join(lines).encode()).hexdigest()


def run_line(run_no: int, run_uuid: str, state: str, fence: int, completed_at: int | None) -> str:
    return f"{run_no} {run_uuid} {state} {fence} {completed_at}"


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as runs of neighbours, [first, last] each: how a row names very many."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def within(number: int, spans: Sequence[Sequence[int]]) -> bool:
    return any(first <= number <= last for first, last in spans)
