"""Converts records of the store and of services to responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from horae.api.responses import catalog_responses, job_responses, people_responses
from horae.core.access import Grant, Principal, named_grant
from horae.core.report.report import RunReport
from horae.core.run.lifecycle import RunState
from horae.core.time.instant import EPOCH, instant, precise, rfc3339
from horae.services.doctor.doctor import DoctorReport
from horae.services.people import TrailVerification
from horae.store.protocols.people import RoleRecord, UserRecord
from horae.store.protocols.reads import AuditEntry, RecentRun
from horae.store.protocols.sessions import TokenRecord
from horae.store.protocols.store import JobRecord, NodeRecord, RunRecord

_SECOND = timedelta(seconds=1)
_STATES = {each: str(each) for each in RunState}


def time_text(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)


def precise_text(at: datetime | None) -> str | None:
    """Formats a time with milliseconds, if it has any. Starts and ends need them: 80 ms of work must not show as
    none."""
    return None if at is None else precise(at)


@lru_cache(16_384)
def _second_text(second: int) -> str:
    """Cached, because strips of runs are requested often and mostly show the same runs."""
    return rfc3339(instant(second))


def _millisecond_text(value: int) -> str:
    second, rest = divmod(value, 1_000)
    return f"{_second_text(second)[:-1]}.{rest:03}Z" if rest else _second_text(second)


# ---- jobs and runs ---------------------------------------------------------------------------------------------------


def outcome(run: RecentRun) -> job_responses.Outcome:
    run_id, state, scheduled, started, seconds = run
    begun = None if started is None else _millisecond_text(started)
    return job_responses.Outcome(run_id, _STATES[state], _second_text(scheduled // 1_000), begun, seconds)


def job(record: JobRecord, outcomes: Iterable[RecentRun] | None = None) -> job_responses.Job:
    """Converts a job to its record in lists."""
    return job_responses.Job(
        **_listed(record), outcomes=None if outcomes is None else [outcome(each) for each in outcomes]
    )


def _listed(record: JobRecord) -> dict[str, Any]:
    spec = record.definition.spec
    return {
        "name": record.name,
        "state": str(record.state),
        "next_run_time": time_text(record.next_run_time),
        "schedule": None if spec.schedule is None else str(spec.schedule),
        "timezone": None if spec.schedule is None else spec.schedule.timezone,
        "owner": record.owner,
        "version": record.version,
        "tags": list(spec.tags),
        "paused_until": time_text(record.paused_until),
        "pause_note": record.pause_note,
        "description": spec.description,
        "namespace": spec.namespace,
        "schedule_description": None if spec.schedule is None else spec.schedule.describe(),
        "fault": record.definition.fault,
    }


def whole_job(
    record: JobRecord,
    *,
    definition: Mapping[str, Any],
    texts: Mapping[str, Any],
    may: Sequence[str],
    coming: Sequence[job_responses.Coming],
    dependents: Sequence[str],
) -> job_responses.WholeJob:
    """Converts a job to its full record. `texts` are its definition as `sql`, `toml` and `krontab`."""
    spec = record.definition.spec
    moved = None
    if record.moved_slot is not None and record.moved_to is not None:
        moved = job_responses.Moved(slot=rfc3339(record.moved_slot), to=rfc3339(record.moved_to))
    return job_responses.WholeJob(
        **_listed(record),
        depends_on=list(spec.depends_on),
        run_as=spec.run_as,
        created_at=rfc3339(record.created_at),
        created_by=record.created_by,
        updated_at=rfc3339(record.updated_at),
        moved=moved,
        former=[
            job_responses.Former(version=stage.version, until=rfc3339(stage.until))
            for stage in record.former
            if stage.until > record.planned_until
        ],
        settings=record.definition.settings.to_dict(),
        definition=dict(definition),
        may=list(may),
        coming=list(coming),
        dependents=list(dependents),
        **texts,
    )


def run(record: RunRecord) -> job_responses.Run:
    length = None
    if record.started_at is not None and record.completed_at is not None:
        length = (record.completed_at - record.started_at) / _SECOND
    return job_responses.Run(
        run_id=record.run_id,
        job=record.job_name,
        state=str(record.state),
        origin=str(record.origin),
        version=record.version,
        scheduled_time=rfc3339(record.scheduled_time),
        chosen_time=precise(record.chosen_time),
        started_at=precise_text(record.started_at),
        completed_at=precise_text(record.completed_at),
        duration_seconds=length,
        retry_count=record.retry_count,
        reason=record.reason,
        waiting_for=record.waiting_for,
        waiting_detail=record.waiting_detail,
        replay_of=record.replay_of,
        cancelled_by=record.cancelled_by,
        error=record.error,
        is_recovery=record.is_recovery,
        count=record.count,
        covers_from=time_text(record.covers_from),
        covers_to=time_text(record.covers_to),
        not_before=precise_text(record.not_before),
        created_at=precise(record.created_at),
        replay_reason=record.replay_reason,
    )


def report(found: RunReport) -> job_responses.Report:
    told = found.to_dict()
    told["tasks"] = [
        job_responses.Task(**(each | {"attempts": [job_responses.Attempt(**attempt) for attempt in each["attempts"]]}))
        for each in told["tasks"]
    ]
    return job_responses.Report(**told, text=str(found))


# ---- catalog ---------------------------------------------------------------------------------------------------------


def node(record: NodeRecord, *, state: str, slots: int | None, with_details: bool) -> catalog_responses.Node:
    """Converts a node. Its own report, with host and handlers, is only for users who may see every job."""
    details = dict(record.details) if with_details else {}
    return catalog_responses.Node(
        node=record.node,
        name=record.name,
        state=state,
        started_at=rfc3339(record.started_at),
        heartbeat_at=rfc3339(record.heartbeat_at),
        running=record.running,
        slots=slots,
        host=details.pop("host", None),
        process=details.pop("pid", None),
        version=record.details.get("version"),
        handlers=[str(each).strip() for each in details.pop("handlers", ())],
        details={name: value for name, value in details.items() if name not in ("slots", "version")},
    )


def examination(found: DoctorReport) -> catalog_responses.Examination:
    return catalog_responses.Examination(
        findings=[
            catalog_responses.Finding(
                level=each.level, subject=each.subject, message=each.message, hint=each.hint, check=each.check
            )
            for each in found.findings
        ],
        jobs=found.jobs,
        nodes=found.nodes,
        waiting=found.waiting,
        checks=dict(found.checks),
    )


def audit_row(entry: AuditEntry) -> catalog_responses.AuditRow:
    return catalog_responses.AuditRow(
        number=entry.number,
        at=rfc3339(entry.at),
        event=entry.event,
        actor=entry.actor,
        outcome=entry.outcome,
        job=entry.job,
        run_id=entry.run_id,
        details=dict(entry.details),
        is_sealed=entry.is_sealed,
    )


def verification(found: TrailVerification) -> catalog_responses.Verification:
    findings = [
        catalog_responses.Tampering(
            kind=str(each.kind),
            message=each.message,
            first=each.first,
            last=each.last,
            number=each.number,
            seal=each.seal,
            run=each.run,
        )
        for each in found.findings
    ]
    return catalog_responses.Verification(
        ok=found.ok,
        rows=found.rows,
        seals=found.seals,
        keyed=found.keyed,
        codes_checked=found.is_checked,
        unsealed=found.unsealed,
        head=found.head,
        count=found.count,
        findings=findings,
    )


# ---- users, roles, tokens --------------------------------------------------------------------------------------------


def grants(given: Iterable[Grant]) -> list[str]:
    return sorted(named_grant(each) for each in given)


def me(who: Principal, *, sign_in: str, version: str) -> people_responses.Me:
    return people_responses.Me(
        name=who.name,
        is_admin=who.is_admin,
        roles=sorted(who.roles),
        grants=grants(who.grants),
        sign_in=sign_in,
        version=version,
    )


def user(record: UserRecord) -> people_responses.User:
    return people_responses.User(
        name=record.name,
        is_admin=record.is_admin,
        is_enabled=record.is_enabled,
        has_password=record.has_password,
        roles=list(record.roles),
        grants=grants(record.grants),
        # `local` has no creation date: its record has the epoch.
        created_at=rfc3339(record.created_at) if record.created_at > EPOCH else None,
    )


def role(record: RoleRecord) -> people_responses.Role:
    return people_responses.Role(
        name=record.name,
        description=record.description,
        members=list(record.members),
        grants=grants(record.grants),
        created_at=rfc3339(record.created_at),
    )


def token(record: TokenRecord, now: datetime) -> people_responses.Token:
    return people_responses.Token(
        token_id=record.token_id,
        user=record.user,
        label=record.label,
        created_at=rfc3339(record.created_at),
        expires_at=time_text(record.expires_at),
        revoked_at=time_text(record.revoked_at),
        is_live=record.is_live(now),
    )
