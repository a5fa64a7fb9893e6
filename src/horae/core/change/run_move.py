"""How a waiting run moves to its job's present version.

A run moves where no live node has the handlers that its own version needs, or where it waits for a retry when its job
is changed immediately. A run that has not started takes the present version's tasks. A run that has started keeps its
tasks by name. It keeps them by position only where its handler is gone, none of its tasks has succeeded and both
versions have as many tasks. An at-most-once run does not move once an attempt of it began.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.run.lifecycle import TaskState
from horae.core.run.progress import TaskProgress

HANDLER_GRACE = timedelta(minutes=5)
"""How long no live node must have had a handler before it counts as gone."""
GONE = "handler gone"
"""The reason of a run that ends because its handler is gone for good."""
UNMOVABLE_WAITS = frozenset({"registration", "previous_run"})
"""A run that waits for one of these (`core.run.waiting_reason`) does not move: the registration of its task, or a
thread of the run itself."""
CHANGED = "job changed"
"""The reason of a run that moves because its job was changed while it waited for a retry."""


class TaskMove(NamedTuple):
    """Where one task of the run goes: from which position to which, and under which name."""

    before: int
    after: int
    name: str


def is_gone(
    missing: Collection[str], present: Collection[str], lacking_since: datetime, now: datetime, grace: timedelta
) -> bool:
    """Whether a run waits for handlers that will not come: `missing` are those that no live node has, `present` those
    of the job's present version.

    `lacking_since` is the latest of three moments. The run was created: nodes could learn what it needs. The oldest
    live node joined: a missing handler means something only while nodes are there. The last node that had one of the
    handlers ended. When the run is due does not matter.
    """
    if not missing or not set(missing).isdisjoint(present):
        return False
    return lacking_since + grace <= now


def moved_tasks(tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool) -> list[TaskMove] | None:
    """Where the tasks of a run whose handler is gone go among `names`, the tasks of the present version; None where the
    run cannot be moved."""
    if at_most_once and any(_was_tried(task) for task in tasks):
        return None
    found = _by_name(tasks, names)
    if found is not None:
        return found
    if len(tasks) != len(names) or any(task.state is TaskState.SUCCESS for task in tasks):
        return None
    ordered = sorted(tasks, key=lambda task: task.position)
    return [TaskMove(task.position, place, names[place]) for place, task in enumerate(ordered)]


def retried_tasks(tasks: Sequence[TaskProgress], names: Sequence[str], *, at_most_once: bool) -> list[TaskMove] | None:
    """Where the tasks of a run that waits for a retry go when its job is changed immediately; None: the run ends under
    the version that it started with."""
    if at_most_once or any(task.state is TaskState.SUCCESS for task in tasks):
        return None
    return _by_name(tasks, names)


def _was_tried(task: TaskProgress) -> bool:
    """Whether an attempt of the task began. A task that was only released has not been tried: an at-most-once run ends
    where a node releases it after an attempt began."""
    handed_back = task.state is TaskState.PENDING and not task.failures and not task.lost
    return task.attempts > 0 and not handed_back


def _by_name(tasks: Sequence[TaskProgress], names: Sequence[str]) -> list[TaskMove] | None:
    places = {name: place for place, name in enumerate(names)}
    if not all(task.name in places for task in tasks):
        return None
    return [TaskMove(task.position, places[task.name], task.name) for task in tasks]
