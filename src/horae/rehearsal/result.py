"""What a rehearsal came to, in records that every surface shows: counts, heat, peaks, waits, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from horae.core.daylight import DaylightEffect
from horae.core.decision import MAX_ATTEMPTS, NO_CANDIDATE, NO_SECOND
from horae.core.duration import format_duration
from horae.core.instant import rfc3339
from horae.core.tomltext import inline, key_text
from horae.core.window import Window
from horae.core.zone import zone


@dataclass(frozen=True, slots=True)
class Peak:
    """A moment at which most ran at once: `runs` of them for `seconds`; `jobs` are some of their names, by name."""

    at: datetime
    runs: int
    seconds: float
    jobs: tuple[str, ...]
    more: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": rfc3339(self.at),
            "runs": self.runs,
            "seconds": self.seconds,
            "jobs": list(self.jobs),
            "more": self.more,
        }


_WHY = {
    NO_CANDIDATE: f"none of {MAX_ATTEMPTS} draws in its window is a time that only and avoid allow",
    NO_SECOND: "no time in its window that only and avoid allow",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Slots of a job that came to the same bad end for the same reason; `first` are the earliest of them."""

    job: str
    state: str
    reason: str
    count: int
    first: tuple[datetime, ...]

    @property
    def why(self) -> str:
        """The reason as people are told it."""
        return _WHY.get(self.reason, self.reason)

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "state": self.state,
            "reason": self.reason,
            "count": self.count,
            "first": [rfc3339(each) for each in self.first],
        }


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Clocks that change within the span, and what that does to the slots of a job."""

    job: str
    effect: DaylightEffect

    def to_dict(self) -> dict[str, Any]:
        return {"job": self.job, "timezone": self.effect.timezone, **self.effect.to_dict()}


@dataclass(frozen=True, slots=True)
class Waits:
    """How long runs waited for something: how many did, and in seconds the longest and, of all runs that started, the
    wait that nineteen of twenty stay within."""

    runs: int = 0
    longest: float = 0.0
    most: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"runs": self.runs, "longest_seconds": self.longest, "p95_seconds": self.most}


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job. `states` counts its slots by how they stood at the end; `seconds` is what its longest run took. Waits
    are for other jobs, for its own earlier runs, and for room: a slot of the node, a pool."""

    job: str
    states: Mapping[str, int]
    started: int
    retries: int
    timeouts: int
    seconds: float
    assumed: bool
    dependencies: Waits
    itself: Waits
    room: Waits

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "states": dict(self.states),
            "started": self.started,
            "retries": self.retries,
            "task_timeouts": self.timeouts,
            "longest_seconds": self.seconds,
            "assumed": self.assumed,
            "waited_for_dependencies": self.dependencies.to_dict(),
            "waited_for_itself": self.itself.to_dict(),
            "waited_for_room": self.room.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Load:
    """Runs at once, at most, in each step of the span, and its highest moments; `busiest` are starts in one minute."""

    step: int
    most: tuple[int, ...]
    peaks: tuple[Peak, ...]
    busiest: int
    busiest_at: datetime | None

    @property
    def peak(self) -> int:
        return max(self.most, default=0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "step_seconds": self.step,
            "most": list(self.most),
            "peaks": [each.to_dict() for each in self.peaks],
            "busiest_minute": self.busiest,
            "busiest_minute_at": None if self.busiest_at is None else rfc3339(self.busiest_at),
        }


@dataclass(frozen=True, slots=True)
class Heat:
    """Starts: `hours` has a row of sixty minutes for each hour of the day, all days together; `days` a row of hours for
    each day. Both on the clocks of the result's zone."""

    hours: tuple[tuple[int, ...], ...]
    days: tuple[tuple[date, tuple[int, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "hours": [list(row) for row in self.hours],
            "days": [{"date": day.isoformat(), "hours": list(row)} for day, row in self.days],
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of the span without the windows that are suggested, and with them."""

    before: float
    after: float

    def to_dict(self) -> dict[str, Any]:
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Windows by job, and what they came to when the span was run again with them."""

    windows: Mapping[str, Window]
    peak: Compared
    busiest: Compared
    longest_wait: Compared

    def toml(self) -> str:
        """What to put into jobs.toml: one key for each job's table."""
        return "\n".join(
            f"[jobs.{key_text(name)}]\nwindow = {inline(window.to_dict())}\n" for name, window in self.windows.items()
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "windows": {name: format_duration(window.length) for name, window in self.windows.items()},
            "peak": self.peak.to_dict(),
            "busiest_minute": self.busiest.to_dict(),
            "longest_wait_seconds": self.longest_wait.to_dict(),
            "toml": self.toml(),
        }


@dataclass(frozen=True, slots=True)
class Result:
    """A whole rehearsal. `assumed` are the jobs whose runs were taken to last `assumed_seconds`. Without `looked`,
    there were too many runs to look for windows."""

    start: datetime
    end: datetime
    timezone: str
    seed: int
    slots: int
    states: Mapping[str, int]
    heat: Heat
    load: Load
    jobs: tuple[JobResult, ...]
    troubles: tuple[Trouble, ...]
    dependencies: Waits
    itself: Waits
    room: Waits
    assumed: tuple[str, ...]
    assumed_seconds: float
    knows_pools: bool = True
    suggestion: Suggestion | None = None
    looked: bool = True
    clock_changes: tuple[ClockChange, ...] = ()

    @property
    def started(self) -> int:
        return sum(each.started for each in self.jobs)

    def local(self, at: datetime) -> datetime:
        """A moment as the clocks of its zone show it."""
        return zone(self.timezone).wall(at)

    def troubled(self, *states: str) -> tuple[Trouble, ...]:
        return tuple(each for each in self.troubles if each.state in states)

    @property
    def overlaps(self) -> tuple[Trouble, ...]:
        """What did not run because the run before it was still under way."""
        return tuple(each for each in self.troubles if each.state == "SKIPPED" and each.reason in OVERLAPPED)

    @property
    def missed(self) -> tuple[Trouble, ...]:
        """What came too late to start, and what was cut off because it took too long."""
        return tuple(each for each in self.troubles if each.state == "MISSED" or each.reason == "timeout")

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": rfc3339(self.start),
            "to": rfc3339(self.end),
            "timezone": self.timezone,
            "seed": self.seed,
            "slots": self.slots,
            "runs": dict(self.states),
            "started": self.started,
            "assumed": {"seconds": self.assumed_seconds, "jobs": list(self.assumed)},
            "pools_known": self.knows_pools,
            "load": self.load.to_dict(),
            "heat": self.heat.to_dict(),
            "overlaps": [each.to_dict() for each in self.overlaps],
            "missed": [each.to_dict() for each in self.missed],
            "unschedulable": [each.to_dict() for each in self.troubled("UNSCHEDULABLE")],
            "failed": [each.to_dict() for each in self.troubled("FAILED", "FAILED_STALE")],
            "troubles": [each.to_dict() for each in self.troubles],
            "clock_changes": [each.to_dict() for each in self.clock_changes],
            "waits": {
                "dependencies": self.dependencies.to_dict(),
                "itself": self.itself.to_dict(),
                "room": self.room.to_dict(),
            },
            "jobs": [each.to_dict() for each in self.jobs],
            "too_many_to_suggest": not self.looked,
            "suggestion": None if self.suggestion is None else self.suggestion.to_dict(),
        }


OVERLAPPED = frozenset({"overlap", "queue full", "coalesced", "replaced"})
