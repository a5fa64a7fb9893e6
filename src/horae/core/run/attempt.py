"""Decides what follows an attempt: its task is done, retried or failed, and the other tasks go on or stop.

Retries come first. A task fails only when it has used them up, and only then its failure strategy applies:

    fail_fast         cancel the siblings that are running, skip those that have not started
    continue          the other tasks go on
    retry_on_failure  as fail_fast, but no sibling starts while the task is being retried

A task whose own settings have `continue` is spared: the failures of other tasks do not stop it. A task that has
`continue` only from its job, or from defaults, is not spared. Where the run is cancelled or times out, a spared task
still gets its turn after all other tasks have stopped, without retries, and for no longer than its `cancel_grace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.job.definition import Settings
from horae.core.run.lifecycle import FAILURES, TASK_RUNS, AttemptState, RunState, TaskState, fold
from horae.core.time.instant import aware
from horae.errors import IllegalTransition

_SHORTEST_RETRY = timedelta(seconds=1)
"""The shortest wait between retries without a limit, whatever their interval."""


LONGEST_REASON = 500
"""How many characters of an error a reason repeats. The attempt keeps the whole error."""


def after_stop(outcome: AttemptState, *, timed_out: bool, saw: bool, is_done: bool) -> AttemptState:
    """How an attempt ended that was asked to stop. `outcome` is how it would have ended otherwise.

    `timed_out`: its `task_timeout` was the reason, which overrides every other outcome. `saw`: the task noticed the
    request to stop. `is_done`: the task reported that it had finished all the same. A task that returns without having
    noticed the request has succeeded. An error that the task raises is kept with the attempt, but the attempt counts as
    cancelled, not as failed.
    """
    if timed_out:
        return AttemptState.TIMEOUT
    if outcome is AttemptState.SUCCESS and (is_done or not saw):
        return AttemptState.SUCCESS
    return AttemptState.CANCELLED


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task run after one of its attempts. PENDING: it waits until `retry_at` for the next attempt. Every other state
    is final.

    `stale`: the attempt was lost and must not be repeated, which ends the whole run FAILED_STALE.
    """

    state: TaskState
    retry_at: datetime | None = None
    reason: str | None = None
    stale: bool = False


def settle(
    outcome: AttemptState,
    error: str | None = None,
    *,
    failures: int,
    lost: int,
    settings: Settings,
    attempt_id: str,
    now: datetime,
) -> TaskOutcome:
    """Decides what becomes of a task run when one of its attempts ends.

    `error` is the attempt's error. `failures` and `lost` count the task's attempts that ended that way, this one
    included. Lost attempts have a limit of their own, `max_lost`. Raises IllegalTransition for an attempt that has not
    ended.
    """
    moment = aware(now, "now")
    match outcome:
        case AttemptState.SUCCESS:
            return TaskOutcome(TaskState.SUCCESS)
        case AttemptState.CANCELLED:
            return TaskOutcome(TaskState.CANCELLED)
        case AttemptState.FAILED | AttemptState.TIMEOUT:
            retry = settings.retry
            if retry.max_retries is None or failures <= retry.max_retries:
                wait = retry.delay(failures - 1, attempt_id)
                if retry.max_retries is None:
                    wait = max(wait, _SHORTEST_RETRY)
                return TaskOutcome(TaskState.PENDING, moment + wait, f"retry {failures}")
            ended = TaskState.FAILED if outcome is AttemptState.FAILED else TaskState.TIMEOUT
            return TaskOutcome(ended, reason=why(error, failures))
        case AttemptState.LOST:
            if settings.delivery == "at_most_once":
                return TaskOutcome(TaskState.FAILED, reason="lost, and delivered at most once", stale=True)
            if settings.max_lost is not None and lost >= settings.max_lost:
                return TaskOutcome(TaskState.FAILED, reason=f"lost {lost} times")
            return TaskOutcome(TaskState.PENDING, moment, "lost")
        case AttemptState.PENDING | AttemptState.RUNNING:
            raise IllegalTransition(f"An attempt that is {outcome} has not ended")


