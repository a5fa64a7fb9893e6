"""Converts between rows and records: milliseconds and datetimes, JSON text and values, a definition's columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from horae.core.access import role_uuid
from horae.core.declarative import ABSENT_NOTES, state_before_absence
from horae.core.job import ids
from horae.core.job.definition import JobSpec
from horae.core.run.job_view import JobView, defined_late
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun
from horae.core.run.pause import PauseRow
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.time.duration import format_duration, parse_duration
from horae.core.time.instant import EPOCH, rfc3339, shifted
from horae.errors import InvalidDefinition, shown
from horae.store.driver import Row
from horae.store.records import Definition, Origin, RunRecord

LARGEST_INTEGER = 2**31 - 1
"""The largest value of an integer column or setting on PostgreSQL."""
_UNPLACED = (None, None, None)


def milliseconds(at: datetime) -> int:
    """Milliseconds since 1970. Finer parts are dropped."""
    elapsed = at - EPOCH
    return elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000


def optional_milliseconds(at: datetime | None) -> int | None:
    return None if at is None else milliseconds(at)


def moment(value: int) -> datetime:
    return EPOCH + timedelta(milliseconds=value)


def optional_moment(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(milliseconds=value)


def length(value: timedelta | None) -> int | None:
    """A duration in milliseconds."""
    return None if value is None else value // timedelta(milliseconds=1)


_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)


def to_json(value: Any) -> str:
    """Compact JSON with sorted keys: equal values give equal text."""
    return _JSON.encode(value)


def optional_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def payload_text(name: str, payload: Any) -> str | None:
    """Returns a payload as the catalog stores it. Raises InvalidDefinition, with the job's name, where it is not
    JSON."""
    if payload is None:
        return None
    try:
        text = to_json(payload)
        text.encode()
        return text
    except (TypeError, ValueError) as error:
        raise InvalidDefinition(
            f"Job {shown(name)}: its payload is not JSON: {error}",
            hint="Use dicts, lists, text, numbers, true, false, null.",
        ) from error


def uuid_of(run_id: str) -> str:
    """The uuid in a run's id; another kind of id is refused."""
    return ids.checked_id(run_id, ids.RUN)[len(ids.RUN) :]


def deadline_at(chosen: datetime, deadline: timedelta | None) -> int | None:
    """The last millisecond at which the run may start: deadlines are compared in whole seconds."""
    return None if deadline is None else milliseconds(shifted(chosen, deadline).replace(microsecond=0)) + 999


def definition_text(spec: JobSpec) -> str:
    """A definition's text, as a version stores it."""
    return to_json(spec.to_dict())


def definition_digest(definition: str, defaults: str | None) -> str:
    """The digest that a registration from code is compared by: of its text and that of the scheduler's defaults."""
    return sha256(f"[{definition},{defaults or '{}'}]".encode()).hexdigest()


def defaults_text(defaults: Mapping[str, Any]) -> str | None:
    # A spec writes its settings as plain values; the scheduler's defaults have the same form.
    return to_json(JobSpec("defaults", None, settings=defaults).to_dict().get("settings", {})) if defaults else None


def schedule_text(schedule: Schedule | None) -> str:
    """The schedule as a user writes it. `cb_schedules` reads it back where it can."""
    match schedule:
        case None:
            return ""
        case Cron():
            return schedule.expr
        case Every():
            return f"every {format_duration(parse_duration(schedule.interval))}"
        case Iso8601():
            return schedule.text
        case Once():
            return f"once {rfc3339(schedule.at)}"
        case _:
            return to_json(schedule.to_dict())


