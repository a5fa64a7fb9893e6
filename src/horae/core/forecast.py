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

from horae.core.distribution import UNIFORM
from horae.core.instant import shifted
from horae.core.interval import Every, Iso8601
from horae.core.lifecycle import JobState
from horae.core.load import Gauge, Load
from horae.core.prospect import MOST_OF_STRANGERS, Prospect
from horae.core.prospect import changed_view as changed_view
from horae.core.schedule import Cron, Once, Schedule
from horae.core.slot import JobView, Slot, decided_slot
from horae.core.succession import Succession

FEW = 5
"""Occurrences of each kind that are named."""
MOST_EFFORT = 1_500_000
"""Slots that are looked at for each part of an answer: some seconds of work."""
UNIFORM_EFFORT, DRAWN_EFFORT, CONSTRAINED_EFFORT = 4, 10, 100
"""Slots that take as long as one with a window: all of it alike, drawn otherwise, or with times to keep off."""
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
    next_before: datetime | None = None
    """The first slot beyond `until`, where there is none up to it; on both sides."""
    next_after: datetime | None = None
    unschedulable: int = 0
    """Slots after the change for which no draw in their windows found an allowed time."""

    @property
    def starts(self) -> int:
        """Slots that are to start after the change."""
        return self.added + self.moved + self.kept

    @property
    def changes(self) -> int:
        return self.added + self.removed + self.moved


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
        self.barred: dict[int, int] = {}
        """How many slots of decided views find no start."""
        if decided is not None and decided.end >= end:
            self.decided, self.barred = decided.decided, decided.barred
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

    def starts(self, view: JobView, stays: datetime | None = None) -> list[tuple[datetime, datetime]]:
        """Slots that are to run, with their starts; one that finds no start in its window has none. `stays` is
        that of a Prospect whose later side the view is."""
        # With the view itself: as long as it is kept, nothing else has its address.
        _, found = self.decided.get(id(view), (None, None))
        if found is not None:
            return [(slot, start) for slot, start in found if slot <= self.end]
        # What was born ahead has its start already, which somebody may have moved.
        born = {run.scheduled_time: run.chosen_time for run in view.active}
        slots = _slots(view, self)
        if view.state is JobState.ENABLED:
            # In a window after its nominal time, a slot that has come may still be to start.
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
    """Whether a schedule is one of ours, which counts without walking, and ends."""
    if isinstance(schedule, Succession):
        parts = (*(stage.schedule for stage in schedule.stages), schedule.last)
        return all(part is None or is_counted(part) for part in parts)
    return isinstance(schedule, _COUNTED)


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
    end = _reach((view for each in changing for view in (each.before, each.after)), now, until, effort, unasked)
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


def _with_next(found: Forecast, job: Prospect) -> Forecast:
    """With what comes next on a side that has nothing up to the end."""
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
    plain = view.moved_slot is None and view.settings.window is None and not view.active
    return plain and not any(each.window for each in view.former)


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
    """Moments as seconds since the beginning: most jobs share theirs."""

    def __init__(self, begin: datetime) -> None:
        super().__init__()
        self._begin = begin

    def __missing__(self, at: datetime) -> int:
        found = self[at] = (at - self._begin) // _SECOND
        return found


def _reach(
    views: Iterable[JobView | None], now: datetime, until: datetime, effort: int, unasked: dict[str, str]
) -> datetime:
    """How far all of it can be looked at: `until`, or nearer where that would be too much."""
    costs: dict[Schedule, int] = {}
    for view in views:
        if view is None or view.state is JobState.DISABLED or view.name in unasked:
            continue
        weighs, known = _effort(view), costs.get(view.schedule, 0)
        # Those that start at their slots share one walk.
        costs[view.schedule] = max(known, 1) if weighs == 1 else known + weighs
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
    return schedule.count(now, end) if is_counted(schedule) else MOST_OF_STRANGERS
