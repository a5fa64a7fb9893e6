"""The future twice: as it stands, and as it would be after a change; occurrence by occurrence, and in all.

A slot is known by its nominal time. One that both futures have is kept, or moved where it would start at another time;
so it is never both removed and added. What has started already is nobody's to change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.interval import Every, Iso8601
from horae.core.job import Settings
from horae.core.lifecycle import JobState, RunState
from horae.core.load import Gauge, Load
from horae.core.occurrence import due
from horae.core.policy import Bounded
from horae.core.schedule import Cron, Once, Schedule
from horae.core.slot import JobView, decided_slot
from horae.core.succession import Stage, Succession, in_force, succeeded
from horae.core.update import Update

FEW = 5
"""Occurrences of each kind that are named."""
MOST_EFFORT = 6_000_000
"""Slots that are looked at for each part of an answer."""
WINDOW_EFFORT = 30
"""Slots that take as long as one with a window, whose start is to be decided."""
MOST_OF_STRANGERS = 20_000
"""Slots of a schedule that is not ours: it cannot count them, and may never end."""
LONGEST_LOAD = timedelta(days=31)
STEPS = 84
MOST_KEPT = 500_000
"""Slots that are remembered, for the next job with the same schedule."""
_SECOND = timedelta(seconds=1)
_COUNTED = (Cron, Every, Iso8601, Once)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A slot with its start; `was`: when it would have started before."""

    slot: datetime
    start: datetime
    was: datetime | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a change does to the slots after now, up to `until`: how many, and the first few of each kind."""

    until: datetime
    added: int = 0
    removed: int = 0
    moved: int = 0
    kept: int = 0
    first_added: tuple[Occurrence, ...] = ()
    first_removed: tuple[Occurrence, ...] = ()
    first_moved: tuple[Occurrence, ...] = ()

    @property
    def changes(self) -> int:
        return self.added + self.removed + self.moved


@dataclass(frozen=True, slots=True)
class Prospect:
    """A job on both sides of a change; None: it is not there, or never comes due by itself. A job that does not change
    has one view on both sides. `until` bounds what is compared; `seconds` is how long its runs take."""

    name: str
    before: JobView | None
    after: JobView | None
    until: datetime | None = None
    seconds: int = 60

    @property
    def is_changed(self) -> bool:
        return self.before is not self.after


@dataclass(frozen=True, slots=True)
class Outlook:
    """`forecasts` of the jobs that change, by name. `load_until`: how far the load was looked at, on both sides.
    `unasked`: jobs whose schedules raised, with what they said."""

    forecasts: dict[str, Forecast]
    until: datetime
    before: Load
    after: Load
    load_until: datetime
    unasked: dict[str, str]


class Walks:
    """Slots of schedules within (begin, end], each schedule walked once as long as there is room to remember."""

    def __init__(self, begin: datetime, end: datetime, decided: Walks | None = None) -> None:
        """`decided`: other walks from the same moment, whose decisions need not be made again."""
        self.begin, self.end = begin, end
        self.decided: dict[int, tuple[JobView, list[tuple[datetime, datetime]]]] = {}
        if decided is not None and decided.end >= end:
            self.decided = decided.decided
        self._known: dict[Schedule, tuple[datetime, ...]] = {}
        self._room = MOST_KEPT

    def slots(self, schedule: Schedule) -> tuple[datetime, ...]:
        found = self._known.get(schedule)
        if found is None:
            walked = schedule.between(self.begin, self.end)
            found = tuple(walked if is_counted(schedule) else islice(walked, MOST_OF_STRANGERS))
            self._room -= len(found)
            if self._room < 0:
                self._known.clear()
                self._room = MOST_KEPT - len(found)
            self._known[schedule] = found
        return found

    def starts(self, view: JobView) -> list[tuple[datetime, datetime]]:
        """Slots that are to run, with their starts; one that no moment of its window will do for has none."""
        # With the view itself: as long as it is kept, nothing else has its address.
        _, found = self.decided.get(id(view), (None, None))
        if found is not None:
            return [(slot, start) for slot, start in found if slot <= self.end]
        decided = [decided_slot(view, slot) for slot in _slots(view, self)]
        found = [(each.nominal, each.chosen) for each in decided if not each.unschedulable]
        self.decided[id(view)] = view, found
        return found


def is_counted(schedule: Schedule) -> bool:
    """Whether a schedule is one of ours, which counts without walking, and ends."""
    if isinstance(schedule, Succession):
        parts = (*(stage.schedule for stage in schedule.stages), schedule.last)
        return all(part is None or is_counted(part) for part in parts)
    return isinstance(schedule, _COUNTED)


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
    """A job as it would be after a change at `now`; `before` is at `version`. None: it would never come due."""
    if before is None:
        return None if schedule is None else JobView(name, schedule, settings, now, state)
    own = before.schedule.last if isinstance(before.schedule, Succession) else before.schedule
    paused_until = before.paused_until if state is before.state else None
    if own == schedule and before.settings.window == settings.window:
        return replace(before, settings=settings, state=state, paused_until=paused_until)
    former: tuple[Stage, ...] = ()
    if before.state is not JobState.DISABLED:
        present = Stage(version, update.switch_at(before.schedule, now), own, before.settings.window)
        former = succeeded(before.former, present, now)
    holds = in_force(schedule, former)
    if holds is None:
        return None
    stays = bool(former) and before.moved_slot is not None and before.moved_slot <= former[-1].until
    return replace(
        before,
        schedule=holds,
        settings=settings,
        state=state,
        paused_until=paused_until,
        moved_slot=before.moved_slot if stays else None,
        moved_to=before.moved_to if stays else None,
        former=former,
    )


def look_ahead(
    prospects: Sequence[Prospect],
    now: datetime,
    until: datetime,
    told: Callable[[int], None] | None = None,
    effort: int = MOST_EFFORT,
) -> Outlook:
    """Both futures of all jobs, as far as the effort goes. `told` is called with how many jobs have been looked at, of
    twice as many as there are."""
    tell = told or (lambda done: None)
    unasked: dict[str, str] = {}
    changing = [each for each in prospects if each.is_changed]
    end = _reach(((view, 1) for each in changing for view in (each.before, each.after)), now, until, effort, unasked)
    forecasts: dict[str, Forecast] = {}
    walks = Walks(now, end)
    alike: dict[tuple[object, ...], Forecast] = {}
    for place, each in enumerate(changing, start=1):
        if each.name not in unasked:
            try:
                forecasts[each.name] = _forecast(each, now, walks, alike)
            except Exception as error:  # noqa: BLE001 - a user's own schedule may raise anything, and hides no other job
                unasked[each.name] = str(error) or type(error).__name__
        if not place % 100:
            tell(place)
    tell(len(prospects))
    known = [each for each in prospects if each.name not in unasked]
    before, after, load_end = _loads(known, walks, min(until, now + LONGEST_LOAD), effort, unasked, tell)
    return Outlook(forecasts, end, before, after, load_end, unasked)


# ---- slot by slot ----------------------------------------------------------------------------------------------------


def _forecast(job: Prospect, now: datetime, walks: Walks, alike: dict[tuple[object, ...], Forecast]) -> Forecast:
    until = walks.end if job.until is None else min(walks.end, job.until)
    if not all(view is None or _is_plain(view) for view in (job.before, job.after)):
        was, will = ({} if view is None else dict(walks.starts(view)) for view in (job.before, job.after))
        return _compared(was, will, now, until, job.before)
    key = (*_rhythm(job.before), *_rhythm(job.after), until)
    found = alike.get(key)
    if found is None:
        was = {slot: slot for slot in _slots(job.before, walks)}
        will = {slot: slot for slot in _slots(job.after, walks)}
        found = alike[key] = _compared(was, will, now, until, None)
    return found


def _rhythm(view: JobView | None) -> tuple[object, ...]:
    return (None,) if view is None else (view.schedule, view.state, view.paused_until)


def _compared(
    was: dict[datetime, datetime], will: dict[datetime, datetime], now: datetime, until: datetime, view: JobView | None
) -> Forecast:
    if view is not None:
        # A window may start a slot before its time: what has begun is not compared.
        begun = [slot for slot, start in was.items() if start <= now and slot <= view.planned_until]
        for slot in begun:
            del was[slot]
            will.pop(slot, None)
    added = sorted(slot for slot in will.keys() - was.keys() if slot <= until)
    removed = sorted(slot for slot in was.keys() - will.keys() if slot <= until)
    both = was.keys() & will.keys()
    moved = sorted(slot for slot in both if was[slot] != will[slot] and slot <= until)
    stay = len(both) if until >= max(both, default=until) else sum(slot <= until for slot in both)
    return Forecast(
        until,
        len(added),
        len(removed),
        len(moved),
        stay - len(moved),
        tuple(Occurrence(slot, will[slot]) for slot in added[:FEW]),
        tuple(Occurrence(slot, was[slot]) for slot in removed[:FEW]),
        tuple(Occurrence(slot, will[slot], was[slot]) for slot in moved[:FEW]),
    )


def _is_plain(view: JobView) -> bool:
    """Whether its runs start at their slots."""
    return view.moved_slot is None and view.settings.window is None and not any(each.window for each in view.former)


def _slots(view: JobView | None, walks: Walks) -> Sequence[datetime]:
    """The slots that are to run: none of a job that is disabled, of one that is paused those after the pause."""
    if view is None or view.state is JobState.DISABLED:
        return ()
    slots = walks.slots(view.schedule)
    if view.state is not JobState.PAUSED:
        return slots
    return () if view.paused_until is None else slots[bisect_left(slots, view.paused_until) :]


# ---- all together ----------------------------------------------------------------------------------------------------


def _loads(
    prospects: Sequence[Prospect],
    walked: Walks,
    until: datetime,
    effort: int,
    unasked: dict[str, str],
    tell: Callable[[int], None],
) -> tuple[Load, Load, datetime]:
    now = walked.begin
    groups: dict[tuple[object, ...], tuple[JobView, list[int]]] = {}
    apart: list[tuple[JobView, int, int]] = []
    for each in prospects:
        sides = ((0, each.before),) if not each.is_changed else ((1, each.before), (2, each.after))
        for side, view in sides:
            if view is None or view.state is JobState.DISABLED:
                continue
            if not _is_plain(view):
                apart.append((view, each.seconds, side))
                continue
            overlap = view.settings.overlap
            key = (*_rhythm(view), each.seconds, overlap)
            groups.setdefault(key, (view, [0, 0, 0]))[1][side] += 1
    grouped = [(view, counts, _seconds_of(key), key) for key, (view, counts) in groups.items()]
    views = [(view, 1) for view, _, _, _ in grouped] + [(view, WINDOW_EFFORT) for view, _, _ in apart]
    end = _reach(iter(views), now, until, effort, unasked)
    walks = Walks(now, end, walked)
    # From the whole minute on: the busiest minute is one that clocks show.
    begin = now.replace(second=0, microsecond=0)
    span = max(1, (end - begin) // _SECOND)
    gauges = [Gauge(span) for _ in range(3)]
    offsets = _Offsets(begin)
    done, total = 0, len(grouped) + len(apart)
    for view, counts, seconds, _ in sorted(grouped, key=lambda each: str(each[0].schedule)):
        starts = [offsets[at] for at in _slots(view, walks)] if view.name not in unasked else []
        for gauge, count in zip(gauges, counts, strict=True):
            if count:
                gauge.add(starts, seconds, view.settings.overlap, count)
        done += 1
        if not done % 100:
            tell(len(prospects) + done * len(prospects) // total)
    for view, seconds, side in apart:
        if view.name not in unasked:
            starts = sorted(offsets[start] for _, start in walks.starts(view))
            gauges[side].add(starts, seconds, view.settings.overlap)
        done += 1
        if not done % 100:
            tell(len(prospects) + done * len(prospects) // total)
    both, only_before, only_after = gauges
    return both.with_more(only_before).load(begin, STEPS), both.with_more(only_after).load(begin, STEPS), end


def _seconds_of(key: tuple[object, ...]) -> int:
    seconds = key[-2]
    assert isinstance(seconds, int)
    return seconds


class _Offsets(dict[datetime, int]):
    """Moments as seconds since the beginning: most jobs share theirs."""

    def __init__(self, begin: datetime) -> None:
        super().__init__()
        self._begin = begin

    def __missing__(self, at: datetime) -> int:
        found = self[at] = (at - self._begin) // _SECOND
        return found


def _reach(
    views: Iterable[tuple[JobView | None, int]], now: datetime, until: datetime, effort: int, unasked: dict[str, str]
) -> datetime:
    """How far all of it can be looked at: `until`, or nearer where that would be too much."""
    costs: dict[Schedule, int] = {}
    for view, weight in views:
        if view is None or view.state is JobState.DISABLED or view.name in unasked:
            continue
        weighs = weight if _is_plain(view) else WINDOW_EFFORT
        shared = weight == 1 and weighs == 1
        costs[view.schedule] = max(costs.get(view.schedule, 0), 1) if shared else costs.get(view.schedule, 0) + weighs
        if not is_counted(view.schedule):
            try:
                next(iter(view.schedule.between(now, until)), None)
            except Exception as error:  # noqa: BLE001 - a user's own schedule may raise anything
                unasked[view.name] = str(error) or type(error).__name__
                costs.pop(view.schedule, None)
    end = until
    for _ in range(8):
        total = sum(weighs * _count(schedule, now, end) for schedule, weighs in costs.items())
        if total <= effort or end <= now + _SECOND:
            return end
        end = now + max(_SECOND, (end - now) * (effort / total) * 0.95)
        end = end.replace(microsecond=0)
    return end


def _count(schedule: Schedule, now: datetime, end: datetime) -> int:
    if end <= now:
        return 0
    return schedule.count(now, end) if is_counted(schedule) else MOST_OF_STRANGERS


# ---- what is owed ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owed:
    """Slots of a job that came and were not seen to: how many were `missed`, how many runs would catch up on them now,
    and by which rule. `more`: there are more than were counted."""

    job: str
    missed: int
    runs: int
    strategy: str
    more: bool = False


def owed(view: JobView, now: datetime) -> Owed | None:
    """What a job owes at `now`; None where nothing was missed."""
    plan = due(view, now)
    missed = sum(birth.count for birth in plan.births if birth.state is RunState.MISSED or birth.is_recovery)
    if not missed and not plan.more:
        return None
    runs = sum(birth.is_recovery and birth.state in (RunState.PENDING, RunState.QUEUED) for birth in plan.births)
    policy = "none" if view.first_seen else view.settings.recovery
    return Owed(view.name, missed, runs, "bounded" if isinstance(policy, Bounded) else policy, plan.more)
