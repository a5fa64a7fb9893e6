"""What a declarative scheduler tells its listener, under the names of its specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """Something that happened, `at` the scheduler's clock. `name` is the class's own."""

    at: datetime

    @property
    def name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class TaskEvent(SchedulerEvent):
    """Something that happened to one task."""

    task: str


class SchedulerInitializationStarted(SchedulerEvent):
    """initialize() was called with registrations that are in order."""

    __slots__ = ()


class SchedulerInitializationCompleted(SchedulerEvent):
    """Every task is scheduled; the scheduler runs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SchedulerInitializationFailed(SchedulerEvent):
    """Nothing was changed; the scheduler is uninitialized again."""

    error: BaseException


class SchedulerStopRequested(SchedulerEvent):
    """stop() was called; nothing new is started."""

    __slots__ = ()


class SchedulerStopped(SchedulerEvent):
    """Every callback has ended and everything is closed."""

    __slots__ = ()


class PollingStarted(SchedulerEvent):
    """There are tasks, and the scheduler looks for those that are due."""

    __slots__ = ()


class PollingStopRequested(SchedulerEvent):
    """The scheduler looks no more; what runs is waited for."""

    __slots__ = ()


class PollingStopped(SchedulerEvent):
    """Nothing runs any more."""

    __slots__ = ()


class TaskRunStarted(TaskEvent):
    """A callback was called because its cron expression came due, or because a run had been cut off by a crash."""

    __slots__ = ()


class TaskRunCompleted(TaskEvent):
    """A callback returned, and the catalog knows."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TaskRunFailed(TaskEvent):
    """A callback raised, and the catalog knows; it is called again at `pendingRetryUntil`."""

    error: str | None
    pendingRetryUntil: datetime  # noqa: N815 - the specification's name


class TaskRetryStarted(TaskEvent):
    """A callback that had raised was called again, its delay being over."""

    __slots__ = ()


class TaskRetryPreempted(TaskEvent):
    """A retry was waiting when the cron expression came due again: that run takes its place."""

    __slots__ = ()


class SchedulerStoodDown(TaskEvent):
    """A run came of a task that was not registered here: another scheduler has begun on this catalog since, with other
    registrations, and this one starts nothing any more. Not part of the specification."""

    __slots__ = ()
