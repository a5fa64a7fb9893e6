"""Wall time and instants: which offsets a zone has had and will have, what its clocks skip and what they repeat.

A zone is a list of stretches. Stretch `i` runs from `starts[i - 1]` (inclusive) to `starts[i]` (exclusive) in UTC
seconds and shows `utc + offsets[i]` on the wall. Where an offset grows, the wall skips a *gap*; where it shrinks, it
repeats a *fold*. Everything about daylight saving follows from that.
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

from horae.core import tzif
from horae.core.instant import FIRST, LAST, instant, seconds_of
from horae.errors import InvalidTime, UnknownZone, shown, told

TZDATA_VERSION: str = tzdata.IANA_VERSION
REACH = 100_000
"""More seconds than any two offsets of one zone ever lay apart, changes of side of the date line included."""


@dataclass(frozen=True, slots=True)
class Transition:
    """At UTC second `at` the wall jumps from offset `before` to offset `after`, both in seconds."""

    at: int
    before: int
    after: int

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


class Stretches(NamedTuple):
    """What is known of a zone, as one value: one more offset than starts, valid for seconds below `covered`."""

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    year: int
    covered: int


class Zone:
    """One IANA zone. Instances are shared: `zone(name)` gives the same object for the same name."""

    __slots__ = ("_known", "_listed_until", "_rule", "key")

    def __init__(self, key: str, data: tzif.ZoneData) -> None:
        self.key = key
        self._rule = data.rule
        self._listed_until = data.listed_until
        year = max(1970, instant(data.listed_until).year) - 1
        # A year early, so that whoever stands near the last listed change sees what the rule adds after it.
        covered = data.listed_until - 370 * 86_400 if data.rule.begin else LAST + REACH
        self._known = Stretches(data.starts, data.offsets, year, covered)

    def cover(self, utc: int) -> Stretches:
        """The stretches at and well after `utc`.

        Read them from what is returned: another thread may replace what the zone keeps, but never what was handed out.
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
        covered = LAST + REACH if until_year == 9999 else seconds_of(datetime(until_year, 1, 1, tzinfo=UTC))
        self._known = Stretches(tuple(starts), tuple(offsets), until_year, covered)
        return self._known

    def offset_at(self, utc: int) -> int:
        """Seconds to add to a UTC second to get the wall clock's."""
        known = self._known
        if utc >= known.covered:
            known = self.cover(utc)
        return known.offsets[bisect_right(known.starts, utc)]

    def wall(self, value: datetime) -> datetime:
        """An aware instant as this zone's clocks show it, with a fixed offset attached."""
        offset = timedelta(0, self.offset_at(seconds_of(value)))
        try:
            return value.astimezone(timezone(offset))
        except OverflowError:
            reason = f"lies outside the years 1 to 9999 on the clocks of {self.key}"
            raise InvalidTime(f"Invalid time {shown(value)}: {reason}") from None

    def instants(self, wall: int) -> tuple[int, ...]:
        """Every UTC second at which the clocks show `wall` (seconds since 1970 on the wall), in order.

        None in a gap, one as a rule, two or more in a fold.
        """
        starts, offsets, _, _ = self.cover(wall + REACH)
        found = []
        for index in range(bisect_right(starts, wall - REACH), bisect_right(starts, wall + REACH) + 1):
            utc = wall - offsets[index]
            if (index == 0 or starts[index - 1] <= utc) and (index == len(starts) or utc < starts[index]):
                found.append(utc)
        return tuple(found)

    def first_shown(self, wall: datetime, name: str = "time") -> datetime:
        """The first instant at which the clocks show the naive `wall`. Raises InvalidTime where they never do."""
        found = self.instants(seconds_of(wall.replace(tzinfo=UTC), name))
        if found and FIRST <= found[0] <= LAST:
            return instant(found[0])
        reason = "lies outside the years 1 to 9999" if found else f"the clocks in {self.key} skip it"
        hint = None if found else "They go forward over it, so nothing is due then. Name another time, or its offset."
        raise InvalidTime(
            f"Invalid {name} {shown(wall)}: {reason}", hint=hint, details={"name": name, "reason": reason}
        )

    def transitions(self, after: int, until: int) -> tuple[Transition, ...]:
        """The changes with `after < at <= until`."""
        starts, offsets, _, _ = self.cover(until)
        first, stop = bisect_right(starts, after), bisect_right(starts, until)
        return tuple(Transition(starts[index], offsets[index], offsets[index + 1]) for index in range(first, stop))

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"


_FIXED = tzif.Rule(0, 0, None, None)
UTC_ZONE = Zone("UTC", tzif.ZoneData((), (0,), 0, _FIXED))
_known: dict[str, Zone] = {"UTC": UTC_ZONE}


class _Unsaid(str):
    """The name of a zone that nobody said: it is UTC, unless something around the schedule says otherwise."""

    __slots__ = ()


UNSAID: str = _Unsaid("UTC")


def is_unsaid(name: str) -> bool:
    return type(name) is _Unsaid


def zone_name(given: str | tzinfo) -> str:
    """The name of a zone that is given by its name, as a ZoneInfo, or as `datetime.UTC`; any other text as it is."""
    if isinstance(given, tzinfo):
        if given is UTC:
            return "UTC"
        key = getattr(given, "key", None)
        if not isinstance(key, str):
            raise UnknownZone(
                f"Unknown time zone {shown(given)}: it has no name",
                hint='Give the name of a zone, or ZoneInfo("Europe/Berlin").',
                details={"name": told(given)},
            )
        return key
    return given


def zone(name: str) -> Zone:
    """The zone called `name` in the pinned data, read on first use; the host's own zone data is never consulted.

    A POSIX rule is the name of its own zone where no name could be meant: `CET-1CEST,M3.5.0,M10.5.0/3`, `<+0530>-5:30`.
    """
    found = _known.get(name) if isinstance(name, str) else None
    if found is None:
        found = ruled(name) if isinstance(name, str) else None
    if found is None:
        found = _known.setdefault(name, Zone(name, tzif.parse(_read(name))))
    return found


@lru_cache(maxsize=256)
def ruled(name: str) -> Zone | None:
    """The zone of a POSIX rule; None for a text that is none, or that could be meant as a name: `EST5`, `UTC+2`."""
    rule = tzif.checked_rule(name) if "," in name or name[:1] == "<" else None
    return None if rule is None else Zone(name, tzif.ZoneData((), (rule.standard,), 0, rule))


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
    if isinstance(name, str) and "," in name and len(name) > tzif.LONGEST_RULE:
        raise UnknownZone(
            f"Unknown time zone {shown(name)}: a POSIX rule has at most {tzif.LONGEST_RULE} characters",
            hint="Shorten the names in it: they mean nothing to Horae.",
            details={"name": name},
        )
    raise UnknownZone(
        f"Unknown time zone {shown(name)}: not in the IANA data of {TZDATA_VERSION}",
        hint=_suggestion(told(name)[:64], names),
        details={"name": told(name)},
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
