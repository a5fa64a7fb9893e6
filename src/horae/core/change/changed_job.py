"""A job before and after a change of its definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from horae.core.change.succession import in_force
from horae.core.change.takeover import is_reached, passed_slot, reopens, switch_version
from horae.core.change.update_policy import Update
from horae.core.job.definition import Settings
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import JobState
from horae.core.run.overlap import ActiveRun
from horae.core.schedule.schedules import Schedule

MOST_CUSTOM_SLOTS = 20_000
"""The most slots that are read from a custom schedule, which cannot count its slots and may never end."""


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """A job on both sides of a change. `before` or `after` is None where the job does not exist on that side, or never
    comes due by itself. A job that does not change has the same view on both sides.

    `reach` is the horizon of a windowed change. Of the slots after it, up to the job's cursor, only those run after the
    change whose runs exist already. `seconds` is the assumed duration of a run.
    """

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
        """The moment after which existing runs stay as they are; None: the change reaches all of them."""
        if self.reach is None or self.after is None or self.reach >= self.after.planned_until:
            return None
        return self.reach

    def unborn(self) -> list[datetime]:
        """Slots of the new schedule that will not run: they lie where the old schedule has been decided, which did not
        have them."""
        if self.stays is None or self.after is None:
            return []
        born = {run.scheduled_time for run in self.after.active}
        slots = self.after.schedule.between(self.stays, self.after.planned_until)
        return [slot for slot in islice(slots, MOST_CUSTOM_SLOTS) if slot not in born]


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
    """The job as it would be after a change at `now`; None: it would never come due.

    `before` is the job at `version`, after everything due at `now` was decided (`core.run.due.planned`).
    """
    if before is None:
        return None if schedule is None else JobView(name, schedule, settings, now, state)
    if reopens(before.schedule, schedule, update, before.state, before.planned_until):
        state = JobState.ENABLED
    taking = switch_version(before, version, schedule, settings.window, update, now)
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
    """The runs that keep their rows: those that the change does not reach, and, with a new start, those whose scheduled
    time has passed. Every other run that the change reaches becomes a slot to come."""
    for run in active:
        if not is_reached(run.scheduled_time, run.chosen_time, begin, update, now):
            yield run
        elif run.scheduled_time <= now:
            slot = passed_slot(after, run.scheduled_time, None, now)
            if slot is not None and not slot.unschedulable:
                yield replace(run, chosen_time=slot.chosen)
