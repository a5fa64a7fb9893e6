"""The slots of jobs before and after a change: slot by slot, and as load.

A slot is identified by its scheduled time. A slot that exists on both sides is kept, or moved where its start differs,
so it is never both removed and added. Runs that have started are not compared: a change cannot alter them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.change.changed_job import MOST_CUSTOM_SLOTS, ChangedJob
from horae.core.change.changed_job import changed_view as changed_view
from horae.core.change.load import LoadCounter, PeakLoad
from horae.core.change.succession import Succession
from horae.core.run.job_view import JobView, Slot, decided_slot
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.time.instant import shifted
from horae.core.window.distribution import UNIFORM

FEW = 5
"""How many slots of each kind a forecast lists."""
MOST_EFFORT = 1_500_000
"""How many slots each part of an answer examines at most: a few seconds of work."""
UNIFORM_EFFORT, DRAWN_EFFORT, CONSTRAINED_EFFORT = 4, 10, 100
"""The cost of a slot with a window, in slots without one: a uniform window, any other distribution, one with
constraints."""
LONGEST_LOAD = timedelta(days=31)
STEPS = 84
MOST_KEPT = 500_000
"""How many slots are cached for the next job with the same schedule."""
_SECOND = timedelta(seconds=1)
_COUNTED = (Cron, Every, Iso8601, Once)


@dataclass(frozen=True, slots=True)
class ForecastSlot:
    """A slot with its start. `was` is its start before the change, where that differs."""

    slot: datetime
    start: datetime
    was: datetime | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a change does to the slots after now, up to `until`: how many are of each kind, and the first few of
    them."""

    until: datetime
    added: int = 0
    removed: int = 0
    moved: int = 0
    kept: int = 0
    first_added: tuple[ForecastSlot, ...] = ()
    first_removed: tuple[ForecastSlot, ...] = ()
    first_moved: tuple[ForecastSlot, ...] = ()
    next_before: datetime | None = None
    """The first slot beyond `until`, where the side before the change has none up to it."""
    next_after: datetime | None = None
    """The first slot beyond `until`, where the side after the change has none up to it."""
    unschedulable: int = 0
    """Slots after the change for which no draw in their windows found an allowed time."""

    @property
    def starts(self) -> int:
        """How many slots are to start a run after the change."""
        return self.added + self.moved + self.kept

    @property
    def changes(self) -> int:
        return self.added + self.removed + self.moved


@dataclass(frozen=True, slots=True)
class JobForecasts:
    """`forecasts` are those of the jobs that change, by name, up to `until`. `before` and `after` are the load of all
    jobs up to `load_until`. `unasked` maps jobs whose schedules raised to the error's text."""

    forecasts: dict[str, Forecast]
    until: datetime
    before: PeakLoad
    after: PeakLoad
    load_until: datetime
    unasked: dict[str, str]


class SlotCache:
    """Slots of schedules within (begin, end]. Each schedule is walked once as long as the cache has room."""

    def __init__(self, begin: datetime, end: datetime, decided: SlotCache | None = None) -> None:
        """`decided` is another instance with the same `begin`, whose decisions are reused where it reaches as far."""
        self.begin, self.end = begin, end
        self.decided: dict[int, tuple[JobView, list[tuple[datetime, datetime]]]] = {}
        self.barred: dict[int, int] = {}
        """By a view's `id`: how many of its slots find no start."""
        if decided is not None and decided.end >= end:
            self.decided, self.barred = decided.decided, decided.barred
        self._known: dict[Schedule, tuple[datetime, ...]] = {}
        self._room = MOST_KEPT

    def slots(self, schedule: Schedule) -> tuple[datetime, ...]:
        found = self._known.get(schedule)
        if found is None:
            walked = schedule.between(self.begin, self.end)
            found = tuple(walked if is_counted(schedule) else islice(walked, MOST_CUSTOM_SLOTS))
            self._room -= len(found)
            if self._room < 0:
                self._known.clear()
                self._room = MOST_KEPT - len(found)
            self._known[schedule] = found
        return found

    def starts(self, view: JobView, stays: datetime | None = None) -> list[tuple[datetime, datetime]]:
        """Slots that are to run, with their starts. A slot that finds no start in its window is left out. `stays` is
        `ChangedJob.stays` where the view is the side after the change."""
        # The entry holds the view itself, so that no other object can get its id.
        _, found = self.decided.get(id(view), (None, None))
        if found is not None:
            return [(slot, start) for slot, start in found if slot <= self.end]
        # Runs that exist have their starts already, which an operator may have moved.
        born = {run.scheduled_time: run.chosen_time for run in view.active}
        slots = _slots(view, self)
        if view.state is JobState.ENABLED:
            # With a window after the scheduled time, a slot that has passed may not have started yet.
            slots = (*sorted(slot for slot in born if slot <= self.begin), *slots)
        if stays is not None:
            ahead = [slot for slot in born if stays < slot <= min(view.planned_until, self.end)]
            slots = sorted((*ahead, *(slot for slot in slots if not stays < slot <= view.planned_until)))
        decided = [Slot(slot, born[slot]) if slot in born else decided_slot(view, slot) for slot in slots]
        found = [(each.nominal, each.chosen) for each in decided if not each.unschedulable]
        self.barred[id(view)] = len(decided) - len(found)
        self.decided[id(view)] = view, found
        return found


