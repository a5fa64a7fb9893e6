"""The declarative scheduler: all tasks are registered at once, as data, and run by POSIX cron in the host's zone.

    scheduler = Scheduler("sqlite:///state.db")
    await scheduler.initialize([("report", "0 * * * *", report, timedelta(minutes=5))])
    ...
    await scheduler.stop()

It uses the same engine and catalog as all of Horae. `docs/declarative.md` describes how each rule is met.
"""

from __future__ import annotations

from horae.declarative.errors import (
    CronCalculationError,
    CronExpressionInvalidError,
    FieldParseError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    SchedulerAlreadyActiveError,
    SchedulerError,
    SchedulerInitializationError,
    SchedulerStopError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)
from horae.declarative.events import (
    PollingStarted,
    PollingStopped,
    PollingStopRequested,
    SchedulerEvent,
    SchedulerInitializationCompleted,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    SchedulerStoodDown,
    SchedulerStopped,
    SchedulerStopRequested,
    TaskEvent,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from horae.declarative.registrations import Callback, Registration, next_occurrence, previous_occurrence
from horae.declarative.scheduler import Scheduler, SchedulerState, read_state
from horae.declarative.state import TaskState

__all__ = [
    "Callback",
    "CronCalculationError",
    "CronExpressionInvalidError",
    "FieldParseError",
    "InvalidCronExpressionError",
    "InvalidRegistrationError",
    "NegativeRetryDelayError",
    "PollingStarted",
    "PollingStopRequested",
    "PollingStopped",
    "Registration",
    "RegistrationShapeError",
    "RegistrationsNotArrayError",
    "ScheduleDuplicateTaskError",
    "Scheduler",
    "SchedulerAlreadyActiveError",
    "SchedulerError",
    "SchedulerEvent",
    "SchedulerInitializationCompleted",
    "SchedulerInitializationError",
    "SchedulerInitializationFailed",
    "SchedulerInitializationStarted",
    "SchedulerState",
    "SchedulerStoodDown",
    "SchedulerStopError",
    "SchedulerStopRequested",
    "SchedulerStopped",
    "TaskEvent",
    "TaskInvalidStructureError",
    "TaskInvalidTypeError",
    "TaskInvalidValueError",
    "TaskMissingFieldError",
    "TaskRetryPreempted",
    "TaskRetryStarted",
    "TaskRunCompleted",
    "TaskRunFailed",
    "TaskRunStarted",
    "TaskState",
    "TaskTryDeserializeError",
    "next_occurrence",
    "previous_occurrence",
    "read_state",
]
