"""The audit trail: its rows, and the seals that reveal any later edit of it.

The transaction that makes a change writes its audit row, and waits for no other. Sealing gives the rows without a place
their places, in the order of their numbers, and writes one seal over them. A row whose transaction commits late is
sealed late. `core.audit` defines what the digests are over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.access import SYSTEM_NAME
from horae.core.audit import (
    BEGINNING,
    RIGHTS_EVENTS,
    RightsNote,
    SealedExtent,
    next_note,
    rights_digest,
    row_digest,
    row_line,
    rows_digest,
    seal_digest,
    seal_mac,
    sealed_extent_fault,
    version_digest,
)
from horae.core.job import ids
from horae.errors import Conflict
from horae.store.catalog.row_codec import moment, uuid_of
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.protocols.people import (
    RIGHTS_DIGESTED,
    SealHead,
    SealRow,
    SecretRecord,
    SettledRun,
    TrailEnds,
    TrailRow,
    VersionKey,
)


def note(
    work: UnitOfWork,
    event: str,
    by: str,
    outcome: str,
    job: str | None,
    run_id: str | None,
    details: Mapping[str, Any] | None,
) -> None:
    job_uuid = None if job is None else ids.job_key(job)
    run_uuid = None if run_id is None else uuid_of(run_id)
    # As ASCII, because a refused value may be anything, even text that no store can keep.
    text = json.dumps(dict(details), sort_keys=True, default=str) if details else None
    work.write("insert_audit", (work.now, event, job_uuid, run_uuid, by, outcome, text, None))


async def seal(work: UnitOfWork, limit: int, key: bytes | None = None, known: SealHead | None = None) -> int:
    """Gives rows their places and writes their seal. Returns how many rows. One transaction seals at a time; a second
    one waits, and seals what is left."""
    await work.transaction.rows("lock_seals")
    rows = [TrailRow(*row) for row in await work.transaction.rows("rows_to_seal", limit=limit)]
    # Read after the rows, so that no row which is newer than the key is sealed without a code.
    is_keyed = key is not None or bool(await work.transaction.rows("read_audit_key"))
    last = await _checked_last(work, key, known, is_keyed=is_keyed)
    if not rows or (key is None and is_keyed):
        return 0
    number, covered, previous = last.seal, last.place, last.digest
    # A place is never given twice, even where its seal was removed. Its row then shows that a seal is missing.
    first = max(covered, (await work.transaction.rows("last_place"))[0][0]) + 1
    end = first + len(rows) - 1
    lines = (row_line((row.number, place, *row[2:-1])) for place, row in enumerate(rows, first))
    digests = [row_digest(line) for line in lines]
    placed = zip((row.number for row in rows), range(first, end + 1), digests, strict=True)
    await work.transaction.many("place_rows", list(placed))
    covering = rows_digest(digests)
    digest = seal_digest(previous, first, end, work.now, covering)
    await work.transaction.rows(
        "insert_seal",
        number=number + 1,
        first=first,
        last=end,
        digest=digest,
        previous=previous,
        rows_digest=covering,
        mac=None if key is None else seal_mac(key, digest),
    )
    await _keep_reach(work, SealedExtent(number + 1, end, digest).under(key))
    return len(rows)


async def _checked_last(work: UnitOfWork, key: bytes | None, known: SealHead | None, *, is_keyed: bool) -> SealedExtent:
    """Returns the last seal. Raises Conflict where the trail does not reach as far as it was sealed, or as far as the
    caller saw it (`known`): rows that were changed meanwhile must not be sealed anew."""
    found = [SealedExtent(*row) for row in await work.transaction.rows("last_seal")]
    last = found[0] if found else SealedExtent(0, 0, BEGINNING)
    kept = await reach(work)
    fault = sealed_extent_fault(kept, key, is_keyed=is_keyed)
    if kept is not None and fault is None and last != kept._replace(mac=None):
        # Nodes of the previous release seal without this record, and without codes.
        newer = await work.transaction.rows("keyed_after", number=kept.seal)
        place = (await _seal_numbered(work, kept.seal)) if kept.seal else (0, BEGINNING)
        if newer or place != (kept.place, kept.digest):
            fault = f"the trail was sealed up to seal {kept.seal}, and that is not the newest, or not what it was"
    if (
        fault is None
        and known is not None
        and known.digest
        not in (
            last.digest,
            (await _seal_numbered(work, known.seal))[1],
        )
    ):
        fault = f"seal {known.seal} was seen with the digest {known.digest}, and is not there any more"
    if fault is not None:
        raise Conflict(
            f"The audit trail is not sealed any further: {fault}",
            hint="Look for what was done to it: horae audit verify. docs/security.md says how sealing goes on.",
        )
    return last


async def _seal_numbered(work: UnitOfWork, number: int) -> tuple[int, str]:
    for place, digest in await work.transaction.rows("seal_numbered", number=number):
        return place, digest
    return 0, ""


async def _keep_reach(work: UnitOfWork, kept: SealedExtent) -> None:
    await work.transaction.rows("keep_reach", number=kept.seal, place=kept.place, digest=kept.digest, mac=kept.mac)


async def reach(work: UnitOfWork) -> SealedExtent | None:
    for row in await work.transaction.rows("read_reach"):
        return SealedExtent(*row)
    return None


async def rights(work: UnitOfWork) -> str:
    return (await read_rights(work, ()))[0]


async def read_rights(work: UnitOfWork, events: Sequence[str]) -> tuple[str, int, list[tuple[int, str, str]]]:
    """Returns the digest over all principals and their rights, the number after which the newest thousand rows of the
    trail begin, and those of these rows that are of `events`, by number."""
    lines, after, rows = [], 0, []
    for what, *line in await work.transaction.rows("read_rights", events=list(events)):
        if what == "newest":
            after = max(0, int(line[0]) - 1000)
        elif what == "row":
            rows.append((int(line[0]), line[1], line[2]))
        else:
            lines.append([what, *map(str, line)])
    return rights_digest(lines), after, sorted(rows)


def digest_of(written: Sequence[Any]) -> str:
    """Returns the version digest of a row that `insert_versions` takes."""
    _, version, definition, defaults, _, author, *_ = written
    return version_digest(version, definition, defaults, author)


async def version_digests(work: UnitOfWork, versions: Sequence[VersionKey]) -> dict[VersionKey, str]:
    wanted = [f"{each.job_uuid}:{each.version}" for each in versions]
    rows = await work.transaction.rows("written_versions", versions=wanted)
    return {VersionKey(str(job), version): version_digest(version, *rest) for job, version, *rest in rows}


async def present_versions(work: UnitOfWork, after: str, limit: int) -> tuple[VersionKey, ...]:
    rows = await work.transaction.rows("present_versions", after=after, limit=limit)
    return tuple(VersionKey(str(job), version) for job, version in rows)


async def note_rights(work: UnitOfWork, *, thorough: bool) -> bool:
    # One transaction at a time, so that a change which several nodes see is noted once.
    await work.transaction.rows("lock_seals")
    # Before the rights are read: a mark that is written after this is left for the next call.
    if not await work.transaction.rows("take_marks") and not thorough:
        return False
    found, after, rows = await read_rights(work, (RIGHTS_DIGESTED, *sorted(RIGHTS_EVENTS)))
    notes = (RightsNote.read(details) for _, event, details in rows if event == RIGHTS_DIGESTED)
    telling = [number for number, event, _ in rows if event != RIGHTS_DIGESTED]
    fresh = next_note(found, after, telling, [each for each in notes if each is not None])
    if fresh is None:
        return False
    work.write("insert_audit", (work.now, RIGHTS_DIGESTED, None, None, SYSTEM_NAME, "OK", fresh.write(), None))
    return True


async def audit_key(work: UnitOfWork) -> SecretRecord | None:
    for wrapped, key_id, created_at in await work.transaction.rows("read_audit_key"):
        return SecretRecord(" audit key", None, bytes(wrapped), key_id, moment(created_at))
    return None


async def keep_audit_key(work: UnitOfWork, wrapped: bytes, key_id: str, was: bytes | None, key: bytes | None) -> bool:
    if was is None:
        await work.transaction.rows("lock_seals")
        kept = await work.transaction.rows("insert_audit_key", wrapped=wrapped, key=key_id)
        if kept:
            # Written together with the key, so that a missing record can only mean that it was removed.
            last = await _checked_last(work, None, None, is_keyed=False)
            await _keep_reach(work, last.under(key))
    else:
        kept = await work.transaction.rows("rewrap_audit_key", wrapped=wrapped, key=key_id, was=was)
    if kept:
        event = "AUDIT_KEY_MADE" if was is None else "AUDIT_KEY_WRAPPED"
        work.audit(event, None, None, SYSTEM_NAME, "OK", key_id=key_id)
        await work.flush()
    return bool(kept)


async def trail_ends(work: UnitOfWork) -> TrailEnds:
    [row] = await work.transaction.rows("trail_ends")
    found = TrailEnds(*row)
    return found._replace(is_gapless=bool(found.is_gapless))


async def audit(work: UnitOfWork, after: int, limit: int, *, sealed: bool) -> tuple[TrailRow, ...]:
    statement = "sealed_rows" if sealed else "unsealed_rows"
    return tuple(TrailRow(*row) for row in await work.transaction.rows(statement, after=after, limit=limit))


async def seals(work: UnitOfWork, after: int, limit: int) -> tuple[SealRow, ...]:
    return tuple(SealRow(*row) for row in await work.transaction.rows("read_seals", after=after, limit=limit))


async def head(work: UnitOfWork) -> SealHead | None:
    for number, _, digest in await work.transaction.rows("last_seal"):
        return SealHead(number, digest)
    return None


async def settled_runs(work: UnitOfWork, numbers: list[int]) -> tuple[SettledRun, ...]:
    return tuple(SettledRun(*row) for row in await work.transaction.rows("settled_runs", runs=numbers))


async def ended_runs(work: UnitOfWork, uuids: list[str]) -> tuple[SettledRun, ...]:
    return tuple(SettledRun(*row) for row in await work.transaction.rows("runs_by_uuid", runs=uuids))


async def completed_runs(work: UnitOfWork, until: int, after: int, limit: int) -> tuple[int, ...]:
    rows = await work.transaction.rows("completed_runs", until=until, after=after, limit=limit)
    return tuple(number for (number,) in rows)
