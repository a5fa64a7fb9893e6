"""The audit trail: rows that stand by themselves, and the seals that make any later edit of it show.

Rows are written by whatever they describe, and nobody waits for anybody. Whoever seals gives the rows that have none
their places, in the order of their numbers, and writes one seal over them; a row whose transaction commits late is
sealed late. What the digests are over, `core.trail` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from horae.core import ids
from horae.core.trail import BEGINNING, row_digest, row_line, rows_digest, seal_digest
from horae.store.rows import uuid_of
from horae.store.vault import AuditRow, SealRow, SettledRun
from horae.store.work import Work


def note(
    work: Work,
    event: str,
    by: str,
    outcome: str,
    job: str | None,
    run_id: str | None,
    details: Mapping[str, Any] | None,
) -> None:
    job_uuid = None if job is None else ids.job_key(job)
    run_uuid = None if run_id is None else uuid_of(run_id)
    # As plain letters: what was refused may be anything, also what no store could keep as text.
    text = json.dumps(dict(details), sort_keys=True, default=str) if details else None
    work.write("insert_audit", (work.now, event, job_uuid, run_uuid, by, outcome, text, None))


async def seal(work: Work, limit: int) -> int:
    """Gives rows their places and writes their seal. One at a time; whoever comes second seals what is left."""
    await work.transaction.rows("lock_seals")
    rows = [AuditRow(*row) for row in await work.transaction.rows("rows_to_seal", limit=limit)]
    if not rows:
        return 0
    last = await work.transaction.rows("last_seal")
    number, covered, previous = last[0] if last else (0, 0, BEGINNING)
    # Places are not given twice, even where somebody has removed the seals over them: their rows then lack a seal.
    first = max(covered, (await work.transaction.rows("last_place"))[0][0]) + 1
    end = first + len(rows) - 1
    lines = (row_line((row.number, place, *row[2:-1])) for place, row in enumerate(rows, first))
    digests = [row_digest(line) for line in lines]
    placed = zip((row.number for row in rows), range(first, end + 1), digests, strict=True)
    await work.transaction.many("place_rows", list(placed))
    digest = rows_digest(digests)
    await work.transaction.rows(
        "insert_seal",
        number=number + 1,
        first=first,
        last=end,
        digest=seal_digest(previous, first, end, work.now, digest),
        previous=previous,
        rows_digest=digest,
    )
    return len(rows)


async def audit(work: Work, after: int, limit: int, *, sealed: bool) -> tuple[AuditRow, ...]:
    statement = "sealed_rows" if sealed else "unsealed_rows"
    return tuple(AuditRow(*row) for row in await work.transaction.rows(statement, after=after, limit=limit))


async def seals(work: Work, after: int, limit: int) -> tuple[SealRow, ...]:
    return tuple(SealRow(*row) for row in await work.transaction.rows("read_seals", after=after, limit=limit))


async def settled_runs(work: Work, numbers: list[int]) -> tuple[SettledRun, ...]:
    return tuple(SettledRun(*row) for row in await work.transaction.rows("settled_runs", runs=numbers))


async def ended_runs(work: Work, uuids: list[str]) -> tuple[SettledRun, ...]:
    return tuple(SettledRun(*row) for row in await work.transaction.rows("runs_by_uuid", runs=uuids))
