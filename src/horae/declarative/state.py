"""Reads declarative tasks back from the catalog and checks every field, since other programs may have written it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from horae.core.declarative import HANDLER, DeclaredTask, task_name
from horae.core.run.lifecycle import JobState
from horae.core.schedule.schedules import Cron
from horae.core.time.duration import parse_duration
from horae.core.time.instant import EPOCH
from horae.declarative.errors import (
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
)
from horae.errors import HoraeError

AWAITING_RUN, RUNNING, AWAITING_RETRY = "AwaitingRun", "Running", "AwaitingRetry"


@dataclass(frozen=True, slots=True)
class TaskState(Mapping[str, Any]):
    """The state of one task and the times of its attempts. Readable as attributes and as a mapping."""

    name: str
    cronExpression: str  # noqa: N815 - the specification's name, as are the others
    retryDelay: timedelta  # noqa: N815
    state: str
    """AwaitingRun, Running or AwaitingRetry."""
    registered: bool
    """False for a task that is no longer registered: it is dormant."""
    lastAttemptAt: datetime | None = None  # noqa: N815
    lastSuccessAt: datetime | None = None  # noqa: N815
    pendingRetryUntil: datetime | None = None  # noqa: N815

    def __getitem__(self, key: str) -> Any:
        if key not in _NAMES:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


_NAMES = tuple(each.name for each in fields(TaskState))


def read_task(task: DeclaredTask) -> TaskState:
    """Converts a task from the catalog's record. Raises TaskTryDeserializeError."""
    name = task_name(task.job_name)
    definition = _definition(name, task.definition)
    schedule = _part(name, definition, "schedule", dict, "object")
    expression = _part(name, schedule, "expr", str, "string", called="cronExpression")
    _check_cron(name, schedule, expression)
    settings = _part(name, definition, "settings", dict, "object")
    retry = _part(name, settings, "retry", dict, "object")
    delay = _delay(name, _part(name, retry, "interval", str, "string", called="retryDelay"))
    tasks = _part(name, definition, "tasks", list, "array")
    if len(tasks) != 1 or not isinstance(tasks[0], dict) or tasks[0].get("handler") != HANDLER:
        raise TaskInvalidStructureError(name, tasks, "it does not have the one task it is to have")
    if task.state not in tuple(JobState):
        raise TaskInvalidValueError(name, "state", task.state, f"must be one of {', '.join(JobState)}")
    state = RUNNING if task.owner is not None else AWAITING_RETRY if task.retry_ms is not None else AWAITING_RUN
    return TaskState(
        name,
        expression,
        delay,
        state,
        not task.asleep,
        _time(name, "lastAttemptAt", task.attempted_ms),
        _time(name, "lastSuccessAt", task.succeeded_ms),
        _time(name, "pendingRetryUntil", task.retry_ms),
    )


def _time(task: str, field: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if type(value) is not int:
        raise TaskInvalidTypeError(task, field, value, "integer")
    try:
        return EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise TaskInvalidValueError(task, field, value, "is outside the calendar") from error


def _definition(task: str, text: str | None) -> dict[str, Any]:
    if text is None:
        raise TaskMissingFieldError(task, "definition")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise TaskInvalidStructureError(task, text, "its definition is no JSON") from error
    if not isinstance(value, dict):
        raise TaskInvalidStructureError(task, value, "its definition is no object")
    return value


def _part(task: str, values: Mapping[str, Any], key: str, kind: type, expected: str, called: str | None = None) -> Any:
    field = called or key
    if key not in values:
        raise TaskMissingFieldError(task, field)
    if not isinstance(values[key], kind):
        raise TaskInvalidTypeError(task, field, values[key], expected)
    return values[key]


def _check_cron(task: str, schedule: Mapping[str, Any], expression: str) -> None:
    zone = schedule.get("tz", "UTC")
    if not isinstance(zone, str):
        raise TaskInvalidTypeError(task, "timezone", zone, "string")
    try:
        Cron(expression, tz=zone, dialect="posix", fold="both")
    except HoraeError as error:
        raise TaskInvalidValueError(task, "cronExpression", expression, error.message) from error


def _delay(task: str, text: str) -> timedelta:
    try:
        return parse_duration(text, name="retryDelay")
    except HoraeError as error:
        raise TaskInvalidValueError(task, "retryDelay", text, error.message) from error