def is_counted(schedule: Schedule) -> bool:
    """Whether a schedule is a built-in one, which counts its slots without walking them and whose iteration ends."""
    if isinstance(schedule, Succession):
        parts = (*(stage.schedule for stage in schedule.stages), schedule.last)
        return all(part is None or is_counted(part) for part in parts)
    return isinstance(schedule, _COUNTED)


def forecast_jobs(
    prospects: Sequence[ChangedJob],
    now: datetime,
    until: datetime,
    told: Callable[[int], None] | None = None,
    effort: int = MOST_EFFORT,
) -> JobForecasts:
    """Forecasts both sides of all jobs, as far as `effort`, a number of slots, allows. `told` is called with the
    progress, out of twice the number of jobs."""
    tell = told or (lambda done: None)
    unasked: dict[str, str] = {}
    changing = [each for each in prospects if each.is_changed]
    end = _reach((view for each in changing for view in (each.before, each.after)), now, until, effort, unasked)
    forecasts: dict[str, Forecast] = {}
    walks = SlotCache(now, end)
    alike: dict[tuple[object, ...], Forecast] = {}
    for place, each in enumerate(changing, start=1):
        if each.name not in unasked:
            try:
                forecasts[each.name] = _forecast(each, now, walks, alike)
            except Exception as error:  # noqa: BLE001 - a custom schedule may raise anything; other jobs go on
                unasked[each.name] = str(error) or type(error).__name__
        if not place % 100:
            tell(place)
    tell(len(prospects))
    known = [each for each in prospects if each.name not in unasked]
    before, after, load_end = _loads(known, walks, min(until, now + LONGEST_LOAD), effort, unasked, tell)
    return JobForecasts(forecasts, end, before, after, load_end, unasked)


# ---- slot by slot ----------------------------------------------------------------------------------------------------


def _forecast(job: ChangedJob, now: datetime, walks: SlotCache, alike: dict[tuple[object, ...], Forecast]) -> Forecast:
    until, stays = walks.end, job.stays
    if stays is not None or not all(view is None or _is_plain(view) for view in (job.before, job.after)):
        was = {} if job.before is None else dict(walks.starts(job.before))
        will = {} if job.after is None else dict(walks.starts(job.after, stays))
        barred = 0 if job.after is None else walks.barred.get(id(job.after), 0)
        found = _compared(was, will, now, until, job.before)
        return _with_next(replace(found, unschedulable=barred), job)
    key = (*_rhythm(job.before), *_rhythm(job.after), until)
    known = alike.get(key)
    if known is None:
        was = {slot: slot for slot in _slots(job.before, walks)}
        will = {slot: slot for slot in _slots(job.after, walks)}
        known = alike[key] = _with_next(_compared(was, will, now, until, None), job)
    return known


def _with_next(found: Forecast, job: ChangedJob) -> Forecast:
    """Adds the next slot of each side that has none up to the end."""
    before = None if found.removed or found.moved or found.kept else _next(job.before, found.until)
    after = None if found.starts or found.unschedulable else _next(job.after, found.until)
    return replace(found, next_before=before, next_after=after) if before or after else found


def _next(view: JobView | None, after: datetime) -> datetime | None:
    if view is None or view.state is JobState.DISABLED:
        return None
    if view.state is JobState.PAUSED:
        return (
            None if view.paused_until is None else view.schedule.next(max(after, shifted(view.paused_until, -_SECOND)))
        )
    return view.schedule.next(after)


def _rhythm(view: JobView | None) -> tuple[object, ...]:
    return (None,) if view is None else (view.schedule, view.state, view.paused_until)


