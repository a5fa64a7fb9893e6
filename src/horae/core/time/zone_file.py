"""Reads zone files: the transitions they list, and the rule that applies after the last one (RFC 9636).

`zoneinfo` answers "what is the offset at t". A scheduler also needs "when does it change next", which `zoneinfo` does
not expose. So this module reads the files of the pinned package itself, and the tests compare every zone with
`zoneinfo`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Changeover:
    """One of the two yearly changes of a POSIX zone rule.

    `form` is "M" (month, week and weekday), "J" (day of the year from 1, February 29 never counted) or "N" (day of the
    year from 0). `time` is in seconds after local midnight and may be negative.
    """

    form: str
    month: int
    week: int
    day: int
    time: int

    @property
    def is_possible(self) -> bool:
        """Whether the values are in range. The time must lie less than a week from midnight of the day."""
        days = {"J": (1, 365), "N": (0, 365)}.get(self.form, (0, 6))
        dated = self.form in "JN" or (1 <= self.month <= 12 and 1 <= self.week <= 5)
        return dated and days[0] <= self.day <= days[1] and abs(self.time) < 168 * 3600

    def local_seconds(self, year: int) -> int:
        """The change in seconds since 1970, in the wall time just before it."""
        return (self._ordinal(year) - _EPOCH_DAY) * _DAY + self.time

    def _ordinal(self, year: int) -> int:
        january = date(year, 1, 1).toordinal()
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if self.form == "J":
            return january + self.day - 1 + (leap and self.day >= 60)
        if self.form == "N":
            return january + self.day
        first = date(year, self.month, 1).toordinal()
        found = first + (self.day - first) % 7 + (self.week - 1) * 7
        after = date(year, self.month + 1, 1).toordinal() if self.month < 12 else date(year, 12, 31).toordinal() + 1
        return found if found < after else found - 7


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for all time after the listed transitions: two offsets in seconds, and the changes between them.

    `begin` and `end` of daylight time are None where the clocks no longer change.
    """

    standard: int
    daylight: int
    begin: Changeover | None
    end: Changeover | None

    def transitions(self, year: int) -> list[tuple[int, int]]:
        """The year's changes as (UTC second, new offset), in order."""
        if self.begin is None or self.end is None:
            return []
        changes = [
            (self.begin.local_seconds(year) - self.standard, self.daylight),
            (self.end.local_seconds(year) - self.daylight, self.standard),
        ]
        return sorted(changes)


@dataclass(frozen=True, slots=True)
class ZoneData:
    """`offsets[i]` holds from `starts[i - 1]` until `starts[i]`; there is one more offset than starts."""

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    listed_until: int
    """UTC second of the last transition in the file, even if it keeps the offset. The rule applies after it."""
    rule: Rule


def parse(data: bytes) -> ZoneData:
    """The content of one TZif file, version 2 or later. The pinned package has no others."""
    skipped = _block_size(data, 0, 4)
    body = 44 + skipped
    counts = struct.unpack_from(">6L", data, body + 20)
    _, _, _, transitions, types, _ = counts
    position = body + 44
    times = struct.unpack_from(f">{transitions}q", data, position)
    position += transitions * 8
    kinds = data[position : position + transitions]
    position += transitions
    utc_offsets = [struct.unpack_from(">l", data, position + 6 * kind)[0] for kind in range(types)]
    footer = data[body + _block_size(data, body, 8) + 44 :].strip(b"\n").decode("ascii")
    starts: list[int] = []
    offsets = [utc_offsets[0]]
    for time, kind in zip(times, kinds, strict=True):
        if utc_offsets[kind] != offsets[-1]:
            starts.append(time)
            offsets.append(utc_offsets[kind])
    listed_until = times[-1] if times else 0
    return ZoneData(tuple(starts), tuple(offsets), listed_until, parse_rule(footer, offsets[-1]))


def _block_size(data: bytes, at: int, time_size: int) -> int:
    is_utc, is_standard, leaps, times, types, letters = struct.unpack_from(">6L", data, at + 20)
    size: int = times * (time_size + 1) + types * 6 + letters + leaps * (time_size + 4) + is_standard + is_utc
    return size


LONGEST_RULE = 64
"""Characters. The catalog's column for zones has the same width."""
_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_CLOCK = r"[+-]?[0-9]{1,3}(?::[0-9]{2}(?::[0-9]{2})?)?"
_RULE = re.compile(rf"{_NAME}({_CLOCK})(?:{_NAME}({_CLOCK})?,([^,]+),([^,]+))?")
_CHANGE = re.compile(rf"(?:M([0-9]+)\.([0-9]+)\.([0-9]+)|(J?)([0-9]+))(?:/({_CLOCK}))?")


def parse_rule(text: str, last_offset: int) -> Rule:
    """Parses a POSIX TZ text such as `CET-1CEST,M3.5.0,M10.5.0/3`. Any other text keeps the last offset for ever."""
    found = _RULE.fullmatch(text)
    if found is None:
        return Rule(last_offset, last_offset, None, None)
    standard = -_clock(found[1])
    if found[3] is None:
        return Rule(standard, standard, None, None)
    daylight = -_clock(found[2]) if found[2] else standard + 3600
    return Rule(standard, daylight, _change(found[3]), _change(found[4]))


def checked_rule(text: str) -> Rule | None:
    """The rule of a POSIX TZ text that a user wrote. None unless it is a rule whose changes are possible."""
    found = _RULE.fullmatch(text) if len(text) <= LONGEST_RULE else None
    if found is None or any(abs(_clock(part)) > 24 * 3600 for part in (found[1], found[2]) if part):
        return None
    rule = parse_rule(text, 0)
    if found[3] is None:
        return rule
    if not all(change is not None and change.is_possible for change in (rule.begin, rule.end)):
        return None
    # All changes of a year must come before those of the next year, and no two at the same second.
    moments = [at for year in range(1970, 2010) for at, _ in rule.transitions(year)]
    return rule if all(before < after for before, after in pairwise(moments)) else None


def _change(text: str) -> Changeover | None:
    found = _CHANGE.fullmatch(text)
    if found is None:
        return None
    time = _clock(found[6]) if found[6] else 7200
    if found[1]:
        return Changeover("M", int(found[1]), int(found[2]), int(found[3]), time)
    return Changeover(found[4] or "N", 0, 0, int(found[5]), time)


def _clock(text: str) -> int:
    hours, minutes, seconds = (text.lstrip("+-") + ":0:0").split(":")[:3]
    total = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return -total if text.startswith("-") else total
