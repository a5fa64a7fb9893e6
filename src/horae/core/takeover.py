"""How a new version of a job takes over from the one before: who still speaks for slots to come, and what moves.

immediate   the new version speaks from now on, whoever was still to speak before it
graceful    the announced slot, or all before a moment, stays the version's before. What waits for its own moment
            already is cut short only by a change that moves slots
windowed    as immediate; runs that were born ahead, beyond a horizon, stay as they are

A run that waits for its chosen time has not started, so a change reaches it, also where its nominal time has passed:
it takes the new version's window and tasks, or is deleted where the new schedule does not have its slot. A run whose
chosen time has come stays as it is. A graceful change leaves every run whose nominal time has passed.

A Once that gets another time is replaced, whatever became of the old one: missed, it is not caught up on; not started,
it is deleted; done, the job is enabled again. What has started goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.custom import Custom
from horae.core.instant import shifted
from horae.core.lifecycle import JobState, RunState
from horae.core.schedule import Once, Schedule, Union
from horae.core.slot import JobView, Slot, decided_slot, is_too_late, passed_time
from horae.core.succession import Stage, Succession, succeeded
from horae.core.update import Update
from horae.core.window import Window

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Takeover:
    """`former` speak before the new version does. `reschedules`: it fires at other times than the one before, or at
    those times sooner; `moves`: it does, or its starts are chosen otherwise."""

    former: tuple[Stage, ...]
    reschedules: bool
    moves: bool


def take_over(
    before: JobView | None,
    version: int,
    schedule: Schedule | None,
    window: Window | None,
    update: Update,
    now: datetime,
) -> Takeover:
    """What a change at `now` to this schedule and window means; `before` is the job at `version`, with its runs that
    have not ended, None where it had no schedule. Raises what the schedule before raises when it is asked."""
    if before is None:
        return Takeover((), reschedules=schedule is not None, moves=schedule is not None)
    own = _own(before)
    other, drawn = own != schedule, before.settings.window != window
    pending = tuple(stage for stage in before.former if stage.until > now)
    former: tuple[Stage, ...] = ()
    if update.policy == "graceful" and before.state is not JobState.DISABLED:
        switch = update.switch_at(before.schedule, now, _announced_after(before, now))
        present = Stage(version, switch, own, before.settings.window)
        if other or drawn:
            former = succeeded(pending, present, now)
        else:
            former = (*pending, present) if switch > max((stage.until for stage in pending), default=now) else pending
    sooner = former[: len(pending)] != pending
    return Takeover(former, reschedules=other or sooner, moves=other or drawn or sooner)


def is_reached(scheduled: datetime, chosen: datetime, begin: datetime, update: Update, now: datetime) -> bool:
    """Whether a change at `now` reaches the run of a slot that waits for its chosen time. `begin` is the last moment
    that earlier versions still speak for, `now` where none does."""
    if chosen <= now:
        return False
    if scheduled <= now:
        return update.policy != "graceful"
    reach = update.reaches(now)
    return begin < scheduled and (reach is None or scheduled <= reach)


def passed_slot(view: JobView, nominal: datetime, chosen: datetime | None, now: datetime) -> Slot | None:
    """The slot of a run that a change reaches after its nominal time, under the new version; None: that version does
    not have it, so the run is deleted.

    The run keeps `chosen` where that is given. Otherwise its time is chosen anew. A time that has passed already is
    `now`: the run has not started yet, and a change must not make it miss its deadline.
    """
    if not view.schedule.matches(nominal):
        return None
    if chosen is not None:
        return Slot(nominal, chosen)
    slot = decided_slot(view, nominal)
    return slot if slot.unschedulable or slot.chosen > now else Slot(nominal, now)


def replaces_time(own: Schedule | None, schedule: Schedule | None, update: Update) -> bool:
    """Whether a change of the schedule `own` gives a Once another time, or none."""
    if not isinstance(own, Once) or update.policy == "graceful":
        return False
    return not (isinstance(schedule, Once) and schedule.at == own.at)


def reopens(
    own: Schedule | None, schedule: Schedule | None, update: Update, state: JobState, planned_until: datetime
) -> bool:
    """Whether a change enables a Once again that was disabled because it was done."""
    done = state is JobState.DISABLED and isinstance(own, Once) and own.at <= planned_until
    return done and schedule is not None and replaces_time(own, schedule, update)


def cursor_after(
    schedule: Schedule | None, grace: timedelta, planned_until: datetime, now: datetime, *, decided: bool
) -> datetime:
    """Where the cursor of a job stands after a change that reschedules it at `now`: what has passed is decided, but a
    last time within its grace, after which none is to come, is still to run, unless that very slot was `decided`
    before. It is the one slot that is left, so the cursor may go back to it."""
    last = passed_time(schedule, now)
    if last is not None and not decided and not is_too_late(schedule, grace, now):
        return shifted(last, -_SECOND)
    return max(planned_until, now)


def had_slot(own: Schedule | None, at: datetime) -> bool:
    """Whether the schedule before had this slot, and so decided on it, perhaps in a row that stands for many. That of a
    Once is a row of its own; a schedule of a user's own is not asked."""
    parts = own.parts if isinstance(own, Union) else (own,)
    return any(part is not None and not isinstance(part, Once | Custom) and part.matches(at) for part in parts)


def _own(view: JobView) -> Schedule | None:
    return view.schedule.last if isinstance(view.schedule, Succession) else view.schedule


def _announced_after(view: JobView, now: datetime) -> datetime | None:
    """The moment after which the announced slot is the next: the earliest that waits for its chosen time, or the first
    that is not decided yet. None: nothing is announced, for nobody knows when the job goes on. In a window `after` the
    announced slot's own time may have passed; then no slot to come is the old version's."""
    waiting = [
        run.scheduled_time
        for run in view.active
        if run.state is RunState.PENDING and not run.judged and run.chosen_time > now
    ]
    if waiting:
        return shifted(min(waiting), -_SECOND)
    after = max(view.planned_until, now)
    if view.state is not JobState.PAUSED:
        return after
    return None if view.paused_until is None else max(after, view.paused_until)
