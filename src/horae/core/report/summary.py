"""Summarizes a run's report in a few plain sentences.

They say how the run ended, how often its tasks were tried, and which failure stopped which task.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from horae.core.report.rows import AttemptRow, RunReportRow, TaskRow, between, elapsed, working_time
from horae.core.run.attempt import one_line
from horae.core.run.lifecycle import FAILURES, RUNS, AttemptState, RunState, TaskState
from horae.core.time.duration import format_duration

_ENDED = {
    RunState.COMPLETED: "Completed",
    RunState.COMPLETED_WITH_ERRORS: "Completed with errors",
    RunState.FAILED: "Failed",
    RunState.FAILED_STALE: "Failed, and may not be tried again,",
    RunState.CANCELLED: "Was cancelled",
}
_UNSTARTED = {
    RunState.SKIPPED: "Was skipped",
    RunState.MISSED: "Was missed",
    RunState.CANCELLED: "Was cancelled before it started",
    RunState.UNSCHEDULABLE: "Could not be scheduled",
    RunState.FAILED: "Failed before it started",
    RunState.PENDING: "Has not started",
    RunState.QUEUED: "Has not started: it stands in line",
}
_TRIED = {
    AttemptState.FAILED: "failed",
    AttemptState.TIMEOUT: "timed out",
    AttemptState.LOST: "was lost with its node",
    AttemptState.CANCELLED: "was interrupted",
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_MOST_WAITS = 5


def summary_of(run: RunReportRow, tasks: Sequence[TaskRow]) -> str:
    """Sentences about a run at any stage. Tasks that succeeded at the first attempt are not named."""
    failed = frozenset(task.name for task in tasks if task.state in FAILURES)
    parts = [part for part in (_task(task, failed) for task in tasks) if part]
    sentences = [_run(run, tasks)]
    if parts:
        sentences.append("; ".join(parts) + ".")
    if run.replay_of is not None:
        why = f": {one_line(run.replay_reason)}" if run.replay_reason else ""
        sentences.append(f"It is a replay of {run.replay_of}{why}.")
    return " ".join(sentences)


def _run(run: RunReportRow, tasks: Sequence[TaskRow]) -> str:
    # An error is reported with its task.
    errors = [attempt.error for task in tasks for attempt in task.attempts if attempt.error]
    is_error = any((run.reason or "").startswith(one_line(error)) for error in errors)
    why = f": {one_line(run.reason)}" if run.reason and not is_error else ""
    if run.started_at is None:
        return f"{_UNSTARTED.get(run.state, str(run.state))}{why}."
    if run.state is RunState.RUNNING:
        return "Is running."
    if run.state not in RUNS.terminal:
        return "Waits to go on."
    length, worked = elapsed(run.started_at, run.completed_at), working_time(tasks)
    after = "" if length is None else f" after {_length(length)}"
    if length is not None and worked is not None and length - worked >= timedelta(seconds=1):
        after += f", {_length(worked)} of it at work"
    return f"{_ENDED.get(run.state, str(run.state))}{after}{why}."


def _task(task: TaskRow, failed: frozenset[str]) -> str:
    """What to report of one task; empty for a task that succeeded at its first attempt, or has not started."""
    stopped = _stopped(task, failed)
    before = task.attempts if task.state in (TaskState.PENDING, *FAILURES) else task.attempts[:-1]
    parts = _tries(before)
    if waits := _waits(task.attempts):
        parts.append(waits)
    count = len(task.attempts)
    match task.state:
        case TaskState.SUCCESS if count > 1:
            parts.append(f"succeeded at the {_ordinal(count)} attempt")
        case TaskState.RUNNING if count > 1:
            parts.append(f"is at its {_ordinal(count)} attempt")
        case TaskState.PENDING if count:
            parts.append("waits to be tried again")
        case TaskState.FAILED | TaskState.TIMEOUT if count > 1:
            parts.append(f"was given up after {count} attempts")
        case TaskState.FAILED | TaskState.TIMEOUT if not count:
            parts.append("failed" + (f" ({one_line(task.reason)})" if task.reason else ""))
        case _:
            pass
    if stopped:
        parts.append(stopped)
    return f"{task.name} {', '.join(parts)}" if parts else ""


def _stopped(task: TaskRow, failed: frozenset[str]) -> str:
    verb = {TaskState.CANCELLED: "was cancelled", TaskState.SKIPPED: "was skipped"}.get(task.state)
    if verb is None:
        return ""
    if task.cancelled_by in failed:
        return f"{verb} because {task.cancelled_by} failed"
    return f"{verb} ({one_line(task.cancelled_by)})" if task.cancelled_by else verb


def _tries(attempts: Sequence[AttemptRow]) -> list[str]:
    """The attempts grouped by outcome, each group with its last error."""
    kinds: dict[AttemptState, list[AttemptRow]] = {}
    for attempt in attempts:
        if attempt.state in _TRIED:
            kinds.setdefault(attempt.state, []).append(attempt)
    told = []
    for state, tries in kinds.items():
        error = next((attempt.error for attempt in reversed(tries) if attempt.error), None)
        why = f" ({one_line(error)})" if error else ""
        # An attempt that a node reports as lost has an error; one that was lost with its node has none.
        what = "was lost" if state is AttemptState.LOST and error else _TRIED[state]
        told.append(f"{what}{_times(len(tries))}{why}")
    return told


def _waits(attempts: Sequence[AttemptRow]) -> str:
    gaps = [each for each in map(between, attempts, attempts[1:]) if each]
    if not gaps:
        return ""
    if len(gaps) > _MOST_WAITS:
        return f"waited {len(gaps)} times, {_length(sum(gaps, timedelta()))} in all"
    lengths = [_length(each) for each in gaps]
    return f"waited {' and '.join(', '.join(lengths).rsplit(', ', 1))}"


def _times(count: int) -> str:
    return {1: "", 2: " twice"}.get(count, f" {count} times")


def _ordinal(number: int) -> str:
    return _ORDINALS[number - 1] if number <= len(_ORDINALS) else f"{number}th"


def _length(length: timedelta) -> str:
    """The length rounded to whole seconds from ten seconds on."""
    if length >= timedelta(seconds=10):
        length = timedelta(seconds=round(length.total_seconds()))
    return format_duration(length)
