"""The errors of a declarative scheduler, with the names, messages and `details` of its specification, unchanged.

    SchedulerError                   1700
    ├── RegistrationsNotArrayError   1701
    ├── RegistrationShapeError       1702   registrationIndex, received
    ├── InvalidRegistrationError     1703   field, value, reason
    ├── ScheduleDuplicateTaskError   1704   taskName
    ├── SchedulerAlreadyActiveError  1705   currentState
    ├── CronExpressionInvalidError   1706   expression, field, reason
    ├── NegativeRetryDelayError      1707   retryDelayMs
    ├── InvalidCronExpressionError   1708   expression, field, reason: the cause of CronExpressionInvalidError
    ├── FieldParseError              1709   fieldValue, fieldName: the cause of that
    ├── CronCalculationError         1710   expression, currentTime, cause
    ├── SchedulerInitializationError 1711   cause: an unexpected error during initialize()
    ├── SchedulerStopError           1712   stop() was called by a callback, or in another event loop
    └── TaskTryDeserializeError      1720   the catalog's record of a task is not valid; details as below
        ├── TaskMissingFieldError    1721   field
        ├── TaskInvalidTypeError     1722   field, value, expectedType, actualType
        ├── TaskInvalidValueError    1723   field, value, reason
        └── TaskInvalidStructureError 1724  value

Times, durations and causes in `details` are as they were given. Codes and numbers are a contract.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from horae.core.time.instant import rfc3339
from horae.errors import HoraeError, InvalidCron, shown


class SchedulerError(HoraeError, code="scheduler_error", number=1700): ...


class RegistrationsNotArrayError(SchedulerError, code="registrations_not_array", number=1701):
    def __init__(self) -> None:
        super().__init__(
            "Registrations must be an array", hint="Give a list of (name, cron expression, async function, timedelta)."
        )


class RegistrationShapeError(SchedulerError, code="registration_shape", number=1702):
    def __init__(self, index: int, received: Any, why: str) -> None:
        super().__init__(
            "Invalid registration shape: expected [string, string, function, Duration]",
            hint=f"Registration {index} (from 0) {why}.",
            details={"registrationIndex": index, "received": received},
        )


class InvalidRegistrationError(SchedulerError, code="invalid_registration", number=1703):
    def __init__(self, task: str, field: str, value: Any, reason: str) -> None:
        of = f" of task {shown(task)}" if field != "name" else f" {shown(task)}"
        super().__init__(f"Invalid {field}{of}: {reason}", details={"field": field, "value": value, "reason": reason})


class ScheduleDuplicateTaskError(SchedulerError, code="schedule_duplicate_task", number=1704):
    def __init__(self, name: str) -> None:
        super().__init__(
            f'Task with name "{name}" is already scheduled',
            hint="Names are unique among registrations.",
            details={"taskName": name},
        )


class SchedulerAlreadyActiveError(SchedulerError, code="scheduler_already_active", number=1705):
    def __init__(self, state: str) -> None:
        super().__init__(
            f"Cannot initialize scheduler: scheduler is already {state}",
            hint="Stop it first, or leave it as it is: what it was given stays in force.",
            details={"currentState": state},
        )


class _CronError(SchedulerError):
    """Has the text and details of the parser's own error."""

    def __init__(self, fault: InvalidCron) -> None:
        details = {"expression": fault.expression, "field": fault.field, "reason": fault.reason}
        super().__init__(fault.message, hint=fault.hint, details=details)


class CronExpressionInvalidError(_CronError, code="cron_expression_invalid", number=1706): ...


class NegativeRetryDelayError(SchedulerError, code="negative_retry_delay", number=1707):
    def __init__(self, milliseconds: float) -> None:
        super().__init__("Retry delay must be non-negative", details={"retryDelayMs": milliseconds})


class InvalidCronExpressionError(_CronError, code="invalid_cron_expression", number=1708): ...


class FieldParseError(SchedulerError, code="field_parse", number=1709):
    def __init__(self, value: str, field: str, reason: str) -> None:
        super().__init__(f"{field} field {reason}", details={"fieldValue": value, "fieldName": field})


class CronCalculationError(SchedulerError, code="cron_calculation", number=1710):
    def __init__(self, expression: str, now: datetime, cause: Exception) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            details={"expression": expression, "currentTime": rfc3339(now), "cause": cause},
        )


class SchedulerInitializationError(SchedulerError, code="scheduler_initialization", number=1711):
    """The scheduler could not start: nothing was changed, and it is uninitialized. The cause is the error that
    happened."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"Cannot initialize scheduler: {cause}", hint=getattr(cause, "hint", None), details={"cause": cause}
        )


class SchedulerStopError(SchedulerError, code="scheduler_stop", number=1712): ...


class TaskTryDeserializeError(SchedulerError, code="task_try_deserialize", number=1720):
    """The catalog's record of a task cannot be read, because another program wrote to it."""

    def __init__(self, message: str, task: str, details: dict[str, Any]) -> None:
        super().__init__(message, hint=f"Look at the job of task {shown(task)} in the catalog.", details=details)
        self.task = task


class TaskMissingFieldError(TaskTryDeserializeError, code="task_missing_field", number=1721):
    def __init__(self, task: str, field: str) -> None:
        super().__init__(f"Missing required field: {field}", task, {"field": field})


class TaskInvalidTypeError(TaskTryDeserializeError, code="task_invalid_type", number=1722):
    def __init__(self, task: str, field: str, value: Any, expected: str) -> None:
        actual = type(value).__name__
        super().__init__(
            f"Invalid type for field '{field}': expected {expected}, got {actual}",
            task,
            {"field": field, "value": value, "expectedType": expected, "actualType": actual},
        )


class TaskInvalidValueError(TaskTryDeserializeError, code="task_invalid_value", number=1723):
    def __init__(self, task: str, field: str, value: Any, reason: str) -> None:
        super().__init__(
            f"Invalid value for field '{field}': {reason}", task, {"field": field, "value": value, "reason": reason}
        )


class TaskInvalidStructureError(TaskTryDeserializeError, code="task_invalid_structure", number=1724):
    def __init__(self, task: str, value: Any, reason: str) -> None:
        super().__init__(f"Invalid task state: {reason}", task, {"value": value})
