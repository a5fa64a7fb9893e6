"""Verifies that job versions still are as they were when the audit trail recorded them.

A JOB_CREATED or JOB_MODIFIED row has a digest over the version that it names. The previous release writes none, also
when its nodes run beside nodes of this release: such a row records that a version exists, not what it says. A version
that retention or a drop deleted is no finding. A version that differs, and a job's present version that no row names,
are findings.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence

from horae.security.audit.findings import AuditFinding, FindingCollector, FindingKind, row_text
from horae.store.protocols.people import NO_UUID, PeopleStore, TrailRow, VersionKey

DEFINING = frozenset({"JOB_CREATED", "JOB_MODIFIED"})
PAGE = 1000


class VersionVerifier:
    """Compares rows with versions, page by page. Between pages it keeps the newest version of each job."""

    def __init__(self, vault: PeopleStore, findings: FindingCollector) -> None:
        self._vault = vault
        self._findings = findings
        self._newest: dict[str, int] = {}
        self._digested: set[str] = set()
        self._told: set[str] = set()
        """The uuids of jobs that have a defining row, also one that an earlier release wrote without a digest."""

    async def look(self, rows: Sequence[TrailRow]) -> None:
        self._gather(rows)
        told = {version: row for row in rows if row.digest is not None and (version := _version(row)) is not None}
        if not told:
            return
        found = await self._vault.version_digests(list(told))
        for version, row in told.items():
            if version in found and found[version] != row.digest:
                message = f"version {version.version} of job {_name(row)} is not what was written, by {row_text(row)}"
                self._findings.add(
                    AuditFinding(FindingKind.DEFINITIONS_CHANGED, message, row.position, row.position, row.number)
                )

    async def finish(self, again: Callable[[], AsyncIterator[Sequence[TrailRow]]], *, is_lost: bool) -> None:
        """Reports present versions that no row names: of jobs that have rows with a digest, and, unless `is_lost` says
        that rows were lost, of jobs without any row. `again` yields the whole trail once more, because a job may have
        been changed while the trail was read."""
        stray: list[VersionKey] = []
        after = NO_UUID
        while page := await self._vault.present_versions(after, PAGE):
            after = page[-1].job_uuid
            stray += [each for each in page if self._is_stray(each, is_lost=is_lost)]
        if not stray:
            return
        async for rows in again():
            self._gather(rows)
        for each in stray:
            if self._is_stray(each, is_lost=is_lost):
                message = f"no row tells of version {each.version}, which the job {each.job_uuid} has now"
                self._findings.add(AuditFinding(FindingKind.DEFINITIONS_CHANGED, message))

    def _is_stray(self, each: VersionKey, *, is_lost: bool) -> bool:
        if not is_lost and each.job_uuid not in self._told:
            return True
        if each.job_uuid not in self._digested:
            return False
        return each.version > self._newest.get(each.job_uuid, each.version)

    def _gather(self, rows: Sequence[TrailRow]) -> None:
        for row in rows:
            if row.event not in DEFINING or row.job_uuid is None:
                continue
            self._told.add(row.job_uuid)
            if row.digest is not None:
                self._digested.add(row.job_uuid)
            version = _version(row)
            if version is not None:
                self._newest[row.job_uuid] = max(version.version, self._newest.get(row.job_uuid, 0))


def _version(row: TrailRow) -> VersionKey | None:
    """The version that a row names, with a digest or, as earlier releases write it, without one."""
    if row.event not in DEFINING or row.job_uuid is None:
        return None
    number = _details(row).get("version")
    return VersionKey(row.job_uuid, number) if type(number) is int else None


def _name(row: TrailRow) -> str:
    return str(_details(row).get("name", row.job_uuid))


def _details(row: TrailRow) -> dict[str, object]:
    try:
        found = json.loads(row.details or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
