"""How a new version of a job takes over from the one before: who still speaks for slots to come, and what moves.

immediate   the new version speaks from now on, whoever was still to speak before it
graceful    the announced slot, or all before a moment, stays the version's before. What waits for its own moment
            already is cut short only by a change that moves slots
windowed    as immediate; runs that were born ahead, beyond a horizon, stay as they are
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.lifecycle import JobState, RunState
from horae.core.schedule import Schedule
from horae.core.slot import JobView
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


def _own(view: JobView) -> Schedule | None:
    return view.schedule.last if isinstance(view.schedule, Succession) else view.schedule


def _announced_after(view: JobView, now: datetime) -> datetime | None:
    """The moment after which the announced slot is the next: the earliest that waits for its window, or the first that
    is not decided yet. None: nothing is announced, for nobody knows when the job goes on."""
    waiting = [
        run.scheduled_time
        for run in view.active
        if run.state is RunState.PENDING and not run.judged and run.scheduled_time > now
    ]
    if waiting:
        return min(waiting) - _SECOND
    after = max(view.planned_until, now)
    if view.state is not JobState.PAUSED:
        return after
    return None if view.paused_until is None else max(after, view.paused_until)
