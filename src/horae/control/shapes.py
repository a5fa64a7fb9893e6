"""Records as plain values, in the one form that every surface shows: `--json`, and whoever asks over a wire."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from horae.core.access import Grant, named_grant
from horae.core.instant import EPOCH, rfc3339
from horae.security.trail import Verification
from horae.store.port import JobRecord, RunRecord
from horae.store.vault import RoleRecord, UserRecord


def job_shape(job: JobRecord) -> dict[str, Any]:
    """A job as lists have it."""
    spec = job.definition.spec
    return {
        "name": job.name,
        "state": str(job.state),
        "next_run_time": _time(job.next_run_time),
        "schedule": None if spec.schedule is None else str(spec.schedule),
        "timezone": None if spec.schedule is None else spec.schedule.timezone,
        "owner": job.owner,
        "version": job.version,
        "tags": list(spec.tags),
        "paused_until": _time(job.paused_until),
        "pause_note": job.pause_note,
    }


def whole_job_shape(job: JobRecord) -> dict[str, Any]:
    """Everything about a job, its definition included."""
    spec = job.definition.spec
    moved = None
    if job.moved_slot is not None and job.moved_to is not None:
        moved = {"slot": rfc3339(job.moved_slot), "to": rfc3339(job.moved_to)}
    return job_shape(job) | {
        "description": spec.description,
        "schedule_description": None if spec.schedule is None else spec.schedule.describe(),
        "namespace": spec.namespace,
        "depends_on": list(spec.depends_on),
        "run_as": spec.run_as,
        "created_at": rfc3339(job.created_at),
        "created_by": job.created_by,
        "updated_at": rfc3339(job.updated_at),
        "moved": moved,
        "settings": job.definition.settings.to_dict(),
        "definition": spec.to_dict(),
    }


def run_shape(run: RunRecord) -> dict[str, Any]:
    length = None
    if run.started_at is not None and run.completed_at is not None:
        length = (run.completed_at - run.started_at) / timedelta(seconds=1)
    return {
        "run_id": run.run_id,
        "job": run.job_name,
        "state": str(run.state),
        "origin": str(run.origin),
        "version": run.version,
        "scheduled_time": rfc3339(run.scheduled_time),
        "chosen_time": rfc3339(run.chosen_time),
        "started_at": _time(run.started_at),
        "completed_at": _time(run.completed_at),
        "duration_seconds": length,
        "retry_count": run.retry_count,
        "reason": run.reason,
        "waiting_for": run.waiting_for,
        "replay_of": run.replay_of,
        "cancelled_by": run.cancelled_by,
        "error": run.error,
    }


def user_shape(user: UserRecord) -> dict[str, Any]:
    return {
        "name": user.name,
        "is_admin": user.is_admin,
        "is_enabled": user.is_enabled,
        "has_password": user.has_password,
        "roles": list(user.roles),
        "grants": _grants(user.grants),
        # Whoever opens the store was there before there was a time: that is no date to show.
        "created_at": rfc3339(user.created_at) if user.created_at > EPOCH else None,
    }


def role_shape(role: RoleRecord) -> dict[str, Any]:
    return {
        "name": role.name,
        "description": role.description,
        "members": list(role.members),
        "grants": _grants(role.grants),
        "created_at": rfc3339(role.created_at),
    }


def verification_shape(found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "rows": found.rows,
        "seals": found.seals,
        "unsealed": found.unsealed,
        "head": found.head,
        "count": found.count,
        "findings": [
            {
                "kind": str(each.kind),
                "message": each.message,
                "first": each.first,
                "last": each.last,
                "number": each.number,
                "seal": each.seal,
                "run": each.run,
            }
            for each in found.findings
        ],
    }


def _grants(grants: tuple[Grant, ...]) -> list[str]:
    return sorted(named_grant(each) for each in grants)


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
