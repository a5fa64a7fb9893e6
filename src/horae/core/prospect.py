"""A job on both sides of a change: as it stands, and as it would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from horae.core.job import Settings
from horae.core.lifecycle import JobState
from horae.core.overlap import ActiveRun
from horae.core.schedule import Schedule
from horae.core.slot import JobView
from horae.core.succession import in_force
from horae.core.takeover import is_reached, passed_slot, reopens, take_over
from horae.core.update import Update

MOST_OF_STRANGERS = 20_000
"""Slots of a schedule that is not ours: it cannot count them, and may never end."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A job on both sides of a change; None: it is not there, or never comes due by itself. A job that does not change
    has one view on both sides. Of the slots after `reach`, up to the cursor of the job, only those run after the change
    that were born already. `seconds` is how long its runs take."""

    name: str
    before: JobView | None
    after: JobView | None
    reach: datetime | None = None
    seconds: int = 60

    @property
    def is_changed(self) -> bool:
        return self.before is not self.after

    @property
    def stays(self) -> datetime | None:
        """The moment after which runs that were born ahead stay as they are; None: none do."""
        if self.reach is None or self.after is None or self.reach >= self.after.planned_until:
            return None
        return self.reach

    def unborn(self) -> list[datetime]:
        """Slots of the new schedule that will not run, among those that were born before it."""
        if self.stays is None or self.after is None:
            return []
        born = {run.scheduled_time for run in self.after.active}
        slots = self.after.schedule.between(self.stays, self.after.planned_until)
        return [slot for slot in islice(slots, MOST_OF_STRANGERS) if slot not in born]


def changed_view(
    before: JobView | None,
    name: str,
    schedule: Schedule | None,
    settings: Settings,
    state: JobState,
    now: datetime,
    update: Update,
    version: int = 0,
) -> JobView | None:
    """A job as it would be after a change at `now`; None: it would never come due.

    `before` is the job at `version`, with everything due at `now` planned (`occurrence.planned`).
    """
    if before is None:
        return None if schedule is None else JobView(name, schedule, settings, now, state)
    if reopens(before.schedule, schedule, update, before.state, before.planned_until):
        state = JobState.ENABLED
    taking = take_over(before, version, schedule, settings.window, update, now)
    holds = in_force(schedule, taking.former)
    if holds is None:
        return None
    begin = max((stage.until for stage in taking.former), default=now)
    stays = not taking.moves or (before.moved_slot is not None and before.moved_slot <= begin)
    after = replace(
        before,
        schedule=holds,
        settings=settings,
        state=state,
        paused_until=before.paused_until if state is before.state else None,
        moved_slot=before.moved_slot if stays else None,
        moved_to=before.moved_to if stays else None,
        former=taking.former,
    )
    if not taking.moves:
        return after
    return replace(after, active=tuple(_moved_runs(before.active, after, begin, update, now)))


def _moved_runs(
    active: Sequence[ActiveRun], after: JobView, begin: datetime, update: Update, now: datetime
) -> Iterator[ActiveRun]:
    """The runs that have their start after the change: those that it does not reach, and those whose nominal time has
    passed, with their new start. All others that it reaches are slots to come."""
    for run in active:
        if not is_reached(run.scheduled_time, run.chosen_time, begin, update, now):
            yield run
        elif run.scheduled_time <= now:
            slot = passed_slot(after, run.scheduled_time, None, now)
            if slot is not None and not slot.unschedulable:
                yield replace(run, chosen_time=slot.chosen)
