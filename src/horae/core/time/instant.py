"""Instants: aware datetimes in the public interface, whole seconds since 1970 inside."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from horae.errors import InvalidTime, shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = -62_135_596_800
"""0001-01-01T00:00:00Z, the first second that a datetime can hold."""
LAST = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that a datetime can hold."""
_TWO_DIGITS = tuple(f"{number:02}" for number in range(60))


def seconds_of(value: datetime, name: str = "time") -> int:
    """The whole seconds from 1970 to `value`, floored. Raises InvalidTime unless `value` is an aware datetime."""
    try:
        elapsed = value - EPOCH
    except TypeError:
        raise _not_an_instant(value, name) from None
    return elapsed.days * 86_400 + elapsed.seconds


def aware(value: datetime, name: str = "time") -> datetime:
    """`value` in UTC. Raises InvalidTime unless it is an aware datetime within the years 1 to 9999 in UTC."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    try:
        return EPOCH + (value - EPOCH)
    except TypeError:
        raise _not_an_instant(value, name) from None
    except OverflowError:
        raise InvalidTime(
            f"Invalid {name} {shown(value)}: lies outside the years 1 to 9999 in UTC", details={"name": name}
        ) from None


def clamped(value: datetime, name: str = "time") -> datetime:
    """`value` in UTC, clamped to the years 1 to 9999. Use the result for comparisons only."""
    second = seconds_of(value, name)
    if second > LAST:
        return datetime.max.replace(tzinfo=UTC)
    return datetime.min.replace(tzinfo=UTC) if second < FIRST else aware(value, name)


def shifted(value: datetime, by: timedelta) -> datetime:
    """`value` moved by `by`, clamped to the years 1 to 9999. Use the result for comparisons only."""
    try:
        return value + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if by > timedelta(0) else datetime.min.replace(tzinfo=UTC)


def instant(seconds: int) -> datetime:
    """The UTC datetime `seconds` after 1970. `seconds` must lie between FIRST and LAST."""
    return EPOCH + timedelta(0, seconds)


def floored(value: datetime, name: str = "time") -> datetime:
    """`value` in UTC without its fraction of a second."""
    return aware(value, name).replace(microsecond=0)


def rfc3339(value: datetime) -> str:
    """A UTC datetime as `2026-03-01T00:00:00Z`, fractions dropped."""
    # Takes a third of the time of the library's formatting: every decision writes one, a page of a list a thousand.
    two = _TWO_DIGITS
    return f"{_day(value.date())}T{two[value.hour]}:{two[value.minute]}:{two[value.second]}Z"


def precise(value: datetime) -> str:
    """Like `rfc3339`, with milliseconds or microseconds where the value has any."""
    fraction = value.microsecond
    if not fraction:
        return rfc3339(value)
    digits = f"{fraction:06}" if fraction % 1_000 else f"{fraction // 1_000:03}"
    return f"{rfc3339(value)[:-1]}.{digits}Z"


@lru_cache(4096)
def _day(value: date) -> str:
    return value.isoformat()


def parse_instant(text: str, name: str = "time") -> datetime:
    """Parses RFC 3339 text with an offset or `Z`, into UTC. Raises InvalidTime."""
    try:
        value = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise InvalidTime(
            f"Invalid {name} {shown(text)}: is not an ISO 8601 date and time",
            hint="Write it as 2026-03-01T09:00:00Z or 2026-03-01T09:00:00+01:00.",
            details={"name": name},
        ) from None
    return aware(value, name)


def _not_an_instant(value: object, name: str) -> InvalidTime:
    if isinstance(value, datetime):
        reason, hint = "has no time zone", "Give an aware datetime: datetime(…, tzinfo=timezone.utc)."
    else:
        reason, hint = f"is a {type(value).__name__}, not a datetime", "Give an aware datetime."
    return InvalidTime(f"Invalid {name} {shown(value)}: {reason}", hint=hint, details={"name": name})
