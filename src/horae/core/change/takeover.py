"""How a new version of a job takes effect: which version owns the slots to come, and which runs move.

    immediate   the new version owns every slot after now, also those that earlier versions still owned
    graceful    the version before keeps the announced slot, or every slot before a given moment. An earlier version
                that still owns slots loses them only to a change that moves slots
    windowed    as immediate, but runs that were created beyond the horizon stay as they are

A run that waits for its chosen time has not started, so a change reaches it even after its scheduled time. It takes the
new version's window and tasks, or is deleted where the new schedule does not have its slot. A run whose chosen time has
come stays as it is. A graceful change leaves every run whose scheduled time has passed.

A Once that gets another time is replaced. If the old time was missed, it is not caught up on. If its run has not
started, the run is deleted. If the job was done, it is enabled again. A run that has started goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.change.succession import Stage, Succession, stages_after_change
from horae.core.change.update_policy import Update
from horae.core.run.job_view import JobView, Slot, decided_slot, is_too_late, passed_time
from horae.core.run.lifecycle import JobState, RunState
from horae.core.schedule.custom import Custom
from horae.core.schedule.schedules import Once, Schedule, Union
from horae.core.time.instant import shifted
from horae.core.window.window import Window

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class VersionSwitch:
    """`former` are the earlier versions that own slots before the new one does. `reschedules`: the job comes due at
    other times than before, or the new version owns slots sooner. `moves`: it reschedules, or its starts are chosen
    differently."""

    former: tuple[Stage, ...]
    reschedules: bool
    moves: bool


def switch_version(
    before: JobView | None,
    version: int,
    schedule: Schedule | None,
    window: Window | None,
    update: Update,
    now: datetime,
) -> VersionSwitch:
    """Works out what a change at `now` to this schedule and window means.

    `before` is the job at `version`, with its runs that have not ended; None where the job had no schedule. Raises
    whatever the schedule before the change raises.
    """
    if before is None:
        return VersionSwitch((), reschedules=schedule is not None, moves=schedule is not None)
    own = _own(before)
    other, drawn = own != schedule, before.settings.window != window
    pending = tuple(stage for stage in before.former if stage.until > now)
    former: tuple[Stage, ...] = ()
    if update.policy == "graceful" and before.state is not JobState.DISABLED:
        switch = update.switch_at(before.schedule, now, _announced_after(before, now))
        present = Stage(version, switch, own, before.settings.window)
        if other or drawn:
            former = stages_after_change(pending, present, now)
        else:
            former = (*pending, present) if switch > max((stage.until for stage in pending), default=now) else pending
    sooner = former[: len(pending)] != pending
    return VersionSwitch(former, reschedules=other or sooner, moves=other or drawn or sooner)


def is_reached(scheduled: datetime, chosen: datetime, begin: datetime, update: Update, now: datetime) -> bool:
    """Whether a change at `now` reaches a run that waits for its chosen time. `begin` is the last moment whose slots
    belong to earlier versions, or `now` where no earlier version owns slots."""
    if chosen <= now:
        return False
    if scheduled <= now:
        return update.policy != "graceful"
    reach = update.reaches(now)
    return begin < scheduled and (reach is None or scheduled <= reach)


def passed_slot(view: JobView, nominal: datetime, chosen: datetime | None, now: datetime) -> Slot | None:
    """The slot, under the new version, of a run that a change reaches after its scheduled time. None: the new version
    does not have the slot, so the run is deleted.

    The run keeps `chosen` where that is given. Otherwise its start is chosen anew. A start that has passed already
    becomes `now`: the run has not started yet, and a change must not make it miss its deadline.
    """
    if not view.schedule.matches(nominal):
        return None
    if chosen is not None:
        return Slot(nominal, chosen)
    slot = decided_slot(view, nominal)
    return slot if slot.unschedulable or slot.chosen > now else Slot(nominal, now)


def replaces_time(own: Schedule | None, schedule: Schedule | None, update: Update) -> bool:
    """Whether a change of the schedule `own` gives a Once another time, or takes its time away."""
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
    """Where a job's cursor stands after a change at `now` that reschedules it.

    Slots that have passed count as decided. One exception: where the schedule has no slot to come, and its last slot is
    within its misfire grace and was not `decided` before, the cursor stands just before that slot, so that it still
    runs. No other slot is left, so the cursor may go back.
    """
    last = passed_time(schedule, now)
    if last is not None and not decided and not is_too_late(schedule, grace, now):
        return shifted(last, -_SECOND)
    return max(planned_until, now)


def had_slot(own: Schedule | None, at: datetime) -> bool:
    """Whether the schedule before had this slot and so has decided it, perhaps in a row that covers many slots. A Once
    is ignored because its slot has a row of its own. A custom schedule is not asked."""
    parts = own.parts if isinstance(own, Union) else (own,)
    return any(part is not None and not isinstance(part, Once | Custom) and part.matches(at) for part in parts)


def _own(view: JobView) -> Schedule | None:
    return view.schedule.last if isinstance(view.schedule, Succession) else view.schedule


def _announced_after(view: JobView, now: datetime) -> datetime | None:
    """The moment after which the announced slot is the next one. The announced slot is that of the earliest run that
    waits for its chosen time, or else the first that is not decided yet. None: nothing is announced, because the job is
    paused without an end. In a window `after`, the announced slot's scheduled time may have passed; then no slot to
    come is the old version's."""
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