def why(error: str | None, failures: int) -> str | None:
    """Why a task failed: its last error on one line, and the number of attempts where there was more than one."""
    said = one_line(error or "")
    if failures < 2:
        return said or None
    return f"{said} (after {failures} attempts)" if said else f"gave up after {failures} attempts"


def one_line(text: str) -> str:
    """The first line that is not blank, cut to LONGEST_REASON characters."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of a run: its state, its failure strategy, and when its next retry is due, if it waits for one."""

    name: str
    state: TaskState
    failure: str = "fail_fast"
    attempts: int = 0
    retry_at: datetime | None = None
    is_spared: bool = False
    """Whether the task's own settings have `failure="continue"`."""
    is_held: bool = False
    """Whether the thread of an earlier attempt is still running, so that the next attempt has to wait for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", TaskState(self.state))


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next with a run: tasks by name, in order. `outcome` is set when nothing is left to do.

    `park_until` is set when no task is running and none can start before then: the run gives up its place on the node.
    """

    start: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    park_until: datetime | None = None
    outcome: RunState | None = None


def next_step(
    tasks: Sequence[TaskView],
    *,
    mode: str,
    now: datetime,
    cancelled: bool = False,
    stale: bool = False,
    spares: bool = False,
) -> Step:
    """The run's next step. `cancelled`: the run was cancelled or timed out. `stale`: it must not be tried again.

    Both stop every task. With `spares`, a cancelled run still gives its spared tasks their turn.
    """
    moment = aware(now, "now")
    if all(task.state in TASK_RUNS.terminal for task in tasks):
        ends = ((task.state, task.failure) for task in tasks)
        return Step(outcome=fold(ends, cancelled=cancelled, stale=stale))
    fatal = any(task.state in FAILURES and task.failure != "continue" for task in tasks)

    def stopped(task: TaskView) -> bool:
        if cancelled or stale:
            has_turn = task.state is TaskState.RUNNING or not task.attempts
            return stale or not (spares and task.is_spared and has_turn)
        return fatal and not task.is_spared

    cancel = tuple(task.name for task in tasks if stopped(task) and _started(task))
    skip = tuple(task.name for task in tasks if stopped(task) and task.state is TaskState.PENDING and not task.attempts)
    if stale or (cancelled and any(stopped(task) and task.state is TaskState.RUNNING for task in tasks)):
        return Step(cancel=cancel, skip=skip)
    waiting = _may_start([task for task in tasks if not stopped(task)], mode)
    start = tuple(
        task.name for task in waiting if not task.is_held and (task.retry_at is None or task.retry_at <= moment)
    )
    running = any(task.state is TaskState.RUNNING for task in tasks)
    park_until = None
    if not (start or running or cancel or skip):
        times = (moment if task.retry_at is None else task.retry_at for task in waiting)
        park_until = min(times, default=None)
    return Step(start, cancel, skip, park_until)


def _started(task: TaskView) -> bool:
    return task.state is TaskState.RUNNING or (task.state is TaskState.PENDING and task.attempts > 0)


def _may_start(tasks: list[TaskView], mode: str) -> list[TaskView]:
    """The pending tasks that are next, including those whose retry is not due yet."""
    if mode == "sequential":
        first = next((task for task in tasks if task.state not in TASK_RUNS.terminal), None)
        return [first] if first is not None and first.state is TaskState.PENDING else []
    retrying = any(task.failure == "retry_on_failure" and _retrying(task) for task in tasks)
    return [task for task in tasks if task.state is TaskState.PENDING and (task.attempts > 0 or not retrying)]


def _retrying(task: TaskView) -> bool:
    return (task.state is TaskState.PENDING and task.attempts > 0) or (
        task.state is TaskState.RUNNING and task.attempts > 1
    )