def job_columns(definition: Definition) -> tuple[Any, ...]:
    """The columns of `sys.jobs` that repeat parts of the definition for users who read SQL.

    In the order of the statements `insert_jobs` and `change_jobs`. The shards of a SHARD_SET are a JSON list in
    partition_expression.
    """
    spec, settings = definition.spec, definition.settings
    schedule, task = spec.schedule, spec.tasks[0]
    kind = task.kind if len(spec.tasks) == 1 else "TASKS"
    start, end = getattr(schedule, "start", None), getattr(schedule, "end", None)
    interval = parse_duration(schedule.interval) // timedelta(seconds=1) if isinstance(schedule, Every) else None
    drop = settings.on_completion == "drop" or (isinstance(schedule, Once) and schedule.drop)
    timeout = settings.execution_timeout
    return (
        spec.description or None,
        kind,
        task.handler if kind == "SQL" else None,
        task.handler if kind == "EXTERNAL" else None,
        _schedule_kind(schedule),
        schedule.expr if isinstance(schedule, Cron) else None,
        interval,
        optional_milliseconds(schedule.at if isinstance(schedule, Once) else start),
        optional_milliseconds(end),
        "UTC" if schedule is None else schedule.timezone,
        "DROP" if drop else "PRESERVE",
        settings.retry.max_retries,
        min(parse_duration(settings.retry.interval) // timedelta(seconds=1), LARGEST_INTEGER),
        None if timeout is None else min(timeout // timedelta(seconds=1), LARGEST_INTEGER),
        spec.namespace,
        to_json(list(spec.tags)) if spec.tags else None,
        schedule_text(schedule),
        spec.job_class,
        str(procedure_uuid(task.handler)) if kind == "PROCEDURE" else None,
        *(_UNPLACED if spec.partition is None else _placed(spec.partition)),
        None if spec.run_as is None else str(role_uuid(spec.run_as)),
    )


def procedure_uuid(name: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"urn:horae:procedure:{name}")


def _placed(partition: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    strategy, shards = partition["strategy"], partition.get("shards")
    if strategy == "SINGLE_SHARD":
        return strategy, partition["shards"][0], None
    return strategy, None, partition.get("expression") if shards is None else to_json(shards)


def plain_start(definition: Definition) -> str | None:
    """What one statement needs to start a run, as JSON: its task's name and its timeout. None where there are several
    tasks."""
    tasks = definition.spec.tasks
    return _start(tasks[0].name, length(definition.settings.execution_timeout)) if len(tasks) == 1 else None


@lru_cache(maxsize=1024)
def _start(task: str, timeout: int | None) -> str:
    """Cached, because many jobs have the same values."""
    return to_json([task, timeout])


@lru_cache(maxsize=1024)
def required(handlers: frozenset[str]) -> str | None:
    """The handlers that a node must have, as rows store them."""
    return to_json(sorted(handlers)) if handlers else None


def _schedule_kind(schedule: Schedule | None) -> str:
    match schedule:
        case None:
            return "NONE"
        case Cron():
            return "CRON"
        case Once():
            return "AT"
        case Every():
            return "EVERY"
        case Iso8601():
            return "ISO8601"
        case Union():
            return "UNION"
        case _:
            return "CUSTOM"


def active_run(row: Row) -> ActiveRun:
    """Builds an ActiveRun from a row of `active_runs`: run uuid, state, scheduled time, chosen time, waiting_for,
    is_recovery, whether it began and is to be tried again, the node on which a thread of it works."""
    uuid, state, scheduled, chosen, waiting_for, is_recovery, begun, thread = row
    parked, judged = waiting_for == "retry", state == "PENDING" and waiting_for != "window"
    at = moment(scheduled), moment(chosen)
    return ActiveRun(
        ids.RUN + uuid, RunState(state), *at, parked, bool(is_recovery), judged, bool(begun), thread=thread
    )


def job_view(
    job: JobRow, definition: Definition, active: tuple[ActiveRun, ...], newest_paused: PauseRow | None = None
) -> JobView:
    """Builds core's view of a job. The caller must have checked that there is a schedule."""
    schedule, own = definition.schedule, definition.spec.schedule
    assert schedule is not None
    return JobView(
        job.name,
        schedule,
        definition.settings,
        moment(job.planned_until),
        JobState(job.state),
        optional_moment(job.paused_until),
        optional_moment(job.moved_slot),
        optional_moment(job.moved_to),
        optional_moment(job.covered_until),
        bool(job.first_seen) and own is not None and defined_late(own, moment(job.created_at)),
        active,
        definition.former,
        newest_paused,
    )


class JobRow:
    """A job's row while a verb works on it. Mutable, in the order of `lock_jobs`. `save_jobs` writes it back."""

    __slots__ = (
        "covered_until",
        "created_at",
        "first_seen",
        "last_enqueued_at",
        "moved_slot",
        "moved_to",
        "name",
        "namespace",
        "next_run_time",
        "pause_note",
        "paused_until",
        "planned_until",
        "registered",
        "state",
        "updated_at",
        "uuid",
        "version",
        "wake_at",
    )

    registered: str | None

    def __init__(self, row: Row) -> None:
        (
            self.uuid,
            self.name,
            self.version,
            self.state,
            self.planned_until,
            self.wake_at,
            self.first_seen,
            self.paused_until,
            self.moved_slot,
            self.moved_to,
            self.covered_until,
            self.next_run_time,
            self.last_enqueued_at,
            self.pause_note,
            self.namespace,
            self.created_at,
            self.updated_at,
            self.registered,
        ) = row

    @property
    def asleep(self) -> bool:
        """Whether it is a declarative task that is no longer registered."""
        return state_before_absence(self.state, self.pause_note) is not None

    def fall_asleep(self) -> None:
        self.pause_note = ABSENT_NOTES[JobState(self.state)]
        self.state = "DISABLED"
        self.wake_at = self.next_run_time = None

    def wake_up(self) -> None:
        """Restores the state that it had before it fell asleep."""
        self.state = str(state_before_absence(self.state, self.pause_note) or self.state)
        self.pause_note = None

    def saved(self) -> tuple[Any, ...]:
        """The values of the statement `save_jobs`, in its order."""
        return (
            self.uuid,
            self.state,
            self.planned_until,
            self.wake_at,
            bool(self.first_seen),
            self.paused_until,
            self.moved_slot,
            self.moved_to,
            self.covered_until,
            self.next_run_time,
            self.last_enqueued_at,
            self.pause_note,
            self.updated_at,
        )


def run_record(row: Row) -> RunRecord:
    """Builds a record from the run's columns, as `list_runs` and `run_by_uuid` select them."""
    (
        uuid, name, state, scheduled, chosen, origin, version, fence, created, key, not_before, waiting_for, started,
        completed, owner, reason, is_recovery, covers_from, covers_to, count, replay_of, cancel_at, cancelled_by,
        retries, replay_reason, error, payload,
    ) = row  # fmt: skip
    return RunRecord(
        ids.RUN + uuid,
        name,
        RunState(state),
        moment(scheduled),
        moment(chosen),
        Origin(origin),
        version,
        fence,
        moment(created),
        key,
        optional_moment(not_before),
        waiting_for,
        optional_moment(started),
        optional_moment(completed),
        owner,
        reason,
        bool(is_recovery),
        optional_moment(covers_from),
        optional_moment(covers_to),
        count,
        None if replay_of is None else ids.RUN + replay_of,
        optional_moment(cancel_at),
        cancelled_by,
        retries,
        optional_json(payload),
        error,
        replay_reason=replay_reason,
    )
