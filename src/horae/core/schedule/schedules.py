"""Schedules: the base class, Cron, Once and Union. Every and Iso8601 are in `interval`.

A schedule is an immutable, hashable value. Two are equal when they mean the same. `to_dict` writes one and
`schedule_from_dict` reads it. Arguments are aware datetimes; returned times are in UTC, in whole seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from heapq import merge
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from horae.core.schedule.bounds import (
    bound_text,
    bounds,
    last_before,
    last_second,
    moment,
    read_keys,
    read_times,
    second_before_start,
)
from horae.core.schedule.cron import DIALECTS, CronTable, compile_cron
from horae.core.schedule.description import describe_cron
from horae.core.schedule.zoned_cron import next_second, previous_second
from horae.core.time.instant import EPOCH, FIRST, aware, clamped, floored, instant, rfc3339, seconds_of
from horae.core.time.zone import LARGEST_OFFSET_GAP, UNSPECIFIED, UTC_ZONE, Zone, is_unspecified, zone, zone_name
from horae.errors import InvalidCron, InvalidSchedule, as_text, shown

_MICROSECOND = timedelta(microseconds=1)
_decoders: dict[str, Callable[[Mapping[str, Any]], Schedule]] = {}


class Schedule(ABC):
    """The interface of every schedule.

    A class of your own with `next`, `previous` and `between` can be used instead. Methods that take a time raise
    InvalidTime for a naive one. `a | b` is the union of two schedules.
    """

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            _decoders[cls.kind] = cls._decode

    @abstractmethod
    def next(self, after: datetime) -> datetime | None:
        """The first time strictly after `after`, or None when there is none."""

    @abstractmethod
    def previous(self, before: datetime) -> datetime | None:
        """The last time strictly before `before`, or None when there is none."""

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The times with `start < t <= end`, in order, computed lazily."""
        seconds_of(start, "start")
        return self._walk(start, clamped(end, "end"))

    def _walk(self, start: datetime, limit: datetime) -> Iterator[datetime]:
        found = self.next(start)
        while found is not None and found <= limit:
            yield found
            found = self.next(found)

    def count(self, start: datetime, end: datetime) -> int:
        """The number of times that `between` gives. Crons and intervals compute it without listing the times."""
        return sum(1 for _ in self.between(start, end))

    def matches(self, at: datetime) -> bool:
        """Whether `at` is exactly one of the schedule's times."""
        wanted = aware(at)
        return not wanted.microsecond and self.previous(wanted + _MICROSECOND) == wanted

    def describe(self) -> str:
        """The schedule in English, without a full stop."""
        text = str(self)
        return text[:1].upper() + text[1:]

    def anchored(self, at: datetime) -> Schedule:
        """The schedule for a job that is defined at `at`: an interval without a start counts from `at`."""
        floored(at, "anchor")
        return self

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values that `schedule_from_dict` reads back to an equal schedule."""

    @classmethod
    @abstractmethod
    def _decode(cls, data: Mapping[str, Any]) -> Schedule: ...

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The schedule that `data` describes. Raises InvalidSchedule, on a subclass also for another kind."""
        found = schedule_from_dict(data)
        if not isinstance(found, cls):
            raise InvalidSchedule(f"Invalid schedule: kind {shown(data.get('kind'))} is not {cls.__name__}")
        return found

    @abstractmethod
    def _meaning(self) -> tuple[object, ...]:
        """Equal for two schedules of one class exactly when they mean the same."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self is other or self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._meaning()))

    @property
    def timezone(self) -> str:
        """The name of the schedule's zone. Windows and constraints of its job use the same zone."""
        return "UTC"

    def in_zone(self, name: str) -> Schedule:
        """This schedule in the zone `name`, unless it names a zone itself."""
        return self

    def __or__(self, other: object) -> Schedule:
        # Imported here because `custom` imports this module.
        from horae.core.schedule.custom import ScheduleLike, as_schedule

        if not isinstance(other, ScheduleLike) or isinstance(other, type):
            return NotImplemented
        union = Union((self, as_schedule(other)))
        return union.parts[0] if len(union.parts) == 1 else union

    def __ror__(self, other: object) -> Schedule:
        return self | other

    def __reduce__(self) -> tuple[Any, ...]:
        return (schedule_from_dict, (self.to_dict(),))


