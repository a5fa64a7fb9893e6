"""A compiled cron on a zone's clocks: matching wall minutes become instants, with gaps and folds settled.

Wall minutes are matched stretch by stretch (see `zone`). A stretch that begins with a fold shows some minutes a second
time: under `once` those are passed over. A gap swallows minutes: under `shift` a swallowed match fires at the first
instant after the gap, otherwise not at all.

Both searches skip from the present stretch straight to the one around the next matching wall minute. That is safe once
the present stretch reaches further than any two offsets lie apart (REACH): no clock in between can show a wall minute
that lies outside the span just searched.
"""

from __future__ import annotations

from bisect import bisect_right

from horae.core.cron import CronTable
from horae.core.zone import REACH, Zone


def next_second(table: CronTable, zone: Zone, utc: int, *, once: bool, shift: bool) -> int | None:
    """The first UTC second after `utc` at which `table` fires on the clocks of `zone`."""
    zone.cover(utc)
    starts, offsets = zone.starts, zone.offsets
    index = bisect_right(starts, utc)
    while True:
        if index == len(starts):
            zone.cover(utc)
            starts, offsets = zone.starts, zone.offsets
        offset = offsets[index]
        minute = table.next_minute((utc + offset) // 60)
        end = starts[index] if index < len(starts) else None
        if minute is None:
            if end is None or end - utc > REACH:
                return None
        else:
            found = minute * 60 - offset
            if end is None or found < end:
                if once and index and found - starts[index - 1] < REACH and _shown_before(zone, index, minute * 60):
                    utc = found
                    continue
                return found
            if found - REACH > end and end - utc > REACH:
                zone.cover(found)
                starts, offsets = zone.starts, zone.offsets
                utc = found - REACH
                index = bisect_right(starts, utc)
                continue
        if shift and _swallows_match(table, zone, index):
            return end
        utc = end - 1
        index += 1


def previous_second(table: CronTable, zone: Zone, utc: int, *, once: bool, shift: bool) -> int | None:
    """The last UTC second at or before `utc` at which `table` fires on the clocks of `zone`."""
    zone.cover(utc)
    starts, offsets = zone.starts, zone.offsets
    index = bisect_right(starts, utc)
    while True:
        offset = offsets[index]
        minute = table.previous_minute((utc + offset) // 60 + 1)
        begin = starts[index - 1] if index else None
        if minute is not None:
            found = minute * 60 - offset
            if begin is None or found >= begin:
                if once and index and _shown_before(zone, index, minute * 60):
                    utc = found - 1
                    continue
                return found
            if found + REACH < begin and utc - begin > REACH:
                utc = found + REACH
                index = bisect_right(starts, utc)
                continue
        if begin is None:
            return None
        if shift and _swallows_match(table, zone, index - 1):
            return begin
        utc = begin - 1
        index -= 1


def _shown_before(zone: Zone, index: int, wall: int) -> bool:
    """Whether a stretch before `index` has already shown the wall second `wall`."""
    starts, offsets = zone.starts, zone.offsets
    limit = wall - offsets[index] - REACH
    for earlier in range(index - 1, -1, -1):
        if starts[earlier] < limit:
            return False
        begin = starts[earlier - 1] if earlier else None
        utc = wall - offsets[earlier]
        if utc < starts[earlier] and (begin is None or begin <= utc):
            return True
    return False


def _swallows_match(table: CronTable, zone: Zone, index: int) -> bool:
    """Whether the change at the end of stretch `index` skips a matching wall minute that no clock shows otherwise."""
    at = zone.starts[index]
    first, stop = at + zone.offsets[index], at + zone.offsets[index + 1]
    minute = table.next_minute((first - 1) // 60)
    while minute is not None and minute * 60 < stop:
        if not zone.instants(minute * 60):
            return True
        minute = table.next_minute(minute)
    return False
