"""A job as decisions about its slots read it, its slots with their chosen times, and the rows to write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from horae.core.change.succession import Stage, stage_at
from horae.core.job.definition import JobSpec, Settings
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun, Ending
from horae.core.run.pause import PauseRow
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.time.duration import format_duration
from horae.core.time.instant import rfc3339, shifted
from horae.core.window.decision import Decision, decide
from horae.core.window.window import Window
from horae.errors import InvalidTime, InvalidWindow, shown

_MICROSECOND = timedelta(microseconds=1)
MOST_OPEN = 100_000
"""How many slots of one job may have open windows at once: each of them is a waiting row."""


@dataclass(frozen=True, slots=True)
class JobView:
    """What decides a job's due slots. `planned_until` is the job's cursor: the last slot that was decided."""

    name: str
    schedule: Schedule
    settings: Settings
    planned_until: datetime
    state: JobState = JobState.ENABLED
    paused_until: datetime | None = None
    moved_slot: datetime | None = None
    """The slot that an operator rescheduled, by its scheduled time."""
    moved_to: datetime | None = None
    """When the moved slot is to start instead."""
    covered_until: datetime | None = None
    """How far COMPLETED runs cover the job's slots, for compressed recovery; None until a slot is decided under that
    policy."""
    first_seen: bool = False
    """The job's last slot had passed when it was defined (`defined_late`). Within its grace it runs, later it is
    MISSED."""
    active: tuple[ActiveRun, ...] = ()
    former: tuple[Stage, ...] = ()
    """Earlier versions that `schedule` begins with. Their slots keep their windows."""
    newest_paused: PauseRow | None = None
    """The newest row of the pause that is in force."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", JobState(self.state))

    @property
    def coverage(self) -> datetime | None:
        """The moment after which slots have to be covered; None where the recovery is not compressed."""
        if self.settings.recovery != "compressed":
            return None
        return self.planned_until if self.covered_until is None else self.covered_until

    def window_at(self, nominal: datetime) -> tuple[Window | None, str]:
        """The window of a slot, and the zone that the window is read in: that of the slot's schedule."""
        stage = stage_at(self.former, nominal)
        if stage is None:
            return self.settings.window, self.schedule.timezone
        return stage.window, "UTC" if stage.schedule is None else stage.schedule.timezone

    def reach(self) -> tuple[timedelta, timedelta]:
        """How long before its scheduled time a slot may start, and how long after."""
        ahead = [stage.window for stage in self.former if stage.until > self.planned_until]
        windows = [window for window in (self.settings.window, *ahead) if window]
        nothing = timedelta(0)
        return max((each.lead for each in windows), default=nothing), max(
            (each.lag for each in windows), default=nothing
        )


def passed_time(schedule: Schedule | None, now: datetime) -> datetime | None:
    """The last slot of a schedule whose every slot has passed at `now`; None where a slot is, or may be, to come."""
    if isinstance(schedule, Once):
        return schedule.at if schedule.at <= now else None
    if schedule is None or not _may_end(schedule) or schedule.next(now) is not None:
        return None
    return schedule.previous(now + _MICROSECOND)


def _may_end(schedule: Schedule) -> bool:
    """Whether the schedule may have a last slot. A custom schedule is not asked, because it may raise anything."""
    if isinstance(schedule, Union):
        return all(_may_end(part) for part in schedule.parts)
    if isinstance(schedule, Cron | Every):
        return schedule.end is not None
    return isinstance(schedule, Once | Iso8601)


def defined_late(schedule: Schedule, defined_at: datetime) -> bool:
    """Whether a schedule was defined after its last slot. Nothing was missed then, so there is nothing to catch up
    on."""
    return passed_time(schedule, defined_at) is not None


def is_too_late(schedule: Schedule | None, grace: timedelta, now: datetime) -> bool:
    """Whether every slot of a schedule is older than its misfire grace when it is defined, so that it could only be
    missed."""
    if isinstance(schedule, Once):
        return shifted(schedule.at, grace) < now
    return schedule is not None and _may_end(schedule) and schedule.next(shifted(now, -grace) - _MICROSECOND) is None


def check_time(spec: JobSpec, present: JobSpec | None, grace: timedelta, now: datetime) -> None:
    """Raises InvalidTime where a job is given a schedule whose every slot is older than its misfire grace.

    `present` is the job as it stands; None: the job is new. Both schedules are anchored. A new job that is disabled,
    for example from an export, is not checked: nothing of it starts.
    """
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
    """Raises InvalidTime where the next run of a job is to be moved to a time older than its misfire grace."""
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
class NewRunRow:
    """One row to write: a run to create, or slots that will not run. `covers_*` are set for a run that carries a span,
    and for many slots in one row: those after `covers_from`, up to and including `covers_to`. `count` is how many slots
    the row stands for."""

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
class DueDecision:
    """What to write in one transaction, and the job's cursors after it.

    `next_run_time` is the time that users see; `wake_at` is when to decide again. `resumed`: the job's pause is over.
    `more`: the limit cut the pass short.
    """

    births: tuple[NewRunRow, ...]
    endings: tuple[Ending, ...]
    cancels: tuple[str, ...]
    planned_until: datetime
    next_run_time: datetime | None
    wake_at: datetime | None
    resumed: bool = False
    more: bool = False
    covered_until: datetime | None = None
    grown: PauseRow | None = None
    """The job's `newest_paused`, extended over more slots."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot with the start chosen for it. `chosen` is the scheduled time where no start could be chosen."""

    nominal: datetime
    chosen: datetime
    decision: Decision | None = None
    unschedulable: bool = False


def decided_slot(job: JobView, nominal: datetime) -> Slot:
    """The slot with its start: where an operator moved it, else the window's decision, else the scheduled time
    itself."""
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
    """Whether a run with this chosen time may no longer start. Both sides are compared in whole seconds."""
    return deadline is not None and now.replace(microsecond=0) > shifted(chosen, deadline).replace(microsecond=0)
