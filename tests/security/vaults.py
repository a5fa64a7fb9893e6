"""A small vault in memory: the few verbs that the security room asks, each done for real."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from horae.core.access import Grant, Principal, user_uuid
from horae.core.audit import BEGINNING, row_digest, row_line, rows_digest, run_line, runs_digest, seal_digest
from horae.core.job import ids
from horae.core.job.definition import JobSpec, Settings
from horae.security.access import AccessCatalog
from horae.store.protocols.people import ClosedSpan, SealRow, SecretRecord, SettledRun, TrailEnds, TrailRow, VersionKey
from horae.store.protocols.reads import VersionRecord
from horae.store.protocols.store import JobRecord

START = 1_770_000_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """What a gate looks at, of a job's record."""

    name: str
    owner: str
    spec: JobSpec | None = None

    @property
    def definition(self) -> Job:
        return self

    @property
    def settings(self) -> Settings:
        return Settings() if self.spec is None else self.spec.effective()

    @property
    def created_at(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def record(self) -> JobRecord:
        return cast(JobRecord, self)


@dataclass(eq=False)
class MemoryVault:
    people: dict[str, Principal] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    roles_kept: dict[str, frozenset[Grant]] = field(default_factory=dict)
    secrets_kept: dict[tuple[str, str | None], SecretRecord] = field(default_factory=dict)
    jobs_kept: dict[str, Job] = field(default_factory=dict)
    versions_kept: dict[str, list[VersionRecord]] = field(default_factory=dict)
    rows: list[TrailRow] = field(default_factory=list)
    seal_rows: list[SealRow] = field(default_factory=list)
    runs: dict[int, SettledRun] = field(default_factory=dict)
    spans: dict[int, ClosedSpan] = field(default_factory=dict)
    kept_key: SecretRecord | None = None
    questions: list[str] = field(default_factory=list)

    @property
    def kept(self) -> AccessCatalog:
        """As what the code under test takes; the verbs it never asks are not here."""
        return cast(AccessCatalog, self)

    def add_user(self, name: str, *grants: Grant, roles: Sequence[str] = (), **flags: bool) -> Principal:
        held = frozenset(grants).union(*(self.roles_kept[role] for role in roles))
        who = Principal(name, user_uuid(name), roles=frozenset(roles), grants=held, **flags)
        self.people[name] = who
        return who

    def events(self) -> list[str]:
        return [row.event for row in self.rows]

    # ---- people and jobs ---------------------------------------------------------------------------------------------

    async def principal(self, name: str) -> Principal | None:
        return self.people.get(name)

    async def role_grants(self, name: str) -> frozenset[Grant] | None:
        return self.roles_kept.get(name)

    async def password_hash(self, name: str) -> str | None:
        return self.hashes.get(name)

    async def jobs(self, names: Sequence[str] | None = None) -> tuple[Job, ...]:
        wanted = self.jobs_kept if names is None else names
        return tuple(self.jobs_kept[name] for name in wanted if name in self.jobs_kept)

    async def versions(self, job: str, *, limit: int = 50) -> tuple[VersionRecord, ...]:
        return tuple(self.versions_kept.get(job, ())[:limit])

    # ---- secrets -----------------------------------------------------------------------------------------------------

    async def secret(self, name: str, job: str | None = None) -> SecretRecord | None:
        return self.secrets_kept.get((name, job)) or self.secrets_kept.get((name, None))

    async def secrets(self) -> tuple[SecretRecord, ...]:
        self.questions.append("secrets")
        return tuple(self.secrets_kept.values())

    def put(self, name: str, value: bytes, key_id: str, job: str | None = None) -> SecretRecord:
        record = SecretRecord(name, job, value, key_id, datetime(2026, 1, 1, tzinfo=UTC))
        self.secrets_kept[name, job] = record
        return record

    async def replace_secrets(self, changed: Sequence[tuple[SecretRecord, bytes, str]], *, by: str) -> int:
        count = 0
        for record, value, key_id in changed:
            place = (record.name, record.job)
            there = self.secrets_kept.get(place)
            if there is not None and there.value == record.value:
                self.secrets_kept[place] = replace(there, value=value, key_id=key_id)
                count += 1
        await self.note("SECRETS_ROTATED", by=by, outcome="OK", details={"count": count})
        return count

    async def audit_key(self) -> SecretRecord | None:
        return self.kept_key

    async def keep_audit_key(self, wrapped: bytes, key_id: str, *, was: bytes | None, key: bytes | None = None) -> bool:
        if (None if self.kept_key is None else self.kept_key.value) != was:
            return False
        self.kept_key = SecretRecord(" audit key", None, wrapped, key_id)
        return True

    async def version_digests(self, versions: Sequence[VersionKey]) -> Mapping[VersionKey, str]:
        return {}

    async def present_versions(self, after: str = "", limit: int = 1000) -> tuple[VersionKey, ...]:
        return ()

    async def rights(self) -> str:
        return BEGINNING

    async def reach(self) -> None:
        """As in a catalog that releases before sealed."""

    async def trail_ends(self) -> TrailEnds:
        last = max(self.rows, key=lambda row: row.number, default=None)
        return TrailEnds(0, 0, 0, 0, 0) if last is None else TrailEnds(last.number, last.at, last.number, 0, 0)

    # ---- the trail ---------------------------------------------------------------------------------------------------

    async def note(
        self,
        event: str,
        *,
        by: str,
        outcome: str,
        job: str | None = None,
        run_id: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        job_uuid = None if job is None else str(ids.job_uuid(job))
        text = json.dumps(dict(details)) if details else None
        number = len(self.rows) + 1
        self.rows.append(TrailRow(number, None, START + number * 1000, event, job_uuid, None, by, outcome, text, None))

    async def seal(self, limit: int = 5000) -> int:
        fresh = sorted((row for row in self.rows if row.position is None), key=lambda row: row.number)
        fresh = [row for row in fresh if row.seal is None][:limit]
        if not fresh:
            return 0
        last = self.seal_rows[-1] if self.seal_rows else SealRow(0, 0, 0, BEGINNING, BEGINNING, 0, "")
        placed = [row._replace(position=place) for place, row in enumerate(fresh, last.last + 1)]
        placed = [row._replace(seal=row_digest(row_line(row[:-1]))) for row in placed]
        for row in placed:
            self.rows[next(index for index, each in enumerate(self.rows) if each.number == row.number)] = row
        first, end = last.last + 1, last.last + len(placed)
        rows, at = rows_digest(row.seal or "" for row in placed), START + end * 1000 + 500
        digest = seal_digest(last.digest, first, end, at, rows)
        self.seal_rows.append(SealRow(last.number + 1, first, end, digest, last.digest, at, rows))
        return len(placed)

    async def audit(self, after: int = 0, limit: int = 1000, *, sealed: bool = True) -> tuple[TrailRow, ...]:
        if not sealed:
            loose = [row for row in self.rows if row.position is None and row.number > after]
            return tuple(sorted(loose, key=lambda row: row.number)[:limit])
        placed = [row for row in self.rows if row.position is not None and row.position > after]
        return tuple(sorted(placed, key=lambda row: (row.position or 0, row.number))[:limit])

    async def seals(self, after: int = 0, limit: int = 1000) -> tuple[SealRow, ...]:
        return tuple(sorted(seal for seal in self.seal_rows if seal.number > after)[:limit])

    async def settled_runs(self, numbers: Sequence[int]) -> tuple[SettledRun, ...]:
        return tuple(self.runs[number] for number in sorted(numbers) if number in self.runs)

    async def ended_runs(self, uuids: Sequence[str]) -> tuple[SettledRun, ...]:
        return tuple(run for _, run in sorted(self.runs.items()) if run.run_uuid in uuids)

    async def completed_runs(self, until: int, after: int = 0, limit: int = 1000) -> tuple[int, ...]:
        ended = (run for _, run in sorted(self.runs.items()) if run.state.startswith("COMPLETED"))
        return tuple(run.run_no for run in ended if run.run_no > after and (run.completed_at or 0) <= until)[:limit]

    async def closed_spans(self, numbers: Sequence[int]) -> tuple[ClosedSpan, ...]:
        return tuple(self.spans[number] for number in sorted(numbers) if number in self.spans)

    # ---- what engines and keepers write ------------------------------------------------------------------------------

    def execute(self, *numbers: int, states: Mapping[int, str] | None = None) -> TrailRow:
        """The runs end, and a row says so."""
        number = len(self.rows) + 1
        at = START + number * 1000
        for each in numbers:
            self.runs[each] = SettledRun(each, f"uuid-{each}", (states or {}).get(each, "COMPLETED"), 1, at)
        digest = runs_digest(run_line(*self.runs[each]) for each in numbers)
        details = json.dumps(list(numbers))
        self.rows.append(TrailRow(number, None, at, "JOB_EXECUTED", None, None, "node", "OK", details, digest))
        return self.rows[-1]

    def close(self, run_no: int) -> TrailRow:
        """A pause is over, and a row says what its span covers."""
        number = len(self.rows) + 1
        span = self.spans[run_no] = ClosedSpan(run_no, f"uuid-{run_no}", "SKIPPED", START, START + 60_000, 60)
        at, details = START + number * 1000, json.dumps(span.told)
        self.rows.append(
            TrailRow(number, None, at, "SPAN_CLOSED", "job", span.run_uuid, "horae", span.state, details, None)
        )
        return self.rows[-1]

    def stop(self, run_no: int, state: str = "FAILED", *, told: bool = True) -> TrailRow:
        """The run ends otherwise, and a row says so; with its number, unless an earlier release wrote it."""
        number = len(self.rows) + 1
        at, uuid = START + number * 1000, f"uuid-{run_no}"
        self.runs[run_no] = SettledRun(run_no, uuid, state, 1, at)
        event = "JOB_CANCELLED" if state == "CANCELLED" else "JOB_FAILED"
        details = json.dumps({"reason": "no", "run_no": run_no} if told else {"reason": "no"})
        self.rows.append(TrailRow(number, None, at, event, "job", uuid, "node", state, details, None))
        return self.rows[-1]

    def forget(self, first: int, last: int) -> None:
        """Retention deletes runs, and a row says so."""
        for number in range(first, last + 1):
            self.runs.pop(number, None)
        number = len(self.rows) + 1
        details = json.dumps({"runs": [[first, last]]})
        at = START + number * 1000
        self.rows.append(TrailRow(number, None, at, "RUNS_FORGOTTEN", None, None, "system", "OK", details, None))
