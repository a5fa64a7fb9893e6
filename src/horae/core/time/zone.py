"""Time zones: the offset at each instant, and the wall times that clock changes skip or repeat.

A zone is a list of stretches with a constant offset. Stretch `i` runs from `starts[i - 1]` (inclusive) to `starts[i]`
(exclusive) in UTC seconds, and its wall time is `utc + offsets[i]`. Where the offset grows, the clocks skip wall times:
a *gap*. Where it shrinks, they repeat wall times: a *fold*.
"""

from __future__ import annotations

import pkgutil
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

import tzdata

from horae.core.time import zone_file
from horae.core.time.instant import FIRST, LAST, instant, seconds_of
from horae.errors import InvalidTime, UnknownZone, as_text, shown

TZDATA_VERSION: str = tzdata.IANA_VERSION
LARGEST_OFFSET_GAP = 100_000
"""Seconds. Two offsets of one zone never differ by more, not even where a zone moved across the date line."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A clock change: at UTC second `at` the offset changes from `before` to `after`, both in seconds."""

    at: int
    before: int
    after: int

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


class Stretches(NamedTuple):
    """The stretches of a zone that have been computed: one more offset than starts.

    They are valid for UTC seconds below `covered`. `year` is the last year whose changes are included.
    """

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    year: int
    covered: int


class Zone:
    """One zone, from the IANA data or a POSIX rule. `zone(name)` returns the same object for the same IANA name."""

    __slots__ = ("_known", "_listed_until", "_rule", "key")

    def __init__(self, key: str, data: zone_file.ZoneData) -> None:
        self.key = key
        self._rule = data.rule
        self._listed_until = data.listed_until
        year = max(1970, instant(data.listed_until).year) - 1
        # A year early, so that a search near the last listed change also sees the changes that the rule adds.
        covered = data.listed_until - 370 * 86_400 if data.rule.begin else LAST + LARGEST_OFFSET_GAP
        self._known = Stretches(data.starts, data.offsets, year, covered)

    def cover(self, utc: int) -> Stretches:
        """The stretches up to `utc` and for about a year after it.

        Use the returned value: another thread may replace the zone's own, but a returned value never changes.
        """
        known = self._known
        if utc < known.covered:
            return known
        until_year = min(9999, instant(min(utc, LAST)).year + 40)
        starts, offsets = list(known.starts), list(known.offsets)
        for year in range(known.year + 1, until_year + 1):
            for at, offset in self._rule.transitions(year):
                if at > self._listed_until and offset != offsets[-1]:
                    starts.append(at)
                    offsets.append(offset)
        covered = (
            LAST + LARGEST_OFFSET_GAP if until_year == 9999 else seconds_of(datetime(until_year, 1, 1, tzinfo=UTC))
        )
        self._known = Stretches(tuple(starts), tuple(offsets), until_year, covered)
        return self._known

    def offset_at(self, utc: int) -> int:
        """The offset at a UTC second: the seconds to add to get wall time."""
        known = self._known
        if utc >= known.covered:
            known = self.cover(utc)
        return known.offsets[bisect_right(known.starts, utc)]

    def wall(self, value: datetime) -> datetime:
        """`value` in this zone's wall time, with a fixed offset. Raises InvalidTime outside the years 1 to 9999."""
        offset = timedelta(0, self.offset_at(seconds_of(value)))
        try:
            return value.astimezone(timezone(offset))
        except OverflowError:
            reason = f"lies outside the years 1 to 9999 on the clocks of {self.key}"
            raise InvalidTime(f"Invalid time {shown(value)}: {reason}") from None

    def instants(self, wall: int) -> tuple[int, ...]:
        """Every UTC second whose wall time is `wall` (seconds since 1970 in wall time), in order.

        Empty in a gap, two or more in a fold, otherwise one.
        """
        starts, offsets, _, _ = self.cover(wall + LARGEST_OFFSET_GAP)
        found = []
        for index in range(
            bisect_right(starts, wall - LARGEST_OFFSET_GAP), bisect_right(starts, wall + LARGEST_OFFSET_GAP) + 1
        ):
            utc = wall - offsets[index]
            if (index == 0 or starts[index - 1] <= utc) and (index == len(starts) or utc < starts[index]):
                found.append(utc)
        return tuple(found)

    def first_shown(self, wall: datetime, name: str = "time") -> datetime:
        """The first instant whose wall time is the naive `wall`. Raises InvalidTime where the clocks skip it."""
        found = self.instants(seconds_of(wall.replace(tzinfo=UTC), name))
        if found and FIRST <= found[0] <= LAST:
            return instant(found[0])
        reason = "lies outside the years 1 to 9999" if found else f"the clocks in {self.key} skip it"
        hint = None if found else "They go forward over it, so nothing is due then. Name another time, or its offset."
        raise InvalidTime(
            f"Invalid {name} {shown(wall)}: {reason}", hint=hint, details={"name": name, "reason": reason}
        )

    def transitions(self, after: int, until: int) -> tuple[Transition, ...]:
        """The clock changes with `after < at <= until`, in order."""
        starts, offsets, _, _ = self.cover(until)
        first, stop = bisect_right(starts, after), bisect_right(starts, until)
        return tuple(Transition(starts[index], offsets[index], offsets[index + 1]) for index in range(first, stop))

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"


