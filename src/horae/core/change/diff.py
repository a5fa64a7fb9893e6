"""Compares two definitions part by part.

What a change does to slots is in `takeover`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horae.core.job.definition import JobSpec

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One part of a definition that differs. A side is None where the part is absent or None."""

    path: str
    before: Any
    after: Any


def diff_definitions(old: JobSpec | None, new: JobSpec | None) -> tuple[DefinitionChange, ...]:
    """Every part that differs, by path (`settings.retry`, `tasks.load.handler`), in alphabetical order."""
    before, after = _parts(old), _parts(new)
    if old is not None and new is not None and old.schedule == new.schedule:
        # The schedules may be written differently and still be equal.
        before["schedule"] = after["schedule"] = None
    return tuple(
        DefinitionChange(path, before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path, _ABSENT) != after.get(path, _ABSENT)
    )


def _parts(job: JobSpec | None) -> dict[str, Any]:
    if job is None:
        return {}
    data = job.to_dict()
    parts = {name: data[name] for name in data if name not in ("settings", "tasks")}
    parts |= {f"settings.{name}": value for name, value in data.get("settings", {}).items()}
    for task in data.get("tasks", ()):
        settings = task.pop("settings", {})
        parts |= {f"tasks.{task['name']}.{key}": value for key, value in task.items() if key != "name"}
        parts |= {f"tasks.{task['name']}.settings.{key}": value for key, value in settings.items()}
    if job.tasks:
        parts["tasks"] = [task.name for task in job.tasks]
    return parts