def schedule_from_dict(data: Mapping[str, Any]) -> Schedule:
    """Reads what `to_dict` wrote.

    Raises InvalidSchedule, also for unknown kinds and keys, so that a typing error never becomes a silent default.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    decode = _decoders.get(kind) if isinstance(kind, str) else None
    if decode is None:
        known = ", ".join(sorted(_decoders))
        raise InvalidSchedule(f"Invalid schedule: unknown kind {shown(kind)}", hint=f"Known kinds: {known}.")
    return decode(data)


@dataclass(frozen=True, slots=True, eq=False)
class Cron(Schedule):
    """A cron expression in the wall time of one zone: `Cron("0 2 * * *", tz="Europe/Brussels")`.

    `tz` is a name or a `ZoneInfo`. Where it is left out, the zone around the schedule applies (`Horae(timezone=…)`),
    else UTC. `dialect` is "extended", "posix" or "vixie" (see `core.schedule.cron`).
    `gap`: "skip" skips a wall minute that the clocks skip, "shift" fires at the first instant after the gap.
    `fold`: a wall minute that occurs twice fires "both" times or "once", the first time. "auto" means both when the
    hour field is `*` or `*/n`, else once.
    `start` and `end` bound the times, both inclusive.

    Raises InvalidCron, CronNeverFires, UnknownZone or InvalidSchedule.
    """

    kind: ClassVar[str] = "cron"
    expr: str
    tz: str = UNSPECIFIED
    dialect: Literal["extended", "posix", "vixie"] = "extended"
    gap: Literal["skip", "shift"] = "skip"
    fold: Literal["auto", "both", "once"] = "auto"
    start: datetime | None = None
    end: datetime | None = None
    table: CronTable = field(init=False, repr=False)
    zone: Zone = field(init=False, repr=False)
    _first: int = field(init=False, repr=False)
    _last: int = field(init=False, repr=False)

    if TYPE_CHECKING:  # `tz` may be given as a tzinfo, but is kept as a name

        def __init__(
            self,
            expr: str,
            tz: str | tzinfo = ...,
            dialect: Literal["extended", "posix", "vixie"] = ...,
            gap: Literal["skip", "shift"] = ...,
            fold: Literal["auto", "both", "once"] = ...,
            start: datetime | None = ...,
            end: datetime | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, value, known in (
            ("dialect", self.dialect, DIALECTS),
            ("gap", self.gap, ("skip", "shift")),
            ("fold", self.fold, ("auto", "both", "once")),
        ):
            if value not in known:
                raise InvalidSchedule(
                    f"Invalid {name} {shown(value)} for a cron schedule", hint=f"Choose one of: {', '.join(known)}."
                )
        if not isinstance(self.expr, str):
            raise InvalidCron(as_text(self.expr), "expression", f"must be text, not {type(self.expr).__name__}")
        start, end = bounds(self.start, self.end)
        put = object.__setattr__
        put(self, "start", start)
        put(self, "end", end)
        put(self, "table", compile_cron(self.expr, self.dialect))
        put(self, "tz", zone_name(self.tz))
        put(self, "zone", zone(self.tz))
        put(self, "_first", second_before_start(start))
        put(self, "_last", last_second(end))

    @property
    def timezone(self) -> str:
        return str(self.tz)

    def in_zone(self, name: str) -> Schedule:
        return replace(self, tz=name) if is_unspecified(self.tz) else self

    @property
    def fires_once(self) -> bool:
        """Whether a wall minute that occurs twice fires at its first occurrence only."""
        return self.fold == "once" or (self.fold == "auto" and not self.table.hourly)

    def next(self, after: datetime) -> datetime | None:
        # The hottest path: `seconds_of` is inlined, and UTC needs no search through the zone's stretches.
        try:
            elapsed = after - EPOCH
        except TypeError:
            seconds_of(after, "after")
            raise
        second = elapsed.days * 86_400 + elapsed.seconds
        if second < self._first:
            second = self._first
        if self.zone is UTC_ZONE:
            minute = self.table.next_minute(second // 60)
            found = None if minute is None else minute * 60
        else:
            found = self._search(second)
        if found is None or found > self._last:
            return None
        return EPOCH + timedelta(0, found)

    def _search(self, second: int) -> int | None:
        return next_second(self.table, self.zone, second, once=self.fires_once, shift=self.gap == "shift")

    def previous(self, before: datetime) -> datetime | None:
        second = min(last_before(before), self._last)
        if second <= self._first:
            return None
        found = previous_second(self.table, self.zone, second, once=self.fires_once, shift=self.gap == "shift")
        return moment(found) if found is not None and found > self._first else None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return self._between(max(seconds_of(start, "start"), self._first), min(seconds_of(end, "end"), self._last))

    def _between(self, second: int, last: int) -> Iterator[datetime]:
        minutes = _minutes_of_day(self.table.minute_mask)
        for found, midnight in self._rows(second, last):
            if midnight is None:
                yield instant(found)
                continue
            base = instant(midnight)
            for step in minutes[bisect_left(minutes, timedelta(0, found - midnight)) :]:
                yield base + step

    def count(self, start: datetime, end: datetime) -> int:
        minutes = _minutes_of_day(self.table.minute_mask)
        rows = self._rows(max(seconds_of(start, "start"), self._first), min(seconds_of(end, "end"), self._last))
        return sum(
            1 if midnight is None else len(minutes) - bisect_left(minutes, timedelta(0, found - midnight))
            for found, midnight in rows
        )

    def _rows(self, second: int, last: int) -> Iterator[tuple[int, int | None]]:
        """The times in (second, last], as pairs of a time and None, or of a time and its day's midnight.

        A pair with a midnight stands for the time and all later ones of that day: no clock change is near, so each of
        them is the midnight plus a matching minute of the day.
        """
        while (found := self._search(second)) is not None and found <= last:
            starts, offsets, _, _ = self.zone.cover(found)
            offset = offsets[bisect_right(starts, found)]
            midnight = (found + offset) // 86_400 * 86_400 - offset
            index = bisect_left(starts, midnight - LARGEST_OFFSET_GAP)
            quiet = index == len(starts) or starts[index] > midnight + 86_400
            if quiet and midnight >= FIRST and midnight + 86_399 <= last:
                yield found, midnight
                second = midnight + 86_399
            else:
                yield found, None
                second = found

    def describe(self) -> str:
        text = describe_cron(self.table)
        if self.zone is not UTC_ZONE:
            text += f", {self.tz} time"
        if self.start is not None:
            text += f", from {rfc3339(self.start)}"
        if self.end is not None:
            text += f", until {rfc3339(self.end)}"
        return text

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "expr": self.expr, "tz": str(self.tz)}
        for name, usual in (("dialect", "extended"), ("gap", "skip"), ("fold", "auto")):
            if getattr(self, name) != usual:
                data[name] = getattr(self, name)
        data |= {name: bound_text(at) for name, at in (("start", self.start), ("end", self.end)) if at is not None}
        return data

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Cron:
        arguments = read_keys(data, "expr", "tz", "dialect", "gap", "fold", "start", "end")
        if "expr" not in arguments:
            raise InvalidSchedule("Invalid cron schedule: no expr")
        return cls(**read_times(arguments, "start", "end"))

    def _meaning(self) -> tuple[object, ...]:
        changes = None if self.zone is UTC_ZONE else (self.gap, self.fires_once)
        return (self.table.meaning, self.zone.key, changes, self.start, self.end)

    def __str__(self) -> str:
        text = f"cron {self.expr}"
        if self.zone is not UTC_ZONE:
            text += f" {self.tz}"
        return text


@lru_cache(maxsize=128)
def _minutes_of_day(mask: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(0, minute * 60) for minute in range(1440) if mask >> minute & 1)


@dataclass(frozen=True, slots=True, eq=False)
class Once(Schedule):
    """One scheduled time, floored to the second. With `drop` the job's definition is dropped after the run."""

    kind: ClassVar[str] = "once"
    at: datetime
    drop: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.drop, bool):
            raise InvalidSchedule(f"Invalid drop {shown(self.drop)} for a once schedule: must be true or false")
        object.__setattr__(self, "at", floored(self.at, "at"))

    def next(self, after: datetime) -> datetime | None:
        return self.at if self.at > clamped(after, "after") else None

    def previous(self, before: datetime) -> datetime | None:
        return self.at if self.at < clamped(before, "before") else None

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "at": rfc3339(self.at)}
        return data | {"drop": True} if self.drop else data

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Once:
        arguments = read_times(read_keys(data, "at", "drop"), "at")
        if "at" not in arguments:
            raise InvalidSchedule("Invalid once schedule: no at")
        return cls(**arguments)

    def _meaning(self) -> tuple[object, ...]:
        return (self.at, self.drop)

    def __str__(self) -> str:
        return f"once at {rfc3339(self.at)}"