_FIXED = zone_file.Rule(0, 0, None, None)
UTC_ZONE = Zone("UTC", zone_file.ZoneData((), (0,), 0, _FIXED))
_known: dict[str, Zone] = {"UTC": UTC_ZONE}


class _UnspecifiedZoneName(str):
    """The zone name of a schedule that names no zone: UTC, unless the scheduler or the file around it sets one."""

    __slots__ = ()


UNSPECIFIED: str = _UnspecifiedZoneName("UTC")


def is_unspecified(name: str) -> bool:
    return type(name) is _UnspecifiedZoneName


def zone_name(given: str | tzinfo) -> str:
    """The name of a zone given as a name, a ZoneInfo or `datetime.UTC`. Text is returned as it is, unchecked.

    Raises UnknownZone for a tzinfo without a `key`.
    """
    if isinstance(given, tzinfo):
        if given is UTC:
            return "UTC"
        key = getattr(given, "key", None)
        if not isinstance(key, str):
            raise UnknownZone(
                f"Unknown time zone {shown(given)}: it has no name",
                hint='Give the name of a zone, or ZoneInfo("Europe/Berlin").',
                details={"name": as_text(given)},
            )
        return key
    return given


def zone(name: str) -> Zone:
    """The zone called `name`, read on first use from the pinned data. The host's own zone data is never used.

    `name` may also be a POSIX rule that cannot be meant as a name: `CET-1CEST,M3.5.0,M10.5.0/3`, `<+0530>-5:30`.
    Raises UnknownZone.
    """
    found = _known.get(name) if isinstance(name, str) else None
    if found is None:
        found = rule_zone(name) if isinstance(name, str) else None
    if found is None:
        found = _known.setdefault(name, Zone(name, zone_file.parse(_read(name))))
    return found


@lru_cache(maxsize=256)
def rule_zone(name: str) -> Zone | None:
    """The zone of a POSIX rule. None for other text, and for a rule that could be meant as a name: `EST5`, `UTC+2`."""
    rule = zone_file.checked_rule(name) if "," in name or name[:1] == "<" else None
    return None if rule is None else Zone(name, zone_file.ZoneData((), (rule.standard,), 0, rule))


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Every name in the pinned data, sorted."""
    return tuple(sorted((pkgutil.get_data("tzdata", "zones") or b"").decode("ascii").split()))


def _read(name: object) -> bytes:
    names = zone_names()
    if isinstance(name, str):
        index = bisect_left(names, name)
        if index < len(names) and names[index] == name:
            data = pkgutil.get_data("tzdata", f"zoneinfo/{name}")
            if data is not None:
                return data
    if isinstance(name, str) and "," in name and len(name) > zone_file.LONGEST_RULE:
        raise UnknownZone(
            f"Unknown time zone {shown(name)}: a POSIX rule has at most {zone_file.LONGEST_RULE} characters",
            hint="Shorten the names in it: they mean nothing to Horae.",
            details={"name": name},
        )
    raise UnknownZone(
        f"Unknown time zone {shown(name)}: not in the IANA data of {TZDATA_VERSION}",
        hint=_suggestion(as_text(name)[:64], names),
        details={"name": as_text(name)},
    )


def _suggestion(name: str, names: tuple[str, ...]) -> str:
    folded = {known.lower(): known for known in names}
    cities = {known.lower().rpartition("/")[2]: known for known in names}
    wanted = name.lower().replace(" ", "_")
    near = [folded[match] for match in get_close_matches(wanted, folded, n=3, cutoff=0.7)]
    near += [cities[match] for match in get_close_matches(wanted.rpartition("/")[2], cities, n=3, cutoff=0.8)]
    if near:
        return f"Did you mean {', '.join(dict.fromkeys(near))}?"
    return "Use an IANA name such as UTC, Europe/Berlin or America/New_York."
