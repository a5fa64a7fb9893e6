"""Decides how a run goes on, from the states of its tasks and the attempts that ended.

`advance` is called when a run starts, when its attempts are settled, and when it is released or taken over from a dead
node. It asks `attempt.settle` for each end and `attempt.next_step` for the whole group, until nothing changes any more:
tasks that never started are skipped, waiting retries are cancelled, and then the run may have ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.job.definition import Settings
from horae.core.run.attempt import TaskOutcome, TaskView, next_step, settle
from horae.core.run.lifecycle import FAILURES, AttemptState, RunState, TaskState


class TaskProgress(NamedTuple):
    """One task run. `attempts` is the number of its latest attempt, which is under way while the task is RUNNING."""

    position: int
    name: str
    state: TaskState
    attempts: int = 0
    failures: int = 0
    lost: int = 0
    retry_at: datetime | None = None
    reason: str | None = None
    cancelled_by: str | None = None


class EndedAttempt(NamedTuple):
    """One attempt that ended: the task by its position, the attempt by its number."""

    position: int
    number: int
    state: AttemptState
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """What to write. `tasks` are those that changed, `ends` the attempts that counted; an outdated one does not.

    `starts` are (position, number) of attempts to record RUNNING. `cancels` are positions whose attempts are to be
    stopped; their ends are reported later. Exactly one of three things holds: the run has ended (`outcome`), it waits
    (`park_until`; with `for_thread` also until the thread of an earlier attempt ends), or one of its tasks is under
    way. In the last case `wake_at` is when the first retry that waits beside it is due; None: no retry waits.
    """

    tasks: tuple[TaskProgress, ...] = ()
    ends: tuple[EndedAttempt, ...] = ()
    starts: tuple[tuple[int, int], ...] = ()
    cancels: tuple[int, ...] = ()
    outcome: RunState | None = None
    park_until: datetime | None = None
    reason: str | None = None
    wake_at: datetime | None = None
    for_thread: bool = False


def first_starts(count: int, mode: str) -> range:
    """The positions of the tasks that a run begins with."""
    return range(count if mode == "parallel" else min(count, 1))


def stop_allowance(settings: Settings, task_settings: Sequence[Settings], spared: Iterable[int]) -> timedelta:
    """How long a run that is asked to stop may take: the longest `cancel_grace` of its tasks, and for each spared task
    twice its own, for its turn and for stopping after it."""
    graces = [each.cancel_grace for each in task_settings]
    return sum((2 * graces[position] for position in spared), max(graces, default=settings.cancel_grace))


def advance(
    tasks: Sequence[TaskProgress],
    settings: Settings,
    task_settings: Sequence[Settings],
    ends: Sequence[EndedAttempt],
    now: datetime,
    *,
    spared: Container[int],
    held: Container[int] = (),
    attempt_ids: Mapping[int, str] | None = None,
    stop: str | None = None,
    release: bool = False,
    start: bool = True,
) -> Advance:
    """Decides how the run goes on.

    `spared` are the positions of tasks whose own settings have `continue`. `held` are the positions of tasks of which
    an earlier thread is still running: they are not tried again before it has ended.

    `attempt_ids` gives the id of each ended attempt by position. Retry jitter is derived from it; without jitter none
    is needed. `stop` ends the run for that reason unless it ends by itself. `release` releases the run: attempts that
    are under way, or were stopped for the release, end CANCELLED and count as no try. `start=False` starts nothing: a
    run that could go on waits until now instead, and spared tasks get no turn after a stop.
    """
    group = _Group(tasks, settings, task_settings, spared, held, now)
    for end in ends:
        if not release or end.state is not AttemptState.CANCELLED:
            group.end(end, (attempt_ids or {}).get(end.position, ""))
    if release:
        group.hand_back()
    return group.finish(stop, start=start and not release)


class _Group:
    """The tasks of one run while it is decided how they go on."""

    def __init__(
        self,
        tasks: Sequence[TaskProgress],
        settings: Settings,
        task_settings: Sequence[Settings],
        spared: Container[int],
        held: Container[int],
        now: datetime,
    ) -> None:
        self.tasks = list(tasks)
        self.before = list(tasks)
        self.settings = settings
        self.task_settings = task_settings
        self.spared = spared
        self.held = held
        self.now = now
        self.ends: list[EndedAttempt] = []
        self.stale = False

    def end(self, end: EndedAttempt, attempt_id: str) -> None:
        """Takes one attempt's end into account, unless the task has moved on since."""
        index = next((i for i, task in enumerate(self.tasks) if task.position == end.position), None)
        if index is None:
            return
        task = self.tasks[index]
        if task.state is not TaskState.RUNNING or task.attempts != end.number:
            return
        failures = task.failures + (end.state in (AttemptState.FAILED, AttemptState.TIMEOUT))
        lost = task.lost + (end.state is AttemptState.LOST)
        own = self._settings_of(task)
        if own is not self.settings:
            own = replace(own, delivery=self.settings.delivery, max_lost=self.settings.max_lost)
        outcome: TaskOutcome = settle(
            end.state, end.error, failures=failures, lost=lost, settings=own, attempt_id=attempt_id, now=self.now
        )
        self.stale = self.stale or outcome.stale
        self.ends.append(end)
        self.tasks[index] = task._replace(
            state=outcome.state, failures=failures, lost=lost, retry_at=outcome.retry_at, reason=outcome.reason
        )

    def hand_back(self) -> None:
        """Ends running attempts without counting them. Their tasks wait for their next turn."""
        for index, task in enumerate(self.tasks):
            if task.state is TaskState.RUNNING:
                self.ends.append(EndedAttempt(task.position, task.attempts, AttemptState.CANCELLED))
                self.tasks[index] = task._replace(state=TaskState.PENDING, reason="released")

    def finish(self, stop: str | None, *, start: bool) -> Advance:
        self._name_culprit(stop)
        # A stop that has ended tasks stays in force while spared tasks have their turn.
        stopped = stop is not None and any(task.cancelled_by == stop for task in self.before)
        while True:
            views = [self._view(task) for task in self.tasks]
            step = next_step(
                views, mode=self.settings.mode, now=self.now, cancelled=stopped, stale=self.stale, spares=start
            )
            if step.outcome is not None:
                return self._done(step.outcome, stop if stopped or step.outcome is RunState.CANCELLED else None)
            if stop is not None and not stopped:
                # Applied only here, because a request to stop has no effect after the last task has ended.
                stopped = True
                continue
            if not self._drop(step.skip, TaskState.SKIPPED, stop) | self._drop(step.cancel, TaskState.CANCELLED, stop):
                break
        cancels = tuple(task.position for task in self.tasks if task.name in step.cancel)
        park_until = step.park_until
        starts: list[tuple[int, int]] = []
        if step.start and not start:
            running = any(task.state is TaskState.RUNNING for task in self.tasks)
            park_until = None if running else self.now
        elif step.start:
            starts = self._start(step.start)
        wake_at = self._next_retry() if park_until is None else None
        for_thread = park_until is not None and any(self._is_held(task) for task in self.tasks)
        changed, ends = self._changed(), tuple(self.ends)
        return Advance(changed, ends, tuple(starts), cancels, None, park_until, wake_at=wake_at, for_thread=for_thread)

    def _settings_of(self, task: TaskProgress) -> Settings:
        """The task's own settings, or the run's where the definition has no such task: it may stand in for a definition
        that cannot be read."""
        return self.task_settings[task.position] if task.position < len(self.task_settings) else self.settings

    def _is_held(self, task: TaskProgress) -> bool:
        return task.state is TaskState.PENDING and task.position in self.held

    def _next_retry(self) -> datetime | None:
        """When the first retry that waits beside running tasks may start, without those that wait for a thread. None in
        sequential mode, where no task waits beside another that runs."""
        if self.settings.mode != "parallel":
            return None
        waiting = (task.retry_at for task in self.tasks if task.state is TaskState.PENDING and not self._is_held(task))
        return min((at for at in waiting if at is not None), default=None)

    def _view(self, task: TaskProgress) -> TaskView:
        failure = self._settings_of(task).failure
        spared, held = task.position in self.spared, self._is_held(task)
        return TaskView(task.name, task.state, failure, task.attempts, task.retry_at, spared, held)

    def _drop(self, names: Sequence[str], state: TaskState, stop: str | None) -> bool:
        """Ends the named tasks that are not under way; returns whether there were any."""
        dropped = False
        for index, task in enumerate(self.tasks):
            if task.name in names and task.state is TaskState.PENDING:
                self.tasks[index] = task._replace(state=state, retry_at=None, cancelled_by=stop or self._culprit())
                dropped = True
        return dropped

    def _name_culprit(self, stop: str | None) -> None:
        """Records for each stopped attempt what stopped it: the requested stop, or the sibling that failed."""
        for end in self.ends:
            for index, task in enumerate(self.tasks):
                if task.position == end.position and task.state is TaskState.CANCELLED and task.cancelled_by is None:
                    self.tasks[index] = task._replace(cancelled_by=stop or self._culprit())

    def _culprit(self) -> str | None:
        """The task whose failure stops its siblings."""
        failed = (task for task in self.tasks if task.state in FAILURES)
        return next((task.name for task in failed if self._settings_of(task).failure != "continue"), None)

    def _start(self, names: Sequence[str]) -> list[tuple[int, int]]:
        starts = []
        for index, task in enumerate(self.tasks):
            if task.name in names:
                number = task.attempts + 1
                self.tasks[index] = task._replace(state=TaskState.RUNNING, attempts=number, retry_at=None, reason=None)
                starts.append((task.position, number))
        return starts

    def _done(self, outcome: RunState, stop: str | None) -> Advance:
        reason = stop
        if reason is None and outcome is not RunState.COMPLETED:
            # In a run that completed with errors, no failure stopped other tasks: the first failure is the reason.
            culprit = self._culprit()
            failed = (task for task in self.tasks if task.state in FAILURES and culprit in (None, task.name))
            reason = next((task.reason for task in failed), None)
        return Advance(self._changed(), tuple(self.ends), outcome=outcome, reason=reason)

    def _changed(self) -> tuple[TaskProgress, ...]:
        return tuple(after for before, after in zip(self.before, self.tasks, strict=True) if after != before)
