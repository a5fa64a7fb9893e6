"""Wall time and instants: which offsets a zone has had and will have, what its clocks skip and what they repeat.

A zone is a list of stretches. Stretch `i` runs from `starts[i - 1]` (inclusive) to `starts[i]` (exclusive) in UTC
seconds and shows `utc + offsets[i]` on the wall. Where an offset grows, the wall skips a *gap*; where it shrinks, it
repeats a *fold*. Everything about daylight saving follows from that.
"""

from __future__ import annotations

import pkgutil
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import tzdata

from horae.core import tzif
from horae.core.instant import LAST, instant, seconds_of
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


class Zone:
    """One IANA zone. Instances are shared: `zone(name)` gives the same object for the same name."""

    __slots__ = ("_covered", "_listed_until", "_rule", "_year", "key", "offsets", "starts")

    def __init__(self, key: str, data: tzif.ZoneData) -> None:
        self.key = key
        self.starts = data.starts
        self.offsets = data.offsets
        self._rule = data.rule
        self._listed_until = data.listed_until
        self._year = max(1970, instant(data.listed_until).year) - 1
        # A year early, so that whoever stands near the last listed change sees what the rule adds after it.
        self._covered = data.listed_until - 370 * 86_400 if data.rule.begin else LAST + REACH

    def cover(self, utc: int) -> None:
        """Makes sure the stretches are known at and well after `utc`. Only ever adds, so readers need no lock."""
        if utc < self._covered:
            return
        until_year = min(9999, instant(min(utc, LAST)).year + 40)
        starts, offsets = list(self.starts), list(self.offsets)
        for year in range(self._year + 1, until_year + 1):
            for at, offset in self._rule.transitions(year):
                if at > self._listed_until and offset != offsets[-1]:
                    starts.append(at)
                    offsets.append(offset)
        self._year = until_year
        # Offsets first: a reader that sees the old starts beside the new offsets still reads a true pair.
        self.offsets, self.starts = tuple(offsets), tuple(starts)
        self._covered = LAST + REACH if until_year == 9999 else seconds_of(datetime(until_year, 1, 1, tzinfo=UTC))

    def offset_at(self, utc: int) -> int:
        """Seconds to add to a UTC second to get the wall clock's."""
        if utc >= self._covered:
            self.cover(utc)
        return self.offsets[bisect_right(self.starts, utc)]

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
        self.cover(wall + REACH)
        starts, offsets = self.starts, self.offsets
        found = []
        for index in range(bisect_right(starts, wall - REACH), bisect_right(starts, wall + REACH) + 1):
            utc = wall - offsets[index]
            if (index == 0 or starts[index - 1] <= utc) and (index == len(starts) or utc < starts[index]):
                found.append(utc)
        return tuple(found)

    def gap_end(self, wall: int) -> int | None:
        """The first UTC second after the gap that swallowed `wall`, or None where `wall` exists."""
        if self.instants(wall):
            return None
        for change in self.transitions(wall - REACH, wall + REACH):
            if change.at + change.before <= wall < change.at + change.after:
                return change.at
        return None

    def transitions(self, after: int, until: int) -> tuple[Transition, ...]:
        """The changes with `after < at <= until`."""
        self.cover(until)
        first, stop = bisect_right(self.starts, after), bisect_right(self.starts, until)
        return tuple(
            Transition(self.starts[index], self.offsets[index], self.offsets[index + 1]) for index in range(first, stop)
        )

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"


_FIXED = tzif.Rule(0, 0, None, None)
UTC_ZONE = Zone("UTC", tzif.ZoneData((), (0,), 0, _FIXED))
_known: dict[str, Zone] = {"UTC": UTC_ZONE}


def zone(name: str) -> Zone:
    """The zone called `name` in the pinned data, read on first use; the host's own zone data is never consulted."""
    found = _known.get(name) if isinstance(name, str) else None
    if found is None:
        found = _known.setdefault(name, Zone(name, tzif.parse(_read(name))))
    return found


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
    raise UnknownZone(
        f"Unknown time zone {shown(name)}: not in the IANA data of {TZDATA_VERSION}",
        hint=_suggestion(told(name)[:64], names),
        details={"name": told(name)},
    )


def _suggestion(name: str, names: tuple[str, ...]) -> str:
    # Imported here: only a wrong name needs it, and the command line starts sooner without.
    from difflib import get_close_matches

    folded = {known.lower(): known for known in names}
    cities = {known.lower().rpartition("/")[2]: known for known in names}
    wanted = name.lower().replace(" ", "_")
    near = [folded[match] for match in get_close_matches(wanted, folded, n=3, cutoff=0.7)]
    near += [cities[match] for match in get_close_matches(wanted.rpartition("/")[2], cities, n=3, cutoff=0.8)]
    if near:
        return f"Did you mean {', '.join(dict.fromkeys(near))}?"
    return "Use an IANA name such as UTC, Europe/Berlin or America/New_York."
