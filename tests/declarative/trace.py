"""A trace: what was seen of one scheduler's life from outside, in the order in which it happened.

Plain values and nothing of Horae: the checker judges by them and by the specification alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import tzdata

TIMED = "%Y-%m-%d %H:%M:%S"
FILES = Path(str(tzdata.__file__)).parent / "zoneinfo"


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone by the data Horae is pinned to; the machine's own may be older."""
    with FILES.joinpath(*name.split("/")).open("rb") as source:
        return ZoneInfo.from_file(source, key=name)


class Kind(StrEnum):
    """What happened."""

    INIT = "init"
    """initialize() was called, with `tasks`."""
    ACTIVE = "active"
    """The scheduler said that it was initialized."""
    STOP = "stop"
    """stop() was called."""
    STOPPED = "stopped"
    """stop() returned."""
    CRASH = "crash"
    """The process was gone, and everything that ran in it."""
    JUMP = "jump"
    """The clock stands at `at` all at once: nobody saw the minutes since the event before."""
    START = "start"
    """A callback was called."""
    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"
    """Nobody looked on after this."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A task as it was registered: a POSIX cron expression and the delay before a retry."""

    expression: str
    delay: timedelta = timedelta(minutes=5)

    def __str__(self) -> str:
        return f"{self.expression!r} retried after {self.delay.total_seconds():g} s"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, at a time in UTC. `task` is set for START, SUCCESS and FAILURE, `tasks` for INIT."""

    at: datetime
    kind: Kind
    task: str | None = None
    tasks: Mapping[str, Registered] = field(default_factory=dict)

    def shown(self, zone: ZoneInfo) -> str:
        local = self.at.astimezone(zone)
        fraction = f".{self.at.microsecond // 1000:03d}" if self.at.microsecond else ""
        words = [f"{self.at.astimezone(UTC):{TIMED}}{fraction}Z", f"{local:%a %H:%M %Z}", self.kind.value]
        if self.task is not None:
            words.append(self.task)
        return "  ".join(words) + "".join(f"\n      {name}: {each}" for name, each in self.tasks.items())


@dataclass(frozen=True, slots=True)
class Trace:
    """A scheduler's life, from a store that is empty to the event END."""

    zone: str
    events: tuple[Event, ...]
    store_failures: int = 0
    """How often the store failed: where it did, what happens may reach it some seconds late."""

    def shown(self, first: int = 0, last: int | None = None) -> str:
        """The events from `first` up to `last`, a line each, with the local time."""
        zone = zone_of(self.zone)
        part = self.events[first:last]
        return "\n".join(f"{first + index:4d}  {event.shown(zone)}" for index, event in enumerate(part))

    def around(self, index: int, before: int = 25, after: int = 6) -> str:
        """The events near one of them, and what was registered then."""
        first = max(0, index - before)
        registered = [place for place, event in enumerate(self.events[:first]) if event.kind is Kind.INIT]
        head = "" if not registered else f"{self.shown(registered[-1], registered[-1] + 1)}\n   …\n"
        return f"{self.zone}\n{head}{self.shown(first, index + after)}"
