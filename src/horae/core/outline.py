"""What a stored definition still says where it cannot be read as a whole: enough to end a run of it without harm.

A node that cannot read a definition judges nothing by it. It must still take the runs of a dead node, and for that it
needs to know whether a run may be tried again.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from horae.core.job import TASK_SETTINGS, TaskSpec, parse_settings
from horae.core.needs import UNREADABLE, needs
from horae.errors import HoraeError

READ_ERRORS = (HoraeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a definition raises, whatever stands in its place."""
SETTINGS = frozenset({"mode", "failure", "retry", "delivery", "max_lost", "cancel_grace"})
"""The settings that say how a run goes on after its node died."""
_CAREFUL = {"delivery": "at_most_once"}
"""A run that may have been promised to run at most once is never tried again."""


def outlined_settings(definition: str | None, defaults: str | None) -> dict[str, Any]:
    """Those of SETTINGS that a definition and the defaults beside it say, each read by itself.

    Where the delivery cannot be read, it is `at_most_once`.
    """
    level = {} if defaults is None else _parsed(defaults)
    return _readable(level, SETTINGS) | _readable(_part(_parsed(definition), "settings", {}), SETTINGS)


def outlined_tasks(definition: str | None, known: Sequence[str]) -> tuple[TaskSpec, ...]:
    """Tasks that no node can do, under the names and with the settings that the definition has; where their names
    cannot be read, those of `known`, which the job's present version has."""
    try:
        tasks = tuple(
            TaskSpec(task["name"], UNREADABLE, settings=_readable(task.get("settings", {}), TASK_SETTINGS))
            for task in _tasks(definition)
        )
    except READ_ERRORS:
        tasks = ()
    if len({task.name for task in tasks}) < len(tasks):
        tasks = ()
    return tasks or tuple(TaskSpec(name, UNREADABLE) for name in known) or (TaskSpec("unreadable", UNREADABLE),)


def outlined_needs(definition: str | None) -> frozenset[str]:
    """What a node must have to run the tasks, as far as they can be read, each by itself."""
    found: set[str] = set()
    for task in _tasks(definition):
        try:
            found |= needs(TaskSpec.from_dict(task))
        except READ_ERRORS:
            continue
    return frozenset(found)


def _tasks(definition: str | None) -> list[Any]:
    tasks = _part(_parsed(definition), "tasks", [])
    return tasks if isinstance(tasks, list) else []


def _parsed(text: str | None) -> Any:
    """The plain values of a JSON text, None where it is none."""
    try:
        return None if text is None else json.loads(text)
    except READ_ERRORS:
        return None


def _part(value: Any, name: str, default: Any) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else None


def _readable(level: Any, wanted: Container[str]) -> dict[str, Any]:
    """What one level of settings says, of those `wanted`, without what cannot be read."""
    if not isinstance(level, Mapping):
        return dict(_CAREFUL)
    found: dict[str, Any] = {}
    for name, value in level.items():
        if name in wanted:
            try:
                found |= parse_settings({name: value})
            except READ_ERRORS:
                found |= _CAREFUL if name in _CAREFUL else {}
    return found
