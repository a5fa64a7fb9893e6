"""What another version of the time zone data would do to a schedule.

A slot is an instant, but a schedule means a wall time. Where the other data show that wall time at another instant, the
slot moves. Where a gap or a fold comes or goes, slots vanish or appear. A slot that stays may still be started at
another time: windows read their constraints, and their daily and weekly seeds, on the same clocks.

Only the stretches in which the two clocks differ are examined, and a margin around them. A slot for which a window
finds no start has no run under those data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from horae.core.schedule.custom import Custom
from horae.core.schedule.interval import Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.time.instant import EPOCH, FIRST, LAST, instant, seconds_of
from horae.core.time.zone import LARGEST_OFFSET_GAP, UTC_ZONE, Zone, zone
from horae.core.window.decision import decide
from horae.core.window.window import Window

Find = Callable[[str], Zone]
"""The clocks of a zone by the other data. Raises UnknownZone where those data lack the zone."""
MOST_SLOTS = 250_000
MOST_DECIDED = 20_000
_MARGIN = 2 * LARGEST_OFFSET_GAP
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ZoneMove:
    """One run under both data. A side is None where there is no run. `change` is moved, appears, vanishes, or redrawn:
    the slot stays and its window chooses another start. `starts_*` are the chosen starts of a job with a window."""

    change: str
    zone: str
    wall: datetime
    """The wall time that the schedule means: what the clocks show at the slot, without an offset."""
    before: datetime | None
    after: datetime | None
    starts_before: datetime | None = None
    starts_after: datetime | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ZoneMoves:
    """`until` is how far the slots were compared. `is_cut`: there were too many slots to compare all of them."""

    moves: tuple[ZoneMove, ...]
    until: datetime
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class RereadSchedule:
    """A schedule whose text has times without an offset, read again under the other data, where such times are other
    instants. `zones` are the zones in which the times of each part were read; None: the part has no such times."""

    schedule: Schedule
    zones: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class OwnedSpan:
    """The part of time whose slots belong to the schedule: after `since`, up to and including `last`. Other slots
    belong to other versions. None: no end."""

    since: datetime | None = None
    last: datetime | None = None

    def kept(self, slots: Slots) -> Slots:
        low = FIRST - 1 if self.since is None else seconds_of(self.since)
        high = LAST if self.last is None else seconds_of(self.last)
        return {second: parts for second, parts in slots.items() if low < second <= high}


WHOLE_SPAN = OwnedSpan()


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a schedule under both data, and the clocks on which its wall times are read."""

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
    """The zones whose clocks a schedule uses, without UTC, which never changes."""
    found = (_clocks(part).key for part in _parts(schedule) if _clocks(part) is not UTC_ZONE)
    return tuple(dict.fromkeys(found))


def is_opaque(schedule: Schedule) -> bool:
    """Whether a part of the schedule is custom code, which may read any clocks."""
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
    reread: RereadSchedule | None = None,
    spoken: OwnedSpan = WHOLE_SPAN,
) -> ZoneMoves:
    """What becomes of the runs in (begin, until]. Raises UnknownZone, and InvalidIso8601 where the other clocks skip
    the start that a text names."""
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
    last = last if stop is None else min(last, stop - LARGEST_OFFSET_GAP)
    found = [each for each in _compared(parts, before, after) if _lies(each, first, last)]
    told = [move for each in found if (move := _slot_move(decider, parts, each, first)) is not None]
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


def _both(schedule: Schedule, find: Find, reread: RereadSchedule | None) -> list[_Part]:
    before = _parts(schedule)
    after = before if reread is None else _parts(reread.schedule)
    zones: tuple[str | None, ...] = (None,) * len(before) if reread is None else reread.zones
    if not len(before) == len(after) == len(zones):
        # Two parts are equal under one of the data, so parts can no longer be paired.
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
    """The stretches in which a part's slots, or the starts that windows choose for them, may differ."""
    old, new = part.clocks
    if old is new:
        return []
    moved = [
        sorted((seconds_of(was), seconds_of(will)))
        for was, will in ((getattr(part.before, each, None), getattr(part.after, each, None)) for each in _TIMES)
        if was is not None and will is not None and was != will
    ]
    if not isinstance(part.before, Cron | Iso8601):
        # The part uses no clocks: only its own times may differ, and the slots that are counted from them.
        if not moved:
            return []
        if not isinstance(part.before, Once):
            return [(first, last)]
    around = [(max(low - reach, first), min(high + reach, last)) for low, high in moved]
    return [*(each for each in around if each[0] <= each[1]), *_apart(part, first, last, reach)]


def _apart(part: _Part, first: int, last: int, reach: int) -> list[tuple[int, int]]:
    """The stretches around which the clocks of a part differ, or the whole span where the part counts from another
    moment."""
    old, new = part.clocks
    if isinstance(part.before, Once):
        return []
    if isinstance(part.before, Iso8601) and isinstance(part.after, Iso8601):
        # It counts from one moment. Where that moment differs, so does every slot after it.
        bases = [each.start or each.anchor for each in (part.before, part.after)]
        seconds = [seconds_of(base) for base in bases if base is not None]
        if len(set(seconds)) > 1 or any(old.offset_at(each) != new.offset_at(each) for each in seconds):
            return [(first, last)]
    return [(max(begin - reach, first), min(end + reach, last)) for begin, end in _differing(old, new, first, last)]


def _joined(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches without overlaps."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


# ---- slots -----------------------------------------------------------------------------------------------------------

Slots = dict[int, list[int]]
"""The seconds of slots, each with the indexes of the parts that have it."""


def _slots(parts: Sequence[_Part], spans: Sequence[tuple[int, int]]) -> tuple[Slots, Slots, int | None]:
    """The slots within the stretches under both data. Where there are too many, also the second before which all are
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
"""A slot's seconds under both data, and the index of the part that has it."""


def _compared(parts: Sequence[_Part], before: Slots, after: Slots) -> Iterator[_Pair]:
    """The slots that differ between the data. Slots of one part with the same wall time are paired, in order."""
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


# ---- resulting moves -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decider:
    """How a job's starts are chosen under both data."""

    identity: str
    window: Window | None
    timezone: str
    old: Zone
    new: Zone

    @property
    def reads_clocks(self) -> bool:
        """Whether a start may be chosen differently although its slot stays."""
        window = self.window
        return window is not None and (window.seed != "stable" or bool(window.constraints.rules()))

    def finds_none(self, second: int | None, clocks: Zone) -> bool:
        """Whether the slot's window allows no start, so that the slot has no run."""
        limited = self.window is not None and bool(self.window.constraints.rules())
        return limited and second is not None and self.start(second, clocks) is None

    def start(self, second: int | None, clocks: Zone) -> datetime | None:
        """The start chosen for the slot; None: there is no slot, no window, or no allowed time."""
        if second is None or self.window is None:
            return None
        request = self.window.request(self.identity, instant(second), self.timezone)
        return decide(request, clocks).chosen_time


_BY_THESE = "its window finds no start by the present data"
_BY_THOSE = "its window finds no start by the other data"


def _slot_move(decider: _Decider, parts: Sequence[_Part], pair: _Pair, first: int) -> ZoneMove | None:
    """The change of one slot that differs; None where it has no run under either data."""
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
    """The changes of slots that stay but start at another time, or have no start under one of the data."""
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
