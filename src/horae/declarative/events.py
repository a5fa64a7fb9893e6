"""The events that a declarative scheduler sends to its listener, under the names of its specification."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SchedulerEvent:
    """An event. `at` is the time by the scheduler's clock; `name` is the name of the class."""

    at: datetime

    @property
    def name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class TaskEvent(SchedulerEvent):
    """An event of one task."""

    task: str


class SchedulerInitializationStarted(SchedulerEvent):
    """initialize() was called with valid registrations."""

    __slots__ = ()


class SchedulerInitializationCompleted(SchedulerEvent):
    """Every task is scheduled and the scheduler runs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SchedulerInitializationFailed(SchedulerEvent):
    """Initialization failed. Nothing was changed, and the scheduler is uninitialized again."""

    error: BaseException


class SchedulerStopRequested(SchedulerEvent):
    """stop() was called; nothing new is started."""

    __slots__ = ()


class SchedulerStopped(SchedulerEvent):
    """Every callback has ended and the store is closed."""

    __slots__ = ()


class PollingStarted(SchedulerEvent):
    """There are tasks, and the scheduler polls for those that are due."""

    __slots__ = ()


class PollingStopRequested(SchedulerEvent):
    """The scheduler stops polling and waits for the callbacks that run."""

    __slots__ = ()


class PollingStopped(SchedulerEvent):
    """The scheduler has stopped polling."""

    __slots__ = ()


class TaskRunStarted(TaskEvent):
    """A callback was called because its cron expression came due, or because a crash had interrupted its run."""

    __slots__ = ()


class TaskRunCompleted(TaskEvent):
    """A callback returned, and the catalog has recorded it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TaskRunFailed(TaskEvent):
    """A callback raised, and the catalog has recorded it. It is called again at `pendingRetryUntil`."""

    error: str | None
    pendingRetryUntil: datetime  # noqa: N815 - the specification's name


class TaskRetryStarted(TaskEvent):
    """A callback that had raised was called again after its delay."""

    __slots__ = ()


class TaskRetryPreempted(TaskEvent):
    """A retry was waiting when the cron expression came due again. The new run replaces it."""

    __slots__ = ()


class SchedulerStoodDown(TaskEvent):
    """A run came of a task that is not registered here, because another scheduler has begun on this catalog with other
    registrations. This scheduler starts nothing any more. Not part of the specification."""

    __slots__ = ()
