"""Outlines: the readable parts of a stored definition that cannot be read as a whole, enough to end its runs safely.

A node that cannot read a definition decides nothing by it. It must still take over the runs of a dead node, and for
that it needs to know whether a run may be tried again.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from horae.core.job.definition import TASK_SETTINGS, TaskSpec, parse_settings
from horae.core.job.requirements import UNREADABLE, needs
from horae.errors import HoraeError

READ_ERRORS = (HoraeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Everything that reading a definition may raise, whatever the catalog has in its place."""
SETTINGS = frozenset({"mode", "failure", "retry", "delivery", "max_lost", "cancel_grace"})
"""The settings that decide how a run continues after its node died."""
_CAREFUL = {"delivery": "at_most_once"}
"""Applies where the delivery cannot be read: a run that may have to run at most once is never tried again."""


def outlined_settings(definition: str | None, defaults: str | None) -> dict[str, Any]:
    """The SETTINGS of a definition and of the defaults stored with it, each read separately.

    Settings that cannot be read are left out, except the delivery: it becomes `at_most_once`.
    """
    level = {} if defaults is None else _parsed(defaults)
    return _readable(level, SETTINGS) | _readable(_part(_parsed(definition), "settings", {}), SETTINGS)


def outlined_tasks(definition: str | None, known: Sequence[str]) -> tuple[TaskSpec, ...]:
    """Tasks that no node can run, with the names and settings of the definition.

    Where its names cannot be read, the tasks have the names in `known`, those of the job's current version.
    """
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
    """What a node must have to run the tasks. Each task is read separately, and left out where it cannot be read."""
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
    """The value of a JSON text, None where it cannot be parsed."""
    try:
        return None if text is None else json.loads(text)
    except READ_ERRORS:
        return None


def _part(value: Any, name: str, default: Any) -> Any:
    return value.get(name, default) if isinstance(value, Mapping) else None


def _readable(level: Any, wanted: Container[str]) -> dict[str, Any]:
    """The `wanted` settings of one level, without those that cannot be read."""
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
