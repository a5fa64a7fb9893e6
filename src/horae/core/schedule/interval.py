"""Intervals: Every counts seconds, Iso8601 counts calendar units; both count from an anchor, so neither drifts.

The k-th time is always computed from the anchor, never from the time before it: January 31 plus one month is
February 28, plus two months is March 31.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, ClassVar

from horae.core.schedule.bounds import bound_text, bounds, last_before, last_second, moment, read_keys, read_times
from horae.core.schedule.schedules import Schedule
from horae.core.time.duration import DurationLike, format_duration, whole_seconds
from horae.core.time.instant import EPOCH, FIRST, LAST, aware, floored, rfc3339, seconds_of
from horae.core.time.zone import UNSPECIFIED, UTC_ZONE, Transition, Zone, is_unspecified, zone, zone_name
from horae.errors import InvalidIso8601, InvalidSchedule, InvalidTime, shown


@dataclass(frozen=True, slots=True, eq=False)
class Every(Schedule):
    """A fixed interval of whole seconds: `Every("1h30m")`.

    `start` is the first scheduled time, and the others count from it. `end` is inclusive. Without `start`, a job counts
    from `anchor`, the time of its first definition, which is not a scheduled time itself. A schedule with neither
    counts from the argument of `next` and `previous`.

    Raises InvalidDuration for an interval that is not a whole number of seconds, at least 1, and InvalidSchedule where
    `end` comes before `start`.
    """

    kind: ClassVar[str] = "every"
    interval: DurationLike
    start: datetime | None = None
    end: datetime | None = None
    anchor: datetime | None = None
    seconds: int = field(init=False, repr=False)
    _base: int | None = field(init=False, repr=False)
    _last: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        start, end = bounds(self.start, self.end)
        start = floored(start, "start") if start is not None else None
        anchor = floored(self.anchor, "anchor") if self.anchor is not None and start is None else None
        put(self, "seconds", whole_seconds(self.interval, name="interval"))
        put(self, "interval", timedelta(0, self.seconds))
        put(self, "start", start)
        put(self, "end", end)
        put(self, "anchor", anchor)
        base = start if start is not None else anchor
        put(self, "_base", None if base is None else seconds_of(base))
        put(self, "_last", last_second(end))

    def next(self, after: datetime) -> datetime | None:
        second = seconds_of(after, "after")
        if self._base is None:
            found = second + self.seconds
        else:
            steps = (second - self._base) // self.seconds + 1
            found = self._base + max(steps, self._lowest) * self.seconds
        return moment(found) if FIRST <= found <= self._last else None

    def previous(self, before: datetime) -> datetime | None:
        second = last_before(before)
        if self._base is None:
            found = second + 1 - self.seconds
            if found > self._last:
                return None
        else:
            steps = (min(second, self._last) - self._base) // self.seconds
            if steps < self._lowest:
                return None
            found = self._base + steps * self.seconds
        return moment(found) if FIRST <= found <= LAST else None

    @property
    def _lowest(self) -> int:
        return 0 if self.start is not None else 1

    def count(self, start: datetime, end: datetime) -> int:
        return Schedule.count(self, start, end) if self._base is None else _evenly(self, start, end, self.seconds)

    def matches(self, at: datetime) -> bool:
        return Schedule.matches(self, at) and self._base is not None

    def anchored(self, at: datetime) -> Schedule:
        anchor = floored(at, "anchor")
        return self if self._base is not None else Every(self.interval, end=self.end, anchor=anchor)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "interval": format_duration(timedelta(0, self.seconds))}
        for name, at in (("start", self.start), ("end", self.end), ("anchor", self.anchor)):
            if at is not None:
                data[name] = bound_text(at)
        return data

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Every:
        arguments = read_times(read_keys(data, "interval", "start", "end", "anchor"), "start", "end", "anchor")
        if "interval" not in arguments:
            raise InvalidSchedule("Invalid every schedule: no interval")
        return cls(**arguments)

    def _meaning(self) -> tuple[object, ...]:
        return (self.seconds, self.start, self.end, self.anchor)

    def __str__(self) -> str:
        text = f"every {format_duration(timedelta(0, self.seconds))}"
        return text if self.start is None else f"{text} from {rfc3339(self.start)}"


_MICROSECOND = timedelta(microseconds=1)
_NUMBER = r"([0-9]{1,9})"
_SPAN = re.compile(
    rf"P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_REPEAT = re.compile(r"R(-1|[0-9]{0,9})")
_LONGEST_TEXT = 200
_LONGEST_SECONDS = 366 * 86_400 * 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Iso8601(Schedule):
    """An ISO 8601 repeating interval: `R5/2026-01-01T00:00:00Z/P1M`, `P3W`, `R/P1Y2M10D`, `R3/P1D/2026-02-01T00:00Z`.

    Years, months, weeks and days count in the wall time of `tz`; hours, minutes and seconds are exact. Month ends
    clamp. A slot that the clocks skip does not fire. A slot that they repeat fires the first time. A start without an
    offset is read in `tz`. `Rn` gives n slots: it counts the start, or the end in the form duration/end. `R`, `R-1` or
    no prefix repeats for ever. `anchor` is as for Every. Raises InvalidIso8601.
    """

    kind: ClassVar[str] = "iso8601"
    text: str
    tz: str = UNSPECIFIED
    anchor: datetime | None = None
    zone: Zone = field(init=False, repr=False)
    months: int = field(init=False, repr=False)
    days: int = field(init=False, repr=False)
    seconds: int = field(init=False, repr=False)
    start: datetime | None = field(init=False, repr=False)
    """The instant that slots count from, where the text gives one: its start, or its end in the form duration/end."""
    _base: int | None = field(init=False, repr=False)
    _lowest: int | None = field(init=False, repr=False)
    _highest: int | None = field(init=False, repr=False)

    if TYPE_CHECKING:  # `tz` may be given as a tzinfo, but is kept as a name

        def __init__(self, text: str, tz: str | tzinfo = ..., anchor: datetime | None = ...) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "tz", zone_name(self.tz))
        self._settle(zone(self.tz))

    def in_zone(self, name: str) -> Iso8601:
        return Iso8601(self.text, name, self.anchor) if is_unspecified(self.tz) else self

    def on_clocks(self, clocks: Zone) -> Iso8601:
        """The same schedule with other data of its zone, which is also used to read a start without an offset."""
        made = object.__new__(Iso8601)
        for name in ("text", "tz", "anchor"):
            object.__setattr__(made, name, getattr(self, name))
        made._settle(clocks)
        return made

    def _settle(self, clocks: Zone) -> None:
        put = object.__setattr__
        put(self, "zone", clocks)
        count, parts = self._split()
        spans = [_SPAN.fullmatch(part) for part in parts]
        ends_there = len(parts) == 2 and spans[0] is not None
        if len(parts) == 2 and spans[0] is None and spans[1] is None:
            first, last = self._moment(parts[0]), self._moment(parts[1])
            months, days, seconds = 0, 0, last - first
            if last <= first:
                raise self._invalid("has an end that does not come after its start")
            fixed: int | None = first
        else:
            span = spans[0] or spans[-1]
            if span is None or (len(parts) == 2 and spans[0] and spans[1]):
                raise self._invalid("needs one duration of whole units such as P1M or PT15M")
            months, days, seconds = _units(span)
            fixed = self._moment(parts[1 if ends_there else 0]) if len(parts) == 2 else None
        if months * 2_629_746 + days * 86_400 + seconds > _LONGEST_SECONDS:
            raise self._invalid("repeats less than once in ten thousand years")
        if months <= 0 and days <= 0 and seconds <= 0:
            raise self._invalid("has a duration of nothing")
        anchor = floored(self.anchor, "anchor") if self.anchor is not None and fixed is None else None
        lowest: int | None = 0 if fixed is not None else 1
        highest = None if count is None else (0 if fixed is not None else 1) + count - 1
        if ends_there:
            lowest, highest = (None if count is None else 1 - count), 0
        base = fixed if fixed is not None else None if anchor is None else seconds_of(anchor)
        if base is not None and (months or days) and not FIRST <= base + self.zone.offset_at(base) <= LAST:
            raise self._invalid(f"counts from a time outside the years 1 to 9999 on the clocks of {self.tz}")
        put(self, "months", months)
        put(self, "days", days)
        put(self, "seconds", seconds)
        put(self, "start", moment(fixed))
        put(self, "anchor", anchor)
        put(self, "_base", base)
        put(self, "_lowest", lowest)
        put(self, "_highest", highest)

    def _split(self) -> tuple[int | None, list[str]]:
        if not isinstance(self.text, str) or not self.text or len(self.text) > _LONGEST_TEXT:
            raise self._invalid(f"is not text of 1 to {_LONGEST_TEXT} characters")
        parts = self.text.split("/")
        repeat = _REPEAT.fullmatch(parts[0])
        if repeat is None and parts[0].startswith("R"):
            raise self._invalid(f"begins with {shown(parts[0])}, which is not R, R-1 or R and a number")
        count = int(repeat[1]) if repeat and repeat[1] not in ("", "-1") else None
        parts = parts[1:] if repeat else parts
        if count == 0:
            raise self._invalid("repeats 0 times, so it never fires")
        if not 1 <= len(parts) <= 2:
            raise self._invalid("must be [Rn/][start/]duration, [Rn/]duration/end or [Rn/]start/end")
        return count, parts

    def _moment(self, text: str) -> int:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise self._invalid(f"has {shown(text)}, which is neither a duration nor a date and time") from None
        if at.tzinfo is not None:
            return seconds_of(aware(at))
        try:
            return seconds_of(self.zone.first_shown(at))
        except InvalidTime as error:
            raise self._invalid(f"has {shown(text)}: {error.details['reason']}") from error

    def _invalid(self, reason: str) -> InvalidIso8601:
        hint = "Examples: R5/2026-01-01T00:00:00Z/P1M, P3W, PT90M, R/P1Y2M10D."
        return InvalidIso8601(f"Invalid ISO 8601 schedule {shown(self.text)}: {reason}", hint=hint)

    def _slot(self, base: int, count: int) -> int | None:
        """The UTC second of the `count`-th slot after `base`; None where the clocks skip it. Raises OverflowError."""
        if not count or (not self.months and not self.days):
            return base + count * self.seconds
        found = self.zone.instants(self._wall(base, count))
        return found[0] + count * self.seconds if found else None

    def _wall(self, base: int, count: int) -> int:
        """The wall second of the `count`-th slot before its hours and less are added. Raises OverflowError."""
        wall = base + self.zone.offset_at(base)
        day, clock = divmod(wall, 86_400)
        date = (EPOCH + timedelta(day)).date()
        if self.months:
            year, month = divmod(date.year * 12 + date.month - 1 + count * self.months, 12)
            if not 1 <= year <= 9999:
                raise OverflowError
            date = date.replace(day=1).replace(year, month + 1, min(date.day, monthrange(year, month + 1)[1]))
        date += timedelta(count * self.days)
        return (date.toordinal() - EPOCH.toordinal()) * 86_400 + clock

    def swallowed_by(self, change: Transition) -> int | None:
        """The wall second of the slot that the gap `change` skips, or None. No gap is long enough to skip two."""
        if self._base is None or not (self.months or self.days) or not change.is_gap:
            return None
        middle = self._guess(self._base, change.at)
        for count in range(middle - 3, middle + 4):
            inside = (self._lowest is None or count >= self._lowest) and (
                self._highest is None or count <= self._highest
            )
            try:
                wall = self._wall(self._base, count) if inside and count else None
            except OverflowError:
                continue
            if wall is not None and change.at + change.before <= wall < change.at + change.after:
                return wall
        return None

    def _guess(self, base: int, second: int) -> int:
        """An estimate of the count whose slot lies nearest to `second`, wrong by at most three."""
        return (second - base) * 100 // (self.months * 262_974_600 + (self.days * 86_400 + self.seconds) * 100)

    def _base_for(self, second: int) -> tuple[int, int | None, int | None]:
        if self._base is None:
            return second, None, None
        return self._base, self._lowest, self._highest

    def next(self, after: datetime) -> datetime | None:
        second = seconds_of(after, "after")
        base, lowest, highest = self._base_for(second)
        count = self._guess(base, second) - 3
        if lowest is not None:
            count = max(count, lowest)
        while highest is None or count <= highest:
            try:
                found = self._slot(base, count)
            except OverflowError:
                if count > 0:
                    return None
                found = None
            if found is not None and found > second and (self._base is not None or count > 0):
                return moment(found) if FIRST <= found <= LAST else None
            count += 1
        return None

    def previous(self, before: datetime) -> datetime | None:
        second = last_before(before)
        base, lowest, highest = self._base_for(second + 1)
        count = self._guess(base, second) + 3
        if highest is not None:
            count = min(count, highest)
        while lowest is None or count >= lowest:
            try:
                found = self._slot(base, count)
            except OverflowError:
                if count < 0:
                    return None
                found = None
            if found is not None and found <= second and (self._base is not None or count < 0):
                return moment(found) if FIRST <= found <= LAST else None
            count -= 1
        return None

    @property
    def timezone(self) -> str:
        return str(self.tz)

    def matches(self, at: datetime) -> bool:
        return Schedule.matches(self, at) and self._base is not None

    def count(self, start: datetime, end: datetime) -> int:
        if self._base is None or self.months or self.days:
            return Schedule.count(self, start, end)
        return _evenly(self, start, end, self.seconds)

    def anchored(self, at: datetime) -> Schedule:
        anchor = floored(at, "anchor")
        return self if self._base is not None else Iso8601(self.text, self.tz, anchor=anchor)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "text": self.text, "tz": str(self.tz)}
        return data if self.anchor is None else data | {"anchor": bound_text(self.anchor)}

    @classmethod
    def _decode(cls, data: Mapping[str, Any]) -> Iso8601:
        arguments = read_times(read_keys(data, "text", "tz", "anchor"), "anchor")
        if "text" not in arguments:
            raise InvalidSchedule("Invalid iso8601 schedule: no text")
        return cls(**arguments)

    def _meaning(self) -> tuple[object, ...]:
        calendar = (self.months, self.days, self.seconds)
        if self.zone is UTC_ZONE:
            calendar = (self.months, 0, self.days * 86_400 + self.seconds)
        key = self.zone.key if calendar[0] or calendar[1] else None
        return (calendar, key, self._base, self._lowest, self._highest)

    def describe(self) -> str:
        years, months = divmod(self.months, 12)
        weeks, days = divmod(self.days, 7) if self.days % 7 == 0 else (0, self.days)
        parts = ((years, "year"), (months, "month"), (weeks, "week"), (days, "day"))
        spelt = [f"{count} {unit}{'s' if count > 1 else ''}" for count, unit in parts if count]
        if self.seconds:
            spelt.append(format_duration(timedelta(0, self.seconds)))
        text = f"Every {' '.join(spelt)}"
        if self.start is not None:
            text += f", counted from {rfc3339(self.start)}"
        if self._lowest is not None and self._highest is not None:
            text += f", {self._highest - self._lowest + 1} times"
        return text if self.zone is UTC_ZONE else f"{text}, {self.tz} time"

    def __str__(self) -> str:
        return f"iso8601 {self.text}" if self.zone is UTC_ZONE else f"iso8601 {self.text} {self.tz}"


def _evenly(schedule: Schedule, start: datetime, end: datetime, seconds: int) -> int:
    """How many slots lie in (start, end], for slots that lie `seconds` apart."""
    first, last = schedule.next(start), schedule.previous(aware(end, "end").replace(microsecond=0) + _MICROSECOND)
    if first is None or last is None or last < first:
        return 0
    return (last - first) // timedelta(0, seconds) + 1


def _units(span: re.Match[str]) -> tuple[int, int, int]:
    years, months, weeks, days, hours, minutes, seconds = (int(span[group] or 0) for group in range(1, 8))
    return years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + seconds
