"""What schedules share: their bounds as whole seconds, and reading and writing their parts as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from horae.core.instant import EPOCH, FIRST, LAST, aware, parse_instant, rfc3339, seconds_of
from horae.errors import InvalidSchedule, shown


def read_keys(data: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The arguments in `data` without its kind; a key outside `known` is refused by name."""
    for key in data:
        if key != "kind" and key not in known:
            raise InvalidSchedule(
                f"Invalid {data['kind']} schedule: unknown key {shown(key)}", hint=f"Known keys: {', '.join(known)}."
            )
    return {key: data[key] for key in known if data.get(key) is not None}


def read_times(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """`arguments` with the texts under `names` read as instants."""
    for name in names:
        if isinstance(arguments.get(name), str):
            arguments[name] = parse_instant(arguments[name], name)
    return arguments


def bound_text(value: datetime) -> str:
    """An instant as `to_dict` writes it, with its fraction if it has one."""
    return rfc3339(value) if not value.microsecond else value.isoformat()


def bounds(start: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Both bounds in UTC; refused when the end comes before the start."""
    first = aware(start, "start") if start is not None else None
    last = aware(end, "end") if end is not None else None
    if first is not None and last is not None and last < first:
        raise InvalidSchedule(f"Invalid schedule: end {bound_text(last)} comes before start {bound_text(first)}")
    return first, last


def first_second(start: datetime | None) -> int:
    """The last whole second that lies before `start`: searches begin strictly after it."""
    return FIRST - 1 if start is None else seconds_of(start) - (0 if start.microsecond else 1)


def last_second(end: datetime | None) -> int:
    return LAST if end is None else seconds_of(end)


def last_before(before: datetime) -> int:
    """The last whole second strictly before `before`."""
    return seconds_of(before, "before") - (0 if before.microsecond else 1)


def moment(second: int | None) -> datetime | None:
    return None if second is None else EPOCH + timedelta(0, second)
