"""A run that waits moves to its job's present version, because no live node has what its own version needs.

A run that has not started takes the present version's tasks. One that has started goes on with them by name; by
position only where none of its tasks has succeeded and both versions have as many tasks. A run that may be tried once
at most is not moved once it was tried.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.lifecycle import TaskState
from horae.core.progress import TaskProgress

HANDLER_GRACE = timedelta(minutes=5)
"""How long no live node has to have had a handler before it counts as gone."""
GONE = "handler gone"
"""The reason of a run that ends because its handler is gone for good."""


class Moved(NamedTuple):
    """Where a task of the run goes: to which position, and under which name."""

    before: int
    after: int
    name: str


def is_gone(
    missing: Collection[str],
    present: Collection[str],
    waited_since: datetime,
    last_had: datetime | None,
    now: datetime,
    grace: timedelta,
) -> bool:
    """Whether a run waits for nothing that will come: `missing` are the handlers that no live node has, `present` those
    of the job's present version, `last_had` is when the last node that had one of them ended."""
    if not missing or not set(missing).isdisjoint(present):
        return False
    return max(waited_since, last_had or waited_since) + grace <= now


def moved_tasks(tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool) -> list[Moved] | None:
    """Where the run's tasks go among the tasks of the present version, by `names`; None where it cannot be moved."""
    if at_most_once and any(task.attempts for task in tasks):
        return None
    places = {name: place for place, name in enumerate(names)}
    if all(task.name in places for task in tasks):
        return [Moved(task.position, places[task.name], task.name) for task in tasks]
    if len(tasks) != len(names) or any(task.state is TaskState.SUCCESS for task in tasks):
        return None
    ordered = sorted(tasks, key=lambda task: task.position)
    return [Moved(task.position, place, names[place]) for place, task in enumerate(ordered)]
