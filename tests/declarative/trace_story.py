"""Traces written by hand: lines of a time, a kind and tasks, and changes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.declarative.trace import Event, Kind, Registered, Trace
from tests.declarative.trace_checker import Wrong, check

Lines = tuple[str, ...]
Found = set[tuple[Wrong, str | None]]
TASKS = {
    "half": Registered("0,30 * * * *", timedelta(minutes=10)),
    "quarter": Registered("15 * * * *", timedelta(hours=1)),
    "noon": Registered("45 11 * * *", timedelta(0)),
    "twenty": Registered("20 * * * *"),
    "hourly": Registered("0 * * * *"),
    "evening": Registered("0 22 * * *"),
    "night": Registered("30 2 * * *"),
    "island": Registered("45 1 * * *"),
    "impatient": Registered("0 * * * *", timedelta(0)),
}
STORY = (
    "10:00:20 init half quarter",
    "10:00:20 active",
    "10:00:20 start half",  # this very minute matches
    "10:00:20 success half",
    "10:15:00 start quarter",
    "10:15:30 failure quarter",  # to be retried at 11:15:30, which 11:15 will pre-empt
    "10:30:00 start half",
    "10:30:10 failure half",
    "10:40:10 start half",  # the retry
    "10:41:00 success half",
    "11:00:00 start half",
    "11:05:00 crash",
    "11:10:00 init half quarter noon",
    "11:10:00 active",
    "11:10:00 start half",  # the restart
    "11:12:00 success half",
    "11:15:00 start quarter",
    "11:16:00 success quarter",
    "11:30:00 start half",
    "11:31:00 stop",
    "11:35:00 success half",
    "11:35:00 stopped",
    "13:20:00 init half quarter noon",
    "13:20:00 active",
    "13:20:00 start half",  # for 12:00, 12:30 and 13:00
    "13:20:00 start quarter",  # for 12:15 and 13:15
    "13:20:05 success half",
    "13:20:06 success quarter",
    "13:30:00 start half",
    "14:10:00 success half",
    "14:10:00 start half",  # for 14:00
    "14:10:05 success half",
    "14:15:00 start quarter",
    "14:15:00 success quarter",
    "16:50:00 jump",
    "16:50:00 start half",  # for 14:30 to 16:30
    "16:50:00 start quarter",
    "16:51:00 success half",
    "16:51:00 success quarter",
    "16:55:00 stop",
    "16:55:00 stopped",
    "16:58:00 end",
)


def trace(lines: Lines, zone: str = "UTC") -> Trace:
    """Lines of a time, a kind and tasks. `name=other` registers a task as another is; a day is written before the T."""
    return Trace(zone, tuple(_event(line) for line in lines))


def _event(line: str) -> Event:
    time, kind, *names = line.split()
    at = datetime.fromisoformat(time if "T" in time else f"2026-01-01T{time}").replace(tzinfo=UTC)
    if kind == Kind.INIT:
        pairs = (name.partition("=") for name in names)
        return Event(at, Kind.INIT, tasks={name: TASKS[other or name] for name, _, other in pairs})
    return Event(at, Kind(kind), names[0] if names else None)


def found(lines: Lines, zone: str = "UTC") -> Found:
    return {(violation.wrong, violation.task) for violation in check(trace(lines, zone)).violations}


def without(*gone: str, lines: Lines = STORY) -> Lines:
    assert all(lines.count(line) == 1 for line in gone)
    return tuple(line for line in lines if line not in gone)


def with_added(after: str, *added: str, lines: Lines = STORY) -> Lines:
    place = lines.index(after) + 1
    return (*lines[:place], *added, *lines[place:])


def changed(line: str, to: str, lines: Lines = STORY) -> Lines:
    assert lines.count(line) == 1
    return tuple(to if each == line else each for each in lines)
