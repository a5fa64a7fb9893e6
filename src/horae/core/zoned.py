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
    starts, offsets, _, _ = zone.cover(utc)
    index = bisect_right(starts, utc)
    while True:
        if index == len(starts):
            starts, offsets, _, _ = zone.cover(utc)
        offset = offsets[index]
        minute = table.next_minute((utc + offset) // 60)
        end = starts[index] if index < len(starts) else None
        if minute is None:
            if end is None or end - utc > REACH:
                return None
        else:
            found = minute * 60 - offset
            if end is None or found < end:
                if (
                    once
                    and index
                    and found - starts[index - 1] < REACH
                    and _shown_before(starts, offsets, index, minute * 60)
                ):
                    utc = found
                    continue
                return found
            if found - REACH > end and end - utc > REACH:
                starts, offsets, _, _ = zone.cover(found)
                utc = found - REACH
                index = bisect_right(starts, utc)
                continue
        if shift and _swallows_match(table, zone, end, offset, offsets[index + 1]):
            return end
        utc = end - 1
        index += 1


def previous_second(table: CronTable, zone: Zone, utc: int, *, once: bool, shift: bool) -> int | None:
    """The last UTC second at or before `utc` at which `table` fires on the clocks of `zone`."""
    starts, offsets, _, _ = zone.cover(utc)
    index = bisect_right(starts, utc)
    while True:
        offset = offsets[index]
        minute = table.previous_minute((utc + offset) // 60 + 1)
        begin = starts[index - 1] if index else None
        if minute is not None:
            found = minute * 60 - offset
            if begin is None or found >= begin:
                if once and index and _shown_before(starts, offsets, index, minute * 60):
                    utc = found - 1
                    continue
                return found
            if found + REACH < begin and utc - begin > REACH:
                utc = found + REACH
                index = bisect_right(starts, utc)
                continue
        if begin is None:
            return None
        if shift and _swallows_match(table, zone, begin, offsets[index - 1], offset):
            return begin
        utc = begin - 1
        index -= 1


def _shown_before(starts: tuple[int, ...], offsets: tuple[int, ...], index: int, wall: int) -> bool:
    """Whether a stretch before `index` has already shown the wall second `wall`."""
    limit = wall - offsets[index] - REACH
    for earlier in range(index - 1, -1, -1):
        if starts[earlier] < limit:
            return False
        begin = starts[earlier - 1] if earlier else None
        utc = wall - offsets[earlier]
        if utc < starts[earlier] and (begin is None or begin <= utc):
            return True
    return False


def _swallows_match(table: CronTable, zone: Zone, at: int, before: int, after: int) -> bool:
    """Whether the change at `at` skips a matching wall minute that no clock shows otherwise."""
    minute = table.next_minute((at + before - 1) // 60)
    while minute is not None and minute * 60 < at + after:
        if not zone.instants(minute * 60):
            return True
        minute = table.next_minute(minute)
    return False
