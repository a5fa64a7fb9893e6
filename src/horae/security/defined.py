"""Whether the versions of jobs are what was written when the audit trail told of them.

A JOB_CREATED or JOB_MODIFIED row that tells of a version has a digest over it. A version that retention or a drop took
away is no finding; one that is another, or that a job has now and no row tells of, is.
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

    async def look(self, rows: Sequence[AuditRow]) -> None:
        told = {version: row for row in rows if (version := _version(row)) is not None}
        if not told:
            return
        self._gather(rows)
        found = await self._vault.version_digests(list(told))
        for version, row in told.items():
            if version in found and found[version] != row.digest:
                message = f"version {version.version} of job {_name(row)} is not what was written, by {told_row(row)}"
                self._findings.add(Finding(Kind.DEFINITIONS_CHANGED, message, row.position, row.position, row.number))

    async def finish(self, again: Callable[[], AsyncIterator[Sequence[AuditRow]]]) -> None:
        """Looks for versions that no row tells of, of jobs whose earlier ones have rows with digests. `again` gives the
        whole trail once more: somebody may have changed a job while we were reading."""
        stray: list[JobVersion] = []
        after = NO_UUID
        while page := await self._vault.present_versions(after, PAGE):
            after = page[-1].job_uuid
            stray += [each for each in page if each.version > self._newest.get(each.job_uuid, each.version)]
        if not stray:
            return
        async for rows in again():
            self._gather(rows)
        for each in stray:
            if each.version > self._newest[each.job_uuid]:
                message = f"no row tells of version {each.version}, which the job {each.job_uuid} has now"
                self._findings.add(Finding(Kind.DEFINITIONS_CHANGED, message))

    def _gather(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            version = _version(row)
            if version is not None:
                self._newest[version.job_uuid] = max(version.version, self._newest.get(version.job_uuid, 0))


def _version(row: AuditRow) -> JobVersion | None:
    """The version whose digest a row has; None where it has none, as those that earlier releases wrote."""
    if row.event not in DEFINING or row.digest is None or row.job_uuid is None:
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
