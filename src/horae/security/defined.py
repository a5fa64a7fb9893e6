"""Whether the versions of jobs are what was written when the audit trail told of them.

A JOB_CREATED or JOB_MODIFIED row that tells of a version has a digest over it. The release before writes none, also
beside nodes of this one: such a row tells that there is a version, and not what it says. A version that retention or a
drop took away is no finding; one that is another, or that a job has now and no row tells of, is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence

from horae.security.findings import Finding, Findings, Kind, told_row
from horae.store.vault import NO_UUID, AuditRow, JobVersion, Vault

DEFINING = frozenset({"JOB_CREATED", "JOB_MODIFIED"})
PAGE = 1000


class Defined:
    """Compares rows with versions, page by page. Of each job its newest version is remembered."""

    def __init__(self, vault: Vault, findings: Findings) -> None:
        self._vault = vault
        self._findings = findings
        self._newest: dict[str, int] = {}
        self._digested: set[str] = set()
        self._told: set[str] = set()
        """Jobs that some row tells the definition of, also a row of an earlier release, without a digest."""

    async def look(self, rows: Sequence[AuditRow]) -> None:
        self._gather(rows)
        told = {version: row for row in rows if row.digest is not None and (version := _version(row)) is not None}
        if not told:
            return
        found = await self._vault.version_digests(list(told))
        for version, row in told.items():
            if version in found and found[version] != row.digest:
                message = f"version {version.version} of job {_name(row)} is not what was written, by {told_row(row)}"
                self._findings.add(Finding(Kind.DEFINITIONS_CHANGED, message, row.position, row.position, row.number))

    async def finish(self, again: Callable[[], AsyncIterator[Sequence[AuditRow]]], *, is_lost: bool) -> None:
        """Looks for versions that no row tells of: those of jobs some of whose rows have digests, and,
        unless rows are lost, of jobs without any row. `again` gives the whole trail once more: somebody may have
        changed a job while we were reading."""
        stray: list[JobVersion] = []
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
                self._findings.add(Finding(Kind.DEFINITIONS_CHANGED, message))

    def _is_stray(self, each: JobVersion, *, is_lost: bool) -> bool:
        if not is_lost and each.job_uuid not in self._told:
            return True
        if each.job_uuid not in self._digested:
            return False
        return each.version > self._newest.get(each.job_uuid, each.version)

    def _gather(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            if row.event not in DEFINING or row.job_uuid is None:
                continue
            self._told.add(row.job_uuid)
            if row.digest is not None:
                self._digested.add(row.job_uuid)
            version = _version(row)
            if version is not None:
                self._newest[row.job_uuid] = max(version.version, self._newest.get(row.job_uuid, 0))


def _version(row: AuditRow) -> JobVersion | None:
    """The version that a row tells of, with a digest or, as earlier releases write it, without."""
    if row.event not in DEFINING or row.job_uuid is None:
        return None
    number = _details(row).get("version")
    return JobVersion(row.job_uuid, number) if type(number) is int else None


def _name(row: AuditRow) -> str:
    return str(_details(row).get("name", row.job_uuid))


def _details(row: AuditRow) -> dict[str, object]:
    try:
        found = json.loads(row.details or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
