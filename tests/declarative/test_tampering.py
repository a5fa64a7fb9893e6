"""Catalogs that somebody wrote to: what makes no sense is named, field by field, and nothing is begun on it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.declarative.catalogs import content, tampered
from tests.declarative.stage import Stage, play

from horae.declarative import (
    Scheduler,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
    read_state,
)
from horae.errors import HoraeError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def written(file: Path) -> dict[str, Any]:
    """The definition in a new catalog with the one task `a`."""

    async def body(stage: Stage) -> None:
        await stage.initialize(stage.task("a", "0 10 * * *", "7m", fails=1))

    play(body, store=url(file))
    (text,) = [row[2] for row in content(file)["job_versions"]]
    definition: dict[str, Any] = json.loads(text)
    return definition


def rewritten(file: Path, definition: Any) -> None:
    text = json.dumps(definition).replace("'", "''")
    tampered(file, f"UPDATE job_versions SET definition = '{text}'")


def refused(file: Path) -> TaskTryDeserializeError:
    """What reading and initializing raise alike; neither writes anything of jobs."""
    before = content(file)
    with pytest.raises(TaskTryDeserializeError) as reading:
        asyncio.run(read_state(url(file)))

    async def begin() -> None:
        scheduler = Scheduler(url(file), tz="UTC")
        with pytest.raises(TaskTryDeserializeError) as beginning:
            await scheduler.initialize([])
        assert type(beginning.value) is type(reading.value)
        assert beginning.value.details == reading.value.details
        assert str(scheduler.state) == "Uninitialized"

    asyncio.run(begin())
    assert content(file) == before
    assert reading.value.task == "a"
    return reading.value


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("schedule",), "schedule"),
        (("schedule", "expr"), "cronExpression"),
        (("settings",), "settings"),
        (("settings", "retry"), "retry"),
        (("settings", "retry", "interval"), "retryDelay"),
        (("tasks",), "tasks"),
    ],
)
def test_a_field_that_is_gone_is_named(file: Path, path: tuple[str, ...], field: str) -> None:
    definition = written(file)
    place = definition
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    rewritten(file, definition)
    error = refused(file)
    assert type(error) is TaskMissingFieldError
    assert str(error) == f"Missing required field: {field}"
    assert error.details == {"field": field}


def test_a_version_that_is_gone_is_a_missing_field(file: Path) -> None:
    written(file)
    tampered(file, "DELETE FROM job_versions")
    error = refused(file)
    assert type(error) is TaskMissingFieldError
    assert error.details == {"field": "definition"}


@pytest.mark.parametrize(
    ("path", "value", "field", "expected", "actual"),
    [
        (("schedule",), 7, "schedule", "object", "int"),
        (("schedule", "expr"), 7, "cronExpression", "string", "int"),
        (("schedule", "expr"), None, "cronExpression", "string", "NoneType"),
        (("schedule", "tz"), 7, "timezone", "string", "int"),
        (("settings",), [], "settings", "object", "list"),
        (("settings", "retry"), "7m", "retry", "object", "str"),
        (("settings", "retry", "interval"), 420, "retryDelay", "string", "int"),
        (("tasks",), {}, "tasks", "array", "dict"),
    ],
)
def test_a_field_of_another_type_is_named_with_both_types(
    file: Path, path: tuple[str, ...], value: Any, field: str, expected: str, actual: str
) -> None:
    definition = written(file)
    place = definition
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    rewritten(file, definition)
    error = refused(file)
    assert type(error) is TaskInvalidTypeError
    assert str(error) == f"Invalid type for field '{field}': expected {expected}, got {actual}"
    assert error.details == {"field": field, "value": value, "expectedType": expected, "actualType": actual}


@pytest.mark.parametrize(
    ("statement", "field", "value"),
    [
        ("UPDATE jobs SET last_attempt_at = 'noon'", "lastAttemptAt", "noon"),
        ("UPDATE jobs SET last_success_at = 'noon'", "lastSuccessAt", "noon"),
        ("UPDATE task_runs SET retry_at = 'noon'", "pendingRetryUntil", "noon"),
    ],
)
def test_a_time_that_is_no_number_is_of_another_type(file: Path, statement: str, field: str, value: str) -> None:
    written(file)
    tampered(file, statement)
    error = refused(file)
    assert type(error) is TaskInvalidTypeError
    assert error.details == {"field": field, "value": value, "expectedType": "integer", "actualType": "str"}


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("schedule", "expr"), "*/5 * * * *", "cronExpression"),
        (("schedule", "expr"), "0 0 31 2 *", "cronExpression"),
        (("schedule", "tz"), "Europe/Atlantis", "cronExpression"),
        (("settings", "retry", "interval"), "soon", "retryDelay"),
        (("settings", "retry", "interval"), "-5m", "retryDelay"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_the_reason(
    file: Path, path: tuple[str, ...], value: str, field: str
) -> None:
    definition = written(file)
    place = definition
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    rewritten(file, definition)
    error = refused(file)
    assert type(error) is TaskInvalidValueError
    assert set(error.details) == {"field", "value", "reason"}
    assert error.details["field"] == field
    assert error.details["reason"]
    assert str(error) == f"Invalid value for field '{field}': {error.details['reason']}"
    assert isinstance(error.__cause__, HoraeError)


def test_a_time_outside_the_calendar_is_an_invalid_value(file: Path) -> None:
    written(file)
    tampered(file, "UPDATE jobs SET last_attempt_at = 9000000000000000000")
    error = refused(file)
    assert type(error) is TaskInvalidValueError
    assert error.details == {
        "field": "lastAttemptAt",
        "value": 9_000_000_000_000_000_000,
        "reason": "is outside the calendar",
    }


@pytest.mark.parametrize("text", ["nonsense", "", "[]", "7", "null", '"a"', "{"])
def test_a_definition_that_is_no_object_is_an_invalid_structure(file: Path, text: str) -> None:
    written(file)
    tampered(file, f"UPDATE job_versions SET definition = '{text}'")
    error = refused(file)
    assert type(error) is TaskInvalidStructureError
    assert set(error.details) == {"value"}
    assert str(error).startswith("Invalid task state: ")


@pytest.mark.parametrize("tasks", [[], [None], ["a"], [{}], [{"handler": "other"}], [{"handler": "declarative"}] * 2])
def test_a_definition_with_other_tasks_is_an_invalid_structure(file: Path, tasks: list[Any]) -> None:
    rewritten(file, {**written(file), "tasks": tasks})
    error = refused(file)
    assert type(error) is TaskInvalidStructureError
    assert error.details == {"value": tasks}


def test_every_error_about_what_is_kept_is_of_one_kind() -> None:
    for kind in (TaskMissingFieldError, TaskInvalidTypeError, TaskInvalidValueError, TaskInvalidStructureError):
        assert issubclass(kind, TaskTryDeserializeError)


def test_a_state_that_nobody_knows_is_an_invalid_value(file: Path) -> None:
    written(file)
    tampered(file, "UPDATE jobs SET state = 'BOGUS', revision = revision + 1")
    error = refused(file)
    assert isinstance(error, TaskInvalidValueError)
    assert (error.details["field"], error.details["value"]) == ("state", "BOGUS")
