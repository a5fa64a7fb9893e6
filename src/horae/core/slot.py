"""What planning reads and what it answers: the job as it stands, its slots with their chosen times, the plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from horae.core.decision import Decision, decide
from horae.core.duration import format_duration
from horae.core.instant import rfc3339, shifted
from horae.core.interval import Every, Iso8601
from horae.core.job import JobSpec, Settings
from horae.core.lifecycle import JobState, RunState
from horae.core.overlap import ActiveRun, Ending
from horae.core.pause import PauseRow
from horae.core.schedule import Cron, Once, Schedule, Union
from horae.core.succession import Stage, stage_at
from horae.core.window import Window
from horae.errors import InvalidTime, InvalidWindow, shown

_MICROSECOND = timedelta(microseconds=1)
MOST_OPEN = 100_000
"""Slots of one job whose windows may be open at once: each is a row that waits."""


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
    """How far COMPLETED runs cover its slots, for compressed recovery; None until it is planned under that policy."""
    first_seen: bool = False
    """Its last slot had passed when it was defined (`defined_late`): within its grace it runs, later it is missed."""
    active: tuple[ActiveRun, ...] = ()
    former: tuple[Stage, ...] = ()
    """Earlier versions that `schedule` begins with: their slots keep their windows."""
    newest_paused: PauseRow | None = None
    """The newest row of the pause that goes on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", JobState(self.state))

    @property
    def coverage(self) -> datetime | None:
        """Where coverage begins to be owed; None where its recovery does not compress."""
        if self.settings.recovery != "compressed":
            return None
        return self.planned_until if self.covered_until is None else self.covered_until

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


def passed_time(schedule: Schedule | None, now: datetime) -> datetime | None:
    """The last time of a schedule whose every time has passed at `now`; None where one is to come."""
    if isinstance(schedule, Once):
        return schedule.at if schedule.at <= now else None
    if schedule is None or not _may_end(schedule) or schedule.next(now) is not None:
        return None
    return schedule.previous(now + _MICROSECOND)


def _may_end(schedule: Schedule) -> bool:
    """Whether it may have a last time. A schedule of a user's own is not asked: it may raise anything."""
    if isinstance(schedule, Union):
        return all(_may_end(part) for part in schedule.parts)
    if isinstance(schedule, Cron | Every):
        return schedule.end is not None
    return isinstance(schedule, Once | Iso8601)


def defined_late(schedule: Schedule, defined_at: datetime) -> bool:
    """Whether a schedule was defined after its last time: nothing was missed then, so there is nothing to catch up
    on."""
    return passed_time(schedule, defined_at) is not None


def is_too_late(schedule: Schedule | None, grace: timedelta, now: datetime) -> bool:
    """Whether every time of a schedule is older than its grace when it is defined: it could only be missed."""
    if isinstance(schedule, Once):
        return shifted(schedule.at, grace) < now
    return schedule is not None and _may_end(schedule) and schedule.next(shifted(now, -grace) - _MICROSECOND) is None


def check_time(spec: JobSpec, present: JobSpec | None, grace: timedelta, now: datetime) -> None:
    """Raises InvalidTime where a job is given a schedule whose every time is older than its grace. `present` is the job
    as it stands; both schedules are anchored. A new job that is disabled, from an export say, has nothing to start."""
    schedule = spec.schedule
    given = spec.state is not JobState.DISABLED if present is None else schedule != present.schedule
    if not given or schedule is None or not is_too_late(schedule, grace, now):
        return
    last, name = passed_time(schedule, now), shown(spec.name)
    if last is None:
        raise InvalidTime(
            f"Job {name}: its schedule has no time at all", hint="It ends before its first time: let it end later."
        )
    which = "its time" if isinstance(schedule, Once) else "the last of its times,"
    told = f"Job {name}: {which} {rfc3339(last)}{'' if isinstance(schedule, Once) else ','}"
    raise InvalidTime(
        f"{told} passed longer ago than its misfire_grace, {format_duration(grace)}",
        hint="Name a time to come; to run it now, trigger it.",
    )


def check_moved(name: str, at: datetime, grace: timedelta, now: datetime) -> None:
    """Raises InvalidTime where the next run of a job is to be moved to a time that is older than its grace."""
    if shifted(at, grace) < now:
        raise InvalidTime(
            f"Job {shown(name)}: {rfc3339(at)} passed longer ago than its misfire_grace, {format_duration(grace)}",
            hint="Move the run to a time to come; to run it now, trigger it.",
        )


def check_window(spec: JobSpec, window: Window | None, now: datetime) -> None:
    """Raises InvalidWindow where a window opens so long before its slots that more than MOST_OPEN are open at once."""
    if window is None or spec.schedule is None or not window.lead:
        return
    opened = spec.schedule.between(now, shifted(now, window.lead))
    if next(islice(opened, MOST_OPEN, None), None) is not None:
        raise InvalidWindow(
            f"Job {shown(spec.name)}: its window opens {format_duration(window.lead)} before each slot, so more than "
            f"{MOST_OPEN} slots would be open at once",
            hint="Make the window shorter, or the schedule less frequent.",
        )


@dataclass(frozen=True, slots=True)
class Birth:
    """One row to write. `covers_*` are set for a run that carries a span and for many slots in one row: those after
    `covers_from`, up to and with `covers_to`. `count` is how many slots the row stands for."""

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
    covered_until: datetime | None = None
    grown: PauseRow | None = None
    """The job's `newest_paused` as it stands for more slots now."""


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
    return deadline is not None and now.replace(microsecond=0) > shifted(chosen, deadline).replace(microsecond=0)
