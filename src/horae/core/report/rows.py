"""The rows that a report is built from, and the durations that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.run.lifecycle import AttemptState, RunState, TaskState


@dataclass(frozen=True, slots=True)
class AttemptRow:
    attempt_id: str
    number: int
    state: AttemptState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    traceback: str | None = None
    """Where the attempt failed; for a program, the last lines that it printed."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task of the run. `cancelled_by` names the task whose failure stopped this one, or the user who cancelled it.
    `result` is what the task returned."""

    task_run_id: str
    name: str
    state: TaskState
    failure: str = "fail_fast"
    attempts: tuple[AttemptRow, ...] = ()
    cancelled_by: str | None = None
    reason: str | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class RunReportRow:
    run_id: str
    job_name: str
    state: RunState
    scheduled_time: datetime
    chosen_time: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    version: int = 1
    origin: str = "SCHEDULE"
    mode: str = "sequential"
    failure: str = "fail_fast"
    is_recovery: bool = False
    covers_from: datetime | None = None
    covers_to: datetime | None = None
    replay_of: str | None = None
    cancelled_by: str | None = None
    reason: str | None = None
    """Why the run ended as it did."""
    replay_reason: str | None = None
    """Why the replay was requested, where the run is one."""


def elapsed(since: datetime | None, until: datetime | None) -> timedelta | None:
    """The time from one moment to the other; None where either is unknown."""
    return None if since is None or until is None else until - since


def between(earlier: AttemptRow, later: AttemptRow) -> timedelta | None:
    """How long a task waited between two attempts; None where it did not wait, or the times are unknown."""
    waited = elapsed(earlier.ended_at, later.started_at)
    return waited if waited is not None and waited > timedelta(0) else None


def task_span(task: TaskRow) -> tuple[datetime | None, datetime | None]:
    """When the task's first attempt started, and when its last one ended. The end is None while another attempt may
    follow."""
    started = min((each.started_at for each in task.attempts if each.started_at is not None), default=None)
    if task.state in (TaskState.PENDING, TaskState.RUNNING):
        return started, None
    return started, max((each.ended_at for each in task.attempts if each.ended_at is not None), default=None)


def working_time(tasks: Sequence[TaskRow]) -> timedelta | None:
    """How long at least one attempt of these tasks was under way. Attempts in parallel count once, and waits do not
    count. Attempts that have not ended are ignored; None where none has ended."""
    stretches = sorted(
        (each.started_at, each.ended_at)
        for task in tasks
        for each in task.attempts
        if each.started_at is not None and each.ended_at is not None
    )
    if not stretches:
        return None
    worked, reached = timedelta(0), stretches[0][0]
    for started, ended in stretches:
        worked += max(ended - max(started, reached), timedelta(0))
        reached = max(reached, ended)
    return worked
