"""What a change of definition does: which parts differ, and which future occurrences come, go and stay.

    immediate   the new schedule holds from now on
    graceful    the slot already announced, or everything up to a given time, still follows the old schedule
    windowed    as immediate, but only what lies within a horizon is looked at

A slot in both schedules keeps its identity, so it is never both removed and added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any

from horae.core.instant import aware
from horae.core.job import JobSpec
from horae.core.schedule import Schedule
from horae.core.update import IMMEDIATE, Update

__all__ = ["IMMEDIATE", "Change", "SlotDiff", "Update", "belongs", "diff_definitions", "diff_slots"]
MOST_SLOTS = 100_000
_SECOND = timedelta(seconds=1)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class SlotDiff:
    """The future in (now, until]. `truncated`: there were more slots than could be compared."""

    added: tuple[datetime, ...]
    removed: tuple[datetime, ...]
    kept: tuple[datetime, ...]
    switch_at: datetime
    until: datetime
    truncated: bool = False


def diff_slots(
    old: Schedule | None, new: Schedule | None, now: datetime, until: datetime, update: Update = IMMEDIATE
) -> SlotDiff:
    """Compares the two futures; None stands for a job that does not exist on that side."""
    begin, end = aware(now, "now"), aware(until, "until")
    reaches = update.reaches(begin)
    if reaches is not None:
        end = min(end, reaches)
    switch = min(update.switch_at(old, begin, begin), end)
    before = tuple(islice(_slots(old, begin, end), MOST_SLOTS + 1))
    after = tuple(islice(chain(_slots(old, begin, switch), _slots(new, switch, end)), MOST_SLOTS + 1))
    truncated = max(len(before), len(after)) > MOST_SLOTS
    if truncated:
        # Compare only as far as both sides are known.
        end = min(side[-1] for side in (before, after) if len(side) > MOST_SLOTS) - _SECOND
        before = tuple(at for at in before if at <= end)
        after = tuple(at for at in after if at <= end)
    was, will = set(before), set(after)
    return SlotDiff(
        tuple(at for at in after if at not in was),
        tuple(at for at in before if at not in will),
        tuple(at for at in after if at in was),
        switch,
        end,
        truncated,
    )


def belongs(slot: datetime, old: Schedule | None, new: Schedule | None, switch_at: datetime) -> bool:
    """Whether a run born for `slot` that has not started still has its place after the change."""
    holds = old if aware(slot, "slot") <= switch_at else new
    return holds is not None and holds.matches(slot)


def _slots(schedule: Schedule | None, start: datetime, end: datetime) -> Iterator[datetime]:
    return iter(()) if schedule is None or end <= start else schedule.between(start, end)


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a definition that differs; None where a side does not have it, or has none."""

    path: str
    before: Any
    after: Any


def diff_definitions(old: JobSpec | None, new: JobSpec | None) -> tuple[Change, ...]:
    """Every part that differs, by path (`settings.retry`, `tasks.load.handler`), in alphabetical order."""
    before, after = _parts(old), _parts(new)
    if old is not None and new is not None and old.schedule == new.schedule:
        # Written differently, meaning the same: nothing changes for anyone.
        before["schedule"] = after["schedule"] = None
    return tuple(
        Change(path, before.get(path), after.get(path))
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
