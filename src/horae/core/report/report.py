"""The report of one run: its tasks, their attempts, and what stopped them.

It is built from rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from horae.core.report.rows import AttemptRow, RunReportRow, TaskRow, elapsed, task_span, working_time
from horae.core.report.summary import summary_of
from horae.core.run.attempt import one_line
from horae.core.run.lifecycle import RunState, TaskState
from horae.core.time.duration import format_duration
from horae.core.time.instant import aware, precise

__all__ = ["AttemptRow", "RunReport", "RunReportRow", "TaskRow", "build_report"]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What happened in one run. Lengths are None until they are known.

    `lag` is the first start minus the chosen time. `duration` is from the first start to the end, waits between
    attempts included. `working` is how long at least one attempt was under way. The chosen time of a run that was
    requested is the time of the request.
    """

    run: RunReportRow
    tasks: tuple[TaskRow, ...]
    lag: timedelta | None
    duration: timedelta | None
    working: timedelta | None = None

    @property
    def outcome(self) -> RunState:
        return self.run.state

    @property
    def state(self) -> RunState:
        """The same as `outcome`, under the name that run records use."""
        return self.run.state

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def reason(self) -> str | None:
        """Why the run ended as it did. For a failed run it begins with the last error."""
        return self.run.reason

    @property
    def replay_reason(self) -> str | None:
        """Why the replay was requested."""
        return self.run.replay_reason

    @property
    def lag_seconds(self) -> float | None:
        """From the chosen time to the first start."""
        return _seconds(self.lag)

    @property
    def duration_seconds(self) -> float | None:
        """From the first start to the end, waits between attempts included."""
        return _seconds(self.duration)

    @property
    def working_seconds(self) -> float | None:
        """How long at least one attempt was under way."""
        return _seconds(self.working)

    @property
    def failed_tasks(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks if task.state in (TaskState.FAILED, TaskState.TIMEOUT))

    @property
    def summary(self) -> str:
        """What happened, in a few plain sentences."""
        return summary_of(self.run, self.tasks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: times are RFC 3339 text in UTC with milliseconds, lengths are in seconds."""
        run = self.run
        return {
            "run_id": run.run_id,
            "job": run.job_name,
            "version": run.version,
            "origin": run.origin,
            "outcome": str(run.state),
            "reason": self.reason,
            "summary": self.summary,
            "mode": run.mode,
            "failure": run.failure,
            "is_recovery": run.is_recovery,
            "replay_of": run.replay_of,
            "replay_reason": self.replay_reason,
            "cancelled_by": run.cancelled_by,
            "scheduled_time": _text(run.scheduled_time),
            "chosen_time": _text(run.chosen_time),
            "started_at": _text(run.started_at),
            "completed_at": _text(run.completed_at),
            "covers_from": _text(run.covers_from),
            "covers_to": _text(run.covers_to),
            "lag_seconds": self.lag_seconds,
            "duration_seconds": self.duration_seconds,
            "working_seconds": self.working_seconds,
            "tasks": [_task(task) for task in self.tasks],
        }

    def __str__(self) -> str:
        lines = [f"{self.run.job_name} {_text(self.run.scheduled_time)}: {self.run.state}{_why(self.run.reason)}"]
        for task in self.tasks:
            tries = f" after {len(task.attempts)} attempts" if len(task.attempts) > 1 else ""
            stopped = f", stopped by {task.cancelled_by}" if task.cancelled_by else ""
            lines.append(f"  {task.name}: {task.state}{tries}{stopped}{_why(_own_reason(task))}")
            lines += [f"    attempt {one.number}: {one.state}{_took(one)}{_why(one.error)}" for one in task.attempts]
        return "\n".join(lines)


def build_report(run: RunReportRow, tasks: Sequence[TaskRow]) -> RunReport:
    """The report of a run at any stage. Tasks keep their order, attempts are sorted by number."""
    chosen = run.chosen_time if run.chosen_time is not None else run.scheduled_time
    ordered = tuple(
        replace(task, attempts=tuple(sorted(task.attempts, key=lambda attempt: attempt.number))) for task in tasks
    )
    lag, duration = elapsed(chosen, run.started_at), elapsed(run.started_at, run.completed_at)
    return RunReport(run, ordered, lag, duration, working_time(ordered))


def _task(task: TaskRow) -> dict[str, Any]:
    started, ended = task_span(task)
    return {
        "task_run_id": task.task_run_id,
        "name": task.name,
        "state": str(task.state),
        "failure": str(task.failure),
        "cancelled_by": task.cancelled_by,
        "reason": task.reason,
        "result": task.result,
        "started_at": _text(started),
        "ended_at": _text(ended),
        "duration_seconds": _seconds(elapsed(started, ended)),
        "working_seconds": _seconds(working_time([task])),
        "attempts": [
            {
                "attempt_id": attempt.attempt_id,
                "number": attempt.number,
                "state": str(attempt.state),
                "started_at": _text(attempt.started_at),
                "ended_at": _text(attempt.ended_at),
                "duration_seconds": _seconds(elapsed(attempt.started_at, attempt.ended_at)),
                "error": attempt.error,
                "traceback": attempt.traceback,
            }
            for attempt in task.attempts
        ],
    }


def _own_reason(task: TaskRow) -> str | None:
    """The task's reason, unless it only repeats the error of its last attempt."""
    said = one_line(task.attempts[-1].error or "") if task.attempts else ""
    return None if said and task.reason and task.reason.startswith(said) else task.reason


def _text(at: datetime | None) -> str | None:
    return None if at is None else precise(aware(at))


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def _why(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _took(attempt: AttemptRow) -> str:
    length = elapsed(attempt.started_at, attempt.ended_at)
    return "" if length is None else f" in {format_duration(length)}"
