"""What planning reads and what it answers: the job as it stands, its slots with their chosen times, the plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from horae.core.decision import Decision, decide
from horae.core.job import Settings
from horae.core.lifecycle import JobState, RunState
from horae.core.overlap import ActiveRun, Ending
from horae.core.schedule import Once, Schedule
from horae.core.succession import Stage, stage_at
from horae.core.window import Window


@dataclass(frozen=True, slots=True)
class JobView:
    """What planning has to know about one job. `planned_until` is the last slot born so far."""

    name: str
    schedule: Schedule
    settings: Settings
    planned_until: datetime
    state: JobState = JobState.ENABLED
    paused_until: datetime | None = None
    moved_slot: datetime | None = None
    """The slot a person rescheduled, by its nominal time,"""
    moved_to: datetime | None = None
    """and when it is to start instead."""
    covered_until: datetime | None = None
    """How far the last COMPLETED run covered, for compressed recovery."""
    first_seen: bool = False
    """Its only slot had passed when it was defined (`defined_late`): within its grace it runs, later it is missed."""
    active: tuple[ActiveRun, ...] = ()
    former: tuple[Stage, ...] = ()
    """Earlier versions that `schedule` begins with: their slots keep their windows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", JobState(self.state))

    def window_at(self, nominal: datetime) -> tuple[Window | None, str]:
        """The window of a slot, and the zone that it is read in: that of its schedule."""
        stage = stage_at(self.former, nominal)
        if stage is None:
            return self.settings.window, self.schedule.timezone
        return stage.window, "UTC" if stage.schedule is None else stage.schedule.timezone

    def reach(self) -> tuple[timedelta, timedelta]:
        """How long before its nominal time a slot may start, and how long after."""
        ahead = [stage.window for stage in self.former if stage.until > self.planned_until]
        windows = [window for window in (self.settings.window, *ahead) if window]
        nothing = timedelta(0)
        return max((each.lead for each in windows), default=nothing), max(
            (each.lag for each in windows), default=nothing
        )


def defined_late(schedule: Schedule, defined_at: datetime) -> bool:
    """Whether a Once was defined after its own time: nothing was missed then, so there is nothing to catch up on."""
    return isinstance(schedule, Once) and schedule.at <= defined_at


@dataclass(frozen=True, slots=True)
class Birth:
    """One row to write. `covers_*` and `count` are set for a compressed run and for a span of slots in one row."""

    scheduled_time: datetime
    state: RunState
    chosen_time: datetime
    reason: str | None = None
    is_recovery: bool = False
    covers_from: datetime | None = None
    covers_to: datetime | None = None
    count: int = 1
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write in one transaction, and the job's cursors after it.

    `next_run_time` is what people see; `wake_at` is when to plan again. `more` says that the limit cut the work short.
    """

    births: tuple[Birth, ...]
    endings: tuple[Ending, ...]
    cancels: tuple[str, ...]
    planned_until: datetime
    next_run_time: datetime | None
    wake_at: datetime | None
    resumed: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot with the time chosen for it; `chosen` is the nominal time where nothing could be chosen."""

    nominal: datetime
    chosen: datetime
    decision: Decision | None = None
    unschedulable: bool = False


def decided_slot(job: JobView, nominal: datetime) -> Slot:
    """A slot with its chosen time: where a person moved it, or the window's decision, or the nominal time itself."""
    if job.moved_to is not None and nominal == job.moved_slot:
        return Slot(nominal, job.moved_to)
    window, timezone = job.window_at(nominal)
    if window is None:
        return Slot(nominal, nominal)
    decision = decide(window.request(job.name, nominal, timezone))
    if decision.chosen_time is None:
        return Slot(nominal, nominal, decision, unschedulable=True)
    return Slot(nominal, decision.chosen_time, decision)


def deadline_passed(chosen: datetime, deadline: timedelta | None, now: datetime) -> bool:
    """Whether a run chosen for `chosen` may no longer start; both sides count whole seconds."""
    return deadline is not None and now.replace(microsecond=0) > (chosen + deadline).replace(microsecond=0)
