"""What other data of its zones would do to a schedule: slots that move, come and go, and starts chosen otherwise.

A slot is an instant, and people mean a wall time. Where other data have the clocks show that wall time at another
instant, the slot moves; where a gap or a fold comes or goes, slots vanish or appear. A slot that stays may yet be
started at another time: windows read their limits, and days and weeks of their seeds, on the same clocks.

Only stretches in which the two clocks differ are looked at, and what is near enough to them to be touched. A slot for
which a window finds no start is no run, by whichever data that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.custom import Custom
from horae.core.decision import decide
from horae.core.instant import EPOCH, FIRST, LAST, instant, seconds_of
from horae.core.interval import Iso8601
from horae.core.schedule import Cron, Once, Schedule, Union
from horae.core.window import Window
from horae.core.zone import REACH, UTC_ZONE, Zone, zone

Find = Callable[[str], Zone]
"""The clocks of a zone by the other data. Raises UnknownZone where they do not have it."""
MOST_SLOTS = 250_000
MOST_DECIDED = 20_000
_MARGIN = 2 * REACH
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ZoneMove:
    """One run by both data; None: there is none. `change` is moved, appears, vanishes or redrawn: the slot stays,
    and its window chooses another start. `starts_*` are the chosen starts of a job with a window."""

    change: str
    zone: str
    wall: datetime
    """What the clocks show at the slot, without an offset: the wall time that is meant."""
    before: datetime | None
    after: datetime | None
    starts_before: datetime | None = None
    starts_after: datetime | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ZoneMoves:
    """`until` is how far the slots were compared; `is_cut`: there were too many to go on to the end."""

    moves: tuple[ZoneMove, ...]
    until: datetime
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Reread:
    """A schedule whose text has times without an offset, read by the other data: such times are other instants then.
    `zones` are those that the times of each part were read in; None: the part has none."""

    schedule: Schedule
    zones: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Spoken:
    """Slots after `since` and up to `last` are the schedule's; others are those of another version. None: no end."""

    since: datetime | None = None
    last: datetime | None = None

    def kept(self, slots: Slots) -> Slots:
        low = FIRST - 1 if self.since is None else seconds_of(self.since)
        high = LAST if self.last is None else seconds_of(self.last)
        return {second: parts for second, parts in slots.items() if low < second <= high}


WHOLE = Spoken()


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a schedule, by both data, and the clocks that its wall times are read on."""

    before: Schedule
    after: Schedule
    clocks: tuple[Zone, Zone]


def on_clocks(schedule: Schedule, find: Find) -> Schedule:
    """The same schedule on the clocks that `find` gives for its zones."""
    if isinstance(schedule, Union):
        return Union(tuple(on_clocks(part, find) for part in schedule.parts))
    clocks = _clocks(schedule)
    if clocks is UTC_ZONE:
        return schedule
    if isinstance(schedule, Iso8601):
        return schedule.on_clocks(find(schedule.tz))
    made = replace(schedule)  # type: ignore[type-var]  # a Cron: nothing else has clocks
    object.__setattr__(made, "zone", find(schedule.timezone))
    return made


def zones_of(schedule: Schedule) -> tuple[str, ...]:
    """The zones whose clocks a schedule goes by, without UTC, which never changes."""
    found = (_clocks(part).key for part in _parts(schedule) if _clocks(part) is not UTC_ZONE)
    return tuple(dict.fromkeys(found))


def is_opaque(schedule: Schedule) -> bool:
    """Whether it goes by code of a user's own: nobody here knows which clocks that reads."""
    return any(isinstance(part, Custom) for part in _parts(schedule))


def first_difference(old: Zone, new: Zone, begin: datetime, until: datetime) -> datetime | None:
    """The first moment within [begin, until] at which the two clocks show different times."""
    for first, _ in _differing(old, new, seconds_of(begin), seconds_of(until)):
        return instant(first)
    return None


def zone_moves(
    identity: str,
    schedule: Schedule,
    window: Window | None,
    find: Find,
    begin: datetime,
    until: datetime,
    *,
    reread: Reread | None = None,
    spoken: Spoken = WHOLE,
) -> ZoneMoves:
    """What becomes of the runs in (begin, until]. Raises UnknownZone, and InvalidIso8601 where the start that a text
    names is skipped by the other clocks."""
    parts = _both(schedule, find, reread)
    timezone = schedule.timezone
    decider = _Decider(identity, window, timezone, zone(timezone), UTC_ZONE if timezone == "UTC" else find(timezone))
    reach = _MARGIN if window is None else _MARGIN + int(max(window.lead, window.lag).total_seconds())
    first, last = seconds_of(begin), seconds_of(until)
    spans = _joined(
        span for part in parts for span in _touched(part, max(first - reach, FIRST), min(last + reach, LAST), reach)
    )
    before, after, stop = _slots(parts, spans)
    before, after = spoken.kept(before), spoken.kept(after)
    is_cut = stop is not None
    last = last if stop is None else min(last, stop - REACH)
    found = [each for each in _compared(parts, before, after) if _lies(each, first, last)]
    told = [move for each in found if (move := _told(decider, parts, each, first)) is not None]
    kept = sorted(second for second in before.keys() & after.keys() if first < second <= last)
    if decider.reads_clocks:
        if len(kept) > MOST_DECIDED:
            last, is_cut = kept[MOST_DECIDED] - 1, True
            told = [each for each in told if seconds_of(each.before or each.after or begin) <= last]
        told += _redrawn(decider, parts, before, [second for second in kept if second <= last])
    told.sort(key=lambda each: (each.before or each.after or EPOCH, each.change))
    return ZoneMoves(tuple(told), instant(max(last, first)), is_cut)


