"""Functions that all kinds of schedules share: bounds in whole seconds, and reading and writing plain values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from horae.core.time.instant import EPOCH, FIRST, LAST, aware, parse_instant, rfc3339, seconds_of
from horae.errors import InvalidSchedule, shown


def read_keys(data: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The values of `data` that are set, without `kind`. Raises InvalidSchedule for a key outside `known`."""
    for key in data:
        if key != "kind" and key not in known:
            raise InvalidSchedule(
                f"Invalid {data['kind']} schedule: unknown key {shown(key)}", hint=f"Known keys: {', '.join(known)}."
            )
    return {key: data[key] for key in known if data.get(key) is not None}


def read_times(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """Parses the texts under `names` into instants. Changes `arguments` in place and returns it."""
    for name in names:
        if isinstance(arguments.get(name), str):
            arguments[name] = parse_instant(arguments[name], name)
    return arguments


def bound_text(value: datetime) -> str:
    """A bound as `to_dict` writes it, with its fraction of a second if it has one."""
    return rfc3339(value) if not value.microsecond else value.isoformat()


def bounds(start: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Both bounds in UTC. Raises InvalidSchedule where the end comes before the start."""
    first = aware(start, "start") if start is not None else None
    last = aware(end, "end") if end is not None else None
    if first is not None and last is not None and last < first:
        raise InvalidSchedule(f"Invalid schedule: end {bound_text(last)} comes before start {bound_text(first)}")
    return first, last


def second_before_start(start: datetime | None) -> int:
    """The last whole second that lies before `start`: searches begin strictly after it."""
    return FIRST - 1 if start is None else seconds_of(start) - (0 if start.microsecond else 1)


def last_second(end: datetime | None) -> int:
    return LAST if end is None else seconds_of(end)


def last_before(before: datetime) -> int:
    """The last whole second strictly before `before`."""
    return seconds_of(before, "before") - (0 if before.microsecond else 1)


def moment(second: int | None) -> datetime | None:
    return None if second is None else EPOCH + timedelta(0, second)