def _compared(
    was: dict[datetime, datetime], will: dict[datetime, datetime], now: datetime, until: datetime, view: JobView | None
) -> Forecast:
    if view is not None:
        # A window may start a run before its scheduled time. A run that has started is not compared.
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
        tuple(ForecastSlot(slot, will[slot]) for slot in added[:FEW]),
        tuple(ForecastSlot(slot, was[slot]) for slot in removed[:FEW]),
        tuple(ForecastSlot(slot, will[slot], was[slot]) for slot in moved[:FEW]),
    )


def _is_plain(view: JobView) -> bool:
    """Whether every run starts at its scheduled time."""
    plain = view.moved_slot is None and view.settings.window is None and not view.active
    return plain and not any(each.window for each in view.former)


def _slots(view: JobView | None, walks: SlotCache) -> Sequence[datetime]:
    """The slots that are to run: none of a disabled job, those after the pause of a paused one."""
    if view is None or view.state is JobState.DISABLED:
        return ()
    slots = walks.slots(view.schedule)
    if view.state is not JobState.PAUSED:
        return slots
    return () if view.paused_until is None else slots[bisect_left(slots, view.paused_until) :]


# ---- all together ----------------------------------------------------------------------------------------------------


def _loads(
    prospects: Sequence[ChangedJob],
    walked: SlotCache,
    until: datetime,
    effort: int,
    unasked: dict[str, str],
    tell: Callable[[int], None],
) -> tuple[PeakLoad, PeakLoad, datetime]:
    now = walked.begin
    groups: dict[tuple[object, ...], tuple[JobView, list[int]]] = {}
    apart: list[tuple[JobView, int, int, datetime | None]] = []
    for each in prospects:
        sides = ((0, each.before),) if not each.is_changed else ((1, each.before), (2, each.after))
        for side, view in sides:
            if view is None or view.state is JobState.DISABLED:
                continue
            stays = each.stays if side == 2 else None
            if stays is not None or not _is_plain(view):
                apart.append((view, each.seconds, side, stays))
                continue
            overlap = view.settings.overlap
            key = (*_rhythm(view), each.seconds, overlap)
            groups.setdefault(key, (view, [0, 0, 0]))[1][side] += 1
    grouped = [(view, counts, _seconds_of(key), key) for key, (view, counts) in groups.items()]
    end = _reach((view for view, *_ in (*grouped, *apart)), now, until, effort, unasked)
    walks = SlotCache(now, end, walked)
    # Begins at a whole minute, so that the busiest minute is a minute of the clock.
    begin = now.replace(second=0, microsecond=0)
    span = max(1, (end - begin) // _SECOND)
    gauges = [LoadCounter(span) for _ in range(3)]
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
    for view, seconds, side, stays in apart:
        if view.name not in unasked:
            starts = sorted(offsets[start] for _, start in walks.starts(view, stays))
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
    """Instants as seconds since `begin`, cached because most jobs share them."""

    def __init__(self, begin: datetime) -> None:
        super().__init__()
        self._begin = begin

    def __missing__(self, at: datetime) -> int:
        found = self[at] = (at - self._begin) // _SECOND
        return found


def _reach(
    views: Iterable[JobView | None], now: datetime, until: datetime, effort: int, unasked: dict[str, str]
) -> datetime:
    """How far all of the slots can be examined: `until`, or an earlier moment where that would take too much effort."""
    costs: dict[Schedule, int] = {}
    for view in views:
        if view is None or view.state is JobState.DISABLED or view.name in unasked:
            continue
        weighs, known = _effort(view), costs.get(view.schedule, 0)
        # Jobs without windows share one walk of their schedule.
        costs[view.schedule] = max(known, 1) if weighs == 1 else known + weighs
        if not is_counted(view.schedule):
            try:
                next(iter(view.schedule.between(now, until)), None)
            except Exception as error:  # noqa: BLE001 - a custom schedule may raise anything
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


def _effort(view: JobView) -> int:
    if _is_plain(view):
        return 1
    windows = [each for each in (view.settings.window, *(stage.window for stage in view.former)) if each is not None]
    if any(each.constraints.to_dict() for each in windows):
        return CONSTRAINED_EFFORT
    return DRAWN_EFFORT if any(each.distribution != UNIFORM for each in windows) else UNIFORM_EFFORT


def _count(schedule: Schedule, now: datetime, end: datetime) -> int:
    if end <= now:
        return 0
    return schedule.count(now, end) if is_counted(schedule) else MOST_CUSTOM_SLOTS
