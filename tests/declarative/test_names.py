"""Names that programs rely on: classes of errors with their codes, events, fields."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from horae import declarative
from horae.declarative import SchedulerError, SchedulerEvent
from horae.errors import HoraeError

ERRORS = {
    "RegistrationsNotArrayError": ("registrations_not_array", 1701),
    "RegistrationShapeError": ("registration_shape", 1702),
    "InvalidRegistrationError": ("invalid_registration", 1703),
    "ScheduleDuplicateTaskError": ("schedule_duplicate_task", 1704),
    "SchedulerAlreadyActiveError": ("scheduler_already_active", 1705),
    "CronExpressionInvalidError": ("cron_expression_invalid", 1706),
    "NegativeRetryDelayError": ("negative_retry_delay", 1707),
    "InvalidCronExpressionError": ("invalid_cron_expression", 1708),
    "FieldParseError": ("field_parse", 1709),
    "CronCalculationError": ("cron_calculation", 1710),
    "SchedulerInitializationError": ("scheduler_initialization", 1711),
    "SchedulerStopError": ("scheduler_stop", 1712),
    "TaskTryDeserializeError": ("task_try_deserialize", 1720),
    "TaskMissingFieldError": ("task_missing_field", 1721),
    "TaskInvalidTypeError": ("task_invalid_type", 1722),
    "TaskInvalidValueError": ("task_invalid_value", 1723),
    "TaskInvalidStructureError": ("task_invalid_structure", 1724),
}
EVENTS = {
    "SchedulerInitializationStarted",
    "SchedulerInitializationCompleted",
    "SchedulerInitializationFailed",
    "SchedulerStopRequested",
    "SchedulerStopped",
    "TaskRunStarted",
    "TaskRunCompleted",
    "TaskRunFailed",
    "TaskRetryStarted",
    "TaskRetryPreempted",
    "PollingStarted",
    "PollingStopRequested",
    "PollingStopped",
}


def test_every_error_has_its_name_and_a_code_that_stays() -> None:
    found = {
        name: (kind.code, kind.number)
        for name, kind in vars(declarative).items()
        if isinstance(kind, type) and issubclass(kind, SchedulerError) and kind is not SchedulerError
    }
    assert found == ERRORS
    assert issubclass(SchedulerError, HoraeError)


def test_every_event_has_its_name_and_a_time() -> None:
    kinds = {"SchedulerEvent", "TaskEvent", "SchedulerStoodDown"}  # the last is ours
    found = {
        name
        for name, kind in vars(declarative).items()
        if isinstance(kind, type) and issubclass(kind, SchedulerEvent) and name not in kinds
    }
    assert found == EVENTS
    event = declarative.PollingStarted(datetime(2026, 1, 1, tzinfo=UTC))
    assert event.name == "PollingStarted"
    assert event == pickle.loads(pickle.dumps(event))


@pytest.mark.parametrize("name", declarative.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(declarative, name) is not None
