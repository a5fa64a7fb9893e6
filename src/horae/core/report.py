"""The report of one run: what happened, to which task, in which try, and who stopped whom. Built from rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from horae.core.duration import format_duration
from horae.core.instant import aware, rfc3339
from horae.core.lifecycle import AttemptState, RunState, TaskState


@dataclass(frozen=True, slots=True)
class AttemptRow:
    attempt_id: str
    number: int
    state: AttemptState
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """`cancelled_by` names the task whose failure stopped this one, or whoever asked; `result` is what it returned."""

    task_run_id: str
    name: str
    state: TaskState
    failure: str = "fail_fast"
    attempts: tuple[AttemptRow, ...] = ()
    cancelled_by: str | None = None
    reason: str | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class RunRow:
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


@dataclass(frozen=True, slots=True)
class Report:
    """`lag` is started minus chosen; `duration` is completed minus started; None until there is something to say."""

    run: RunRow
    tasks: tuple[TaskRow, ...]
    lag: timedelta | None
    duration: timedelta | None

    @property
    def outcome(self) -> RunState:
        return self.run.state

    @property
    def failed_tasks(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks if task.state in (TaskState.FAILED, TaskState.TIMEOUT))

    def to_dict(self) -> dict[str, Any]:
        run = self.run
        return {
            "run_id": run.run_id,
            "job": run.job_name,
            "version": run.version,
            "origin": run.origin,
            "outcome": run.state,
            "reason": run.reason,
            "mode": run.mode,
            "failure": run.failure,
            "is_recovery": run.is_recovery,
            "replay_of": run.replay_of,
            "cancelled_by": run.cancelled_by,
            "scheduled_time": _text(run.scheduled_time),
            "chosen_time": _text(run.chosen_time),
            "started_at": _text(run.started_at),
            "completed_at": _text(run.completed_at),
            "covers_from": _text(run.covers_from),
            "covers_to": _text(run.covers_to),
            "lag_seconds": _seconds(self.lag),
            "duration_seconds": _seconds(self.duration),
            "tasks": [_task(task) for task in self.tasks],
        }

    def __str__(self) -> str:
        lines = [f"{self.run.job_name} {_text(self.run.scheduled_time)}: {self.run.state}{_why(self.run.reason)}"]
        for task in self.tasks:
            tries = f" after {len(task.attempts)} attempts" if len(task.attempts) > 1 else ""
            stopped = f", stopped by {task.cancelled_by}" if task.cancelled_by else ""
            lines.append(f"  {task.name}: {task.state}{tries}{stopped}{_why(task.reason)}")
            lines += [f"    attempt {one.number}: {one.state}{_took(one)}{_why(one.error)}" for one in task.attempts]
        return "\n".join(lines)


def build_report(run: RunRow, tasks: Sequence[TaskRow]) -> Report:
    """The report, at any stage of the run; tasks stay in the order given, attempts are put in theirs."""
    chosen = run.chosen_time if run.chosen_time is not None else run.scheduled_time
    lag = None if run.started_at is None else run.started_at - chosen
    ended = run.started_at is not None and run.completed_at is not None
    duration = run.completed_at - run.started_at if ended and run.completed_at and run.started_at else None
    ordered = tuple(
        TaskRow(
            task.task_run_id,
            task.name,
            task.state,
            task.failure,
            tuple(sorted(task.attempts, key=lambda attempt: attempt.number)),
            task.cancelled_by,
            task.reason,
            task.result,
        )
        for task in tasks
    )
    return Report(run, ordered, lag, duration)


def _task(task: TaskRow) -> dict[str, Any]:
    return {
        "task_run_id": task.task_run_id,
        "name": task.name,
        "state": task.state,
        "failure": task.failure,
        "cancelled_by": task.cancelled_by,
        "reason": task.reason,
        "result": task.result,
        "attempts": [
            {
                "attempt_id": attempt.attempt_id,
                "number": attempt.number,
                "state": attempt.state,
                "started_at": _text(attempt.started_at),
                "ended_at": _text(attempt.ended_at),
                "error": attempt.error,
            }
            for attempt in task.attempts
        ],
    }


def _text(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(aware(at))


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def _why(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _took(attempt: AttemptRow) -> str:
    if attempt.started_at is None or attempt.ended_at is None:
        return ""
    return f" in {format_duration(attempt.ended_at - attempt.started_at)}"