@dataclass(frozen=True, slots=True, eq=False)
class Union(Schedule):
    """Several schedules as one: fires whenever any of them does, once where they coincide. Written `a | b`."""

    kind: ClassVar[str] = "union"
    parts: tuple[Schedule, ...]

    def __post_init__(self) -> None:
        flat: list[Schedule] = []
        for part in self.parts:
            if not isinstance(part, Schedule):
                raise InvalidSchedule(f"Invalid union: {shown(part)} is not a schedule")
            flat += part.parts if isinstance(part, Union) else (part,)
        if not flat:
            raise InvalidSchedule("Invalid union: it has no schedules")
        object.__setattr__(self, "parts", tuple(dict.fromkeys(flat)))

    @property
    def timezone(self) -> str:
        zones = {part.timezone for part in self.parts}
        return zones.pop() if len(zones) == 1 else "UTC"

    def next(self, after: datetime) -> datetime | None:
        return min((at for part in self.parts if (at := part.next(after)) is not None), default=None)

    def previous(self, before: datetime) -> datetime | None:
        return max((at for part in self.parts if (at := part.previous(before)) is not None), default=None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return _distinct(merge(*(part.between(start, end) for part in self.parts)))

    def matches(self, at: datetime) -> bool:
        return any(part.matches(at) for part in self.parts)

    def anchored(self, at: datetime) -> Schedule:
        return Union(tuple(part.anchored(at) for part in self.parts))

    def in_zone(self, name: str) -> Schedule:
        return Union(tuple(part.in_zone(name) for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Union:
        parts = read_keys(data, "parts").get("parts")
        if not isinstance(parts, list | tuple):
            raise InvalidSchedule("Invalid union schedule: parts must be a list")
        if any(isinstance(part, Mapping) and part.get("kind") == cls.kind for part in parts):
            raise InvalidSchedule("Invalid union schedule: a union inside a union; list all parts in one")
        return cls(tuple(schedule_from_dict(part) for part in parts))

    def _meaning(self) -> tuple[object, ...]:
        return (frozenset(self.parts),)

    def describe(self) -> str:
        return "; or ".join(part.describe() for part in self.parts)

    def __str__(self) -> str:
        return " | ".join(str(part) for part in self.parts)


def _distinct(times: Iterator[datetime]) -> Iterator[datetime]:
    last = None
    for at in times:
        if at != last:
            yield at
            last = at
