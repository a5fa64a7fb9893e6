"""Searches for the instants at which a compiled cron fires in a zone, with its gaps and folds.

Wall minutes are matched stretch by stretch (see `core.time.zone`). A stretch that begins with a fold repeats some wall
minutes: with `once` the repeated ones do not fire. A gap skips wall minutes: with `shift` a skipped match fires at the
first instant after the gap, otherwise it does not fire.

Both searches jump from the current stretch straight to the one around the next matching wall minute. That is safe where
the rest of the current stretch is longer than any two offsets differ (REACH): all wall minutes in between then lie in
the span just searched, which has no match.
"""

from __future__ import annotations

from bisect import bisect_right

from horae.core.schedule.cron import CronTable
from horae.core.time.zone import LARGEST_OFFSET_GAP, Zone


def next_second(table: CronTable, zone: Zone, utc: int, *, once: bool, shift: bool) -> int | None:
    """The first UTC second after `utc` at which `table` fires in `zone`."""
    starts, offsets, _, _ = zone.cover(utc)
    index = bisect_right(starts, utc)
    while True:
        if index == len(starts):
            starts, offsets, _, _ = zone.cover(utc)
        offset = offsets[index]
        minute = table.next_minute((utc + offset) // 60)
        end = starts[index] if index < len(starts) else None
        if minute is None:
            if end is None or end - utc > LARGEST_OFFSET_GAP:
                return None
        else:
            found = minute * 60 - offset
            if end is None or found < end:
                if (
                    once
                    and index
                    and found - starts[index - 1] < LARGEST_OFFSET_GAP
                    and _shown_before(starts, offsets, index, minute * 60)
                ):
                    utc = found
                    continue
                return found
            if found - LARGEST_OFFSET_GAP > end and end - utc > LARGEST_OFFSET_GAP:
                starts, offsets, _, _ = zone.cover(found)
                utc = found - LARGEST_OFFSET_GAP
                index = bisect_right(starts, utc)
                continue
        if shift and _skips_match(table, zone, end, offset, offsets[index + 1]):
            return end
        utc = end - 1
        index += 1


def previous_second(table: CronTable, zone: Zone, utc: int, *, once: bool, shift: bool) -> int | None:
    """The last UTC second at or before `utc` at which `table` fires in `zone`."""
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
            if found + LARGEST_OFFSET_GAP < begin and utc - begin > LARGEST_OFFSET_GAP:
                utc = found + LARGEST_OFFSET_GAP
                index = bisect_right(starts, utc)
                continue
        if begin is None:
            return None
        if shift and _skips_match(table, zone, begin, offsets[index - 1], offset):
            return begin
        utc = begin - 1
        index -= 1


def _shown_before(starts: tuple[int, ...], offsets: tuple[int, ...], index: int, wall: int) -> bool:
    """Whether the wall second `wall` already occurs in a stretch before `index`."""
    limit = wall - offsets[index] - LARGEST_OFFSET_GAP
    for earlier in range(index - 1, -1, -1):
        if starts[earlier] < limit:
            return False
        begin = starts[earlier - 1] if earlier else None
        utc = wall - offsets[earlier]
        if utc < starts[earlier] and (begin is None or begin <= utc):
            return True
    return False


def _skips_match(table: CronTable, zone: Zone, at: int, before: int, after: int) -> bool:
    """Whether the clock change at `at` skips a matching wall minute that occurs at no other instant."""
    minute = table.next_minute((at + before - 1) // 60)
    while minute is not None and minute * 60 < at + after:
        if not zone.instants(minute * 60):
            return True
        minute = table.next_minute(minute)
    return False