# ---- where the clocks differ -----------------------------------------------------------------------------------------


def _clocks(schedule: Schedule) -> Zone:
    return schedule.zone if isinstance(schedule, Cron | Iso8601) else UTC_ZONE


def _parts(schedule: Schedule) -> tuple[Schedule, ...]:
    return schedule.parts if isinstance(schedule, Union) else (schedule,)


def _differing(old: Zone, new: Zone, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The stretches within [first, last], both ends included, in which the clocks show different times."""
    changes = {each.at for clocks in (old, new) for each in clocks.transitions(first, last)}
    edges = sorted({first, *changes})
    for begin, end in zip(edges, [*(edge - 1 for edge in edges[1:]), last], strict=True):
        if old.offset_at(begin) != new.offset_at(begin):
            yield begin, end


def _both(schedule: Schedule, find: Find, reread: Reread | None) -> list[_Part]:
    before = _parts(schedule)
    after = before if reread is None else _parts(reread.schedule)
    zones: tuple[str | None, ...] = (None,) * len(before) if reread is None else reread.zones
    if not len(before) == len(after) == len(zones):
        # Two parts say the same by one of the data: which belongs to which is not known any more.
        return [_Part(schedule, on_clocks(Union(after), find), (UTC_ZONE, UTC_ZONE))]
    found = []
    for was, read, named in zip(before, after, zones, strict=True):
        will = on_clocks(read, find)
        goes_by_none = _clocks(was) is UTC_ZONE and named not in (None, "UTC")
        clocks = (zone(str(named)), find(str(named))) if goes_by_none else (_clocks(was), _clocks(will))
        found.append(_Part(was, will, clocks))
    return found


_TIMES = ("at", "start", "end", "anchor")


def _touched(part: _Part, first: int, last: int, reach: int) -> list[tuple[int, int]]:
    """The stretches in which a part's slots may differ, or what windows make of them."""
    old, new = part.clocks
    if old is new:
        return []
    moved = [
        sorted((seconds_of(was), seconds_of(will)))
        for was, will in ((getattr(part.before, each, None), getattr(part.after, each, None)) for each in _TIMES)
        if was is not None and will is not None and was != will
    ]
    if not isinstance(part.before, Cron | Iso8601):
        # It goes by no clocks: only its own times may differ, and what is counted from them.
        if not moved:
            return []
        if not isinstance(part.before, Once):
            return [(first, last)]
    around = [(max(low - reach, first), min(high + reach, last)) for low, high in moved]
    return [*(each for each in around if each[0] <= each[1]), *_apart(part, first, last, reach)]


def _apart(part: _Part, first: int, last: int, reach: int) -> list[tuple[int, int]]:
    """The stretches near which the clocks of a part differ; all there is where it is counted from another moment."""
    old, new = part.clocks
    if isinstance(part.before, Once):
        return []
    if isinstance(part.before, Iso8601) and isinstance(part.after, Iso8601):
        # It counts from one moment: where that differs, so does everything after it.
        bases = [each.start or each.anchor for each in (part.before, part.after)]
        seconds = [seconds_of(base) for base in bases if base is not None]
        if len(set(seconds)) > 1 or any(old.offset_at(each) != new.offset_at(each) for each in seconds):
            return [(first, last)]
    return [(max(begin - reach, first), min(end + reach, last)) for begin, end in _differing(old, new, first, last)]


def _joined(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches, each moment in one of them."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


# ---- slots -----------------------------------------------------------------------------------------------------------

Slots = dict[int, list[int]]
"""The seconds of slots, each with the parts that have it."""


def _slots(parts: Sequence[_Part], spans: Sequence[tuple[int, int]]) -> tuple[Slots, Slots, int | None]:
    """The slots within the stretches by both data; where there are too many, also the second before which all are
    known."""
    before: Slots = {}
    after: Slots = {}
    for begin, end in spans:
        room = max(0, MOST_SLOTS - max(len(before), len(after)))
        stop: int | None = None
        for index, part in enumerate(parts):
            for slots, schedule in ((before, part.before), (after, part.after)):
                found = list(islice(schedule.between(instant(begin) - _SECOND, instant(end)), room + 1))
                if len(found) > room:
                    stop = min(seconds_of(found[-1]), end if stop is None else stop)
                for at in found:
                    slots.setdefault(seconds_of(at), []).append(index)
        if stop is not None:
            return _until(before, stop), _until(after, stop), stop
    return before, after, None


def _until(slots: Slots, stop: int) -> Slots:
    return {second: parts for second, parts in slots.items() if second < stop}


_Pair = tuple[int | None, int | None, int]
"""A slot's seconds by both data, and the part that has it."""


def _compared(parts: Sequence[_Part], before: Slots, after: Slots) -> Iterator[_Pair]:
    """The slots that are not the same by both data: those of one part and one wall time belong together, in order."""
    gone = sorted(before.keys() - after.keys())
    waiting: dict[tuple[int, int], list[int]] = {}
    for second in reversed(gone):
        for index in before[second]:
            waiting.setdefault((index, second + parts[index].clocks[0].offset_at(second)), []).append(second)
    paired: set[int] = set()
    for second in sorted(after.keys() - before.keys()):
        was, index = _partner(parts, waiting, after[second], second, paired)
        yield was, second, index
    for second in gone:
        if second not in paired:
            yield second, None, before[second][0]


def _partner(
    parts: Sequence[_Part], waiting: dict[tuple[int, int], list[int]], indexes: list[int], second: int, paired: set[int]
) -> tuple[int | None, int]:
    for index in indexes:
        left = waiting.get((index, second + parts[index].clocks[1].offset_at(second)), [])
        while left:
            was = left.pop()
            if was not in paired:
                paired.add(was)
                return was, index
    return None, indexes[0]


def _lies(pair: _Pair, first: int, last: int) -> bool:
    return any(second is not None and first < second <= last for second in pair[:2])


# ---- what is told ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decider:
    """How a job's starts are chosen, by both data."""

    identity: str
    window: Window | None
    timezone: str
    old: Zone
    new: Zone

    @property
    def reads_clocks(self) -> bool:
        """Whether a start may be chosen otherwise though its slot stays."""
        window = self.window
        return window is not None and (window.seed != "stable" or bool(window.constraints.rules()))

    def finds_none(self, second: int | None, clocks: Zone) -> bool:
        """Whether the slot has a window in which nothing may be chosen: it is no run."""
        limited = self.window is not None and bool(self.window.constraints.rules())
        return limited and second is not None and self.start(second, clocks) is None

    def start(self, second: int | None, clocks: Zone) -> datetime | None:
        """The start chosen for the slot; None: there is no slot, no window, or nothing in it to be chosen."""
        if second is None or self.window is None:
            return None
        request = self.window.request(self.identity, instant(second), self.timezone)
        return decide(request, clocks).chosen_time


_BY_THESE = "its window finds no start by the present data"
_BY_THOSE = "its window finds no start by the other data"


def _told(decider: _Decider, parts: Sequence[_Part], pair: _Pair, first: int) -> ZoneMove | None:
    """One slot that differs; None where it is no run by either data."""
    before, after, index = pair
    old, new = parts[index].clocks
    wall = _wall(before, after, old, new)
    remark = ""
    if before is not None and after is not None and min(before, after) <= first:
        remark = "by the other data it has passed already" if after <= first else "it has been, and would come again"
    if decider.finds_none(before, decider.old):
        before, remark = None, "" if after is None else _BY_THESE
    if decider.finds_none(after, decider.new):
        after, remark = None, "" if before is None else _BY_THOSE
    if before is None and after is None:
        return None
    return ZoneMove(
        "appears" if before is None else "vanishes" if after is None else "moved",
        old.key,
        wall,
        None if before is None else instant(before),
        None if after is None else instant(after),
        decider.start(before, decider.old),
        decider.start(after, decider.new),
        remark,
    )


def _wall(before: int | None, after: int | None, old: Zone, new: Zone) -> datetime:
    if before is not None:
        return instant(before + old.offset_at(before)).replace(tzinfo=None)
    assert after is not None
    return instant(after + new.offset_at(after)).replace(tzinfo=None)


def _redrawn(decider: _Decider, parts: Sequence[_Part], before: Slots, kept: Sequence[int]) -> Iterator[ZoneMove]:
    """Slots that stay and are started at another time, or by one of the data not at all."""
    for second in kept:
        was, will = decider.start(second, decider.old), decider.start(second, decider.new)
        if was == will:
            continue
        clocks = parts[before[second][0]].clocks[0]
        at, wall = instant(second), _wall(second, None, clocks, clocks)
        if was is None:
            yield ZoneMove("appears", clocks.key, wall, None, at, None, will, _BY_THESE)
        elif will is None:
            yield ZoneMove("vanishes", clocks.key, wall, at, None, was, None, _BY_THOSE)
        else:
            yield ZoneMove("redrawn", clocks.key, wall, at, at, was, will)
