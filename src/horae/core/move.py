"""How a run that waits moves to its job's present version.

It does where no live node has what its own version needs, or where it waits for a retry when an immediate change comes.
A run that has not started takes the present version's tasks. One that has started goes on with them by name; by
position only where its handler is gone, none of its tasks has succeeded and both versions have as many tasks. A run
that may be tried once at most is not moved once it was tried.
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
WAITED_FOR = frozenset({"registration", "previous_run"})
"""What a run may wait for (`core.wait`) and is not moved: the task's registration, and a thread of the run itself."""
CHANGED = "job changed"
"""The reason of a run that moves because its job was changed while it waited for a retry."""


class Moved(NamedTuple):
    """Where a task of the run goes: to which position, and under which name."""

    before: int
    after: int
    name: str


def is_gone(
    missing: Collection[str], present: Collection[str], lacking_since: datetime, now: datetime, grace: timedelta
) -> bool:
    """Whether a run waits for nothing that will come: `missing` are the handlers that no live node has, `present` those
    of the job's present version.

    `lacking_since` is the latest of three moments: the run was created, so that nodes could learn what it needs; the
    oldest live node joined, for a node without the handler is a sign only where nodes are there; the last node that had
    one of them ended. When the run's own time comes does not matter."""
    if not missing or not set(missing).isdisjoint(present):
        return False
    return lacking_since + grace <= now


def moved_tasks(tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool) -> list[Moved] | None:
    """Where the tasks of a run whose handler is gone go among the tasks of the present version, by `names`; None where
    it cannot be moved."""
    if at_most_once and any(_was_tried(task) for task in tasks):
        return None
    found = _by_name(tasks, names)
    if found is not None:
        return found
    if len(tasks) != len(names) or any(task.state is TaskState.SUCCESS for task in tasks):
        return None
    ordered = sorted(tasks, key=lambda task: task.position)
    return [Moved(task.position, place, names[place]) for place, task in enumerate(ordered)]


def retried_tasks(tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool) -> list[Moved] | None:
    """Where the tasks of a run that waits for a retry go when its job is changed immediately; None: the run ends under
    the version that it started with."""
    if at_most_once or any(task.state is TaskState.SUCCESS for task in tasks):
        return None
    return _by_name(tasks, names)


def _was_tried(task: TaskProgress) -> bool:
    """Whether an attempt of the task began. One that was only handed back did not: a run that may be tried once at most
    ends where a node hands it back after it began."""
    handed_back = task.state is TaskState.PENDING and not task.failures and not task.lost
    return task.attempts > 0 and not handed_back


def _by_name(tasks: Sequence[TaskProgress], names: Sequence[str]) -> list[Moved] | None:
    places = {name: place for place, name in enumerate(names)}
    if not all(task.name in places for task in tasks):
        return None
    return [Moved(task.position, places[task.name], task.name) for task in tasks]
