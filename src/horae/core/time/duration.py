"""Durations as people write them: `timedelta`, seconds, `"1h30m"`, `"5 minutes"`, `"PT5M"`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache

from horae.errors import InvalidDuration, shown

DurationLike = timedelta | int | float | str

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_UNITS = {
    **{unit: unit for unit in _MICROSECONDS},
    **dict.fromkeys(("µs", "\u03bcs"), "us"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_PART = re.compile(r"\s*([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*([a-zµ\u03bc]{1,7})", re.IGNORECASE)
_ISO = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,6}))?S)?)?"
)
_BARE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_HINT = 'Write a duration as "90s", "1h30m", "2 days", "PT5M", a number of seconds, or a timedelta.'
_LONGEST = timedelta(days=366 * 1000)
_LONGEST_TEXT = 200


def parse_duration(value: DurationLike, *, name: str = "duration") -> timedelta:
    """Parses a duration: a timedelta, a number of seconds, or text such as `"1h30m"`.

    Error messages call the setting `name`. Raises InvalidDuration, also for a negative value or over a thousand years.
    """
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, str):
        result = _from_text(value, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and math.isnan(value):
            raise _invalid(name, value, "is not a number")
        if abs(value) > _LONGEST.total_seconds():
            raise _invalid(name, value, "is longer than a thousand years")
        result = timedelta(seconds=value) if value >= 0 else timedelta(-1)
    else:
        raise _invalid(name, value, f"is a {type(value).__name__}, not a duration")
    if result < timedelta(0):
        raise _invalid(name, value, "is negative")
    if result > _LONGEST:
        raise _invalid(name, value, "is longer than a thousand years")
    return result


def whole_seconds(value: DurationLike, *, name: str) -> int:
    """`value` in seconds. Raises InvalidDuration unless it is a whole number of seconds, at least 1."""
    duration = parse_duration(value, name=name)
    if duration.microseconds or not duration:
        raise _invalid(name, value, "must be a whole number of seconds, at least 1")
    return duration.days * 86_400 + duration.seconds


@lru_cache(maxsize=1024)
def format_duration(duration: timedelta) -> str:
    """Text that `parse_duration` reads back to the same value: `1h30m`, `0s`, `1s500ms`.

    A negative duration is written with a `-`, which `parse_duration` refuses.
    """
    left = duration // timedelta(microseconds=1)
    sign, left = ("-", -left) if left < 0 else ("", left)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left = divmod(left, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0s")


@lru_cache(maxsize=1024)
def _from_text(text: str, name: str) -> timedelta:
    trimmed = text.strip() if len(text) <= _LONGEST_TEXT else ""
    if not trimmed:
        raise _invalid(name, text, f"must have 1 to {_LONGEST_TEXT} characters")
    if trimmed[0] == "-":
        raise _invalid(name, text, "is negative")
    if _BARE.fullmatch(trimmed):
        trimmed += "s"
    if trimmed[0] == "P":
        return _from_iso(trimmed, name)
    position, total = 0, 0
    while position < len(trimmed):
        part = _PART.match(trimmed, position)
        unit = _UNITS.get(part[3].lower()) if part else None
        if part is not None and part[3].lower().rstrip("s") in ("month", "year"):
            raise _invalid(name, text, "has months or years, whose length varies (an Iso8601 schedule takes P1M)")
        if part is None or unit is None:
            raise _invalid(name, text, f"has no number with a unit at {shown(trimmed[position:])}")
        size = _MICROSECONDS[unit]
        total += int(part[1]) * size
        if part[2]:
            total += size * int(part[2]) // 10 ** len(part[2])
        position = part.end()
    if total > _LONGEST // timedelta(microseconds=1):
        raise _invalid(name, text, "is longer than a thousand years")
    return timedelta(microseconds=total)


def _from_iso(text: str, name: str) -> timedelta:
    found = _ISO.fullmatch(text)
    if found is None or len(text) < 3:
        calendar = re.match(r"P[0-9WD]*[0-9][YM]", text)
        reason = "has years or months, whose length varies" if calendar else "is not an ISO 8601 duration"
        raise _invalid(name, text, reason)
    weeks, days, hours, minutes, seconds, fraction = (found[group] or "0" for group in range(1, 7))
    total = timedelta(microseconds=int(fraction.ljust(6, "0")))
    try:
        return total + timedelta(
            weeks=int(weeks), days=int(days), hours=int(hours), minutes=int(minutes), seconds=int(seconds)
        )
    except OverflowError:
        raise _invalid(name, text, "is longer than a thousand years") from None


def _invalid(name: str, value: object, reason: str) -> InvalidDuration:
    return InvalidDuration(f"Invalid {name} {shown(value)}: {reason}", hint=_HINT, details={"name": name})
