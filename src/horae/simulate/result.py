"""The result of a simulation in records: counts, heat maps, peaks, waits and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from horae.core.schedule.clock_changes import DaylightEffect
from horae.core.time.duration import format_duration
from horae.core.time.instant import rfc3339
from horae.core.time.zone import zone
from horae.core.window.decision import MAX_ATTEMPTS, NO_CANDIDATE, NO_SECOND
from horae.core.window.window import Window
from horae.formats.toml.text import inline, key_text


@dataclass(frozen=True, slots=True)
class Peak:
    """A moment at which the most runs were running: `runs` of them for `seconds`.

    `jobs` are some of their names, in order; `more` is how many others there are.
    """

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
class SimulatedProblem:
    """Scheduled times of a job that ended in the same bad state for the same reason. `first` are the earliest of
    them."""

    job: str
    state: str
    reason: str
    count: int
    first: tuple[datetime, ...]

    @property
    def why(self) -> str:
        """The reason in words for people."""
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
    """A clock change within the span, and what it does to the scheduled times of a job."""

    job: str
    effect: DaylightEffect

    def to_dict(self) -> dict[str, Any]:
        return {"job": self.job, "timezone": self.effect.timezone, **self.effect.to_dict()}


@dataclass(frozen=True, slots=True)
class WaitSummary:
    """How many runs waited for something, the longest wait, and the 95th percentile of all runs that started, in
    seconds."""

    runs: int = 0
    longest: float = 0.0
    most: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"runs": self.runs, "longest_seconds": self.longest, "p95_seconds": self.most}


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of one job.

    `states` counts its scheduled times by their state at the end; `seconds` is the duration of its longest run. The
    waits are for other jobs, for earlier runs of the same job, and for free capacity of the node or a pool.
    """

    job: str
    states: Mapping[str, int]
    started: int
    retries: int
    timeouts: int
    seconds: float
    assumed: bool
    dependencies: WaitSummary
    itself: WaitSummary
    room: WaitSummary

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
class SimulatedLoad:
    """The most runs at once in each step of the span, and the peaks. `step` is in seconds; `busiest` counts the starts
    in the busiest minute."""

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
class StartHeatmap:
    """Starts on the clocks of the result's zone.

    `hours` has a row of sixty minutes for each hour of the day, all days together. `days` has a row of hours for each
    day.
    """

    hours: tuple[tuple[int, ...], ...]
    days: tuple[tuple[date, tuple[int, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "hours": [list(row) for row in self.hours],
            "days": [{"date": day.isoformat(), "hours": list(row)} for day, row in self.days],
        }


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure without and with the suggested windows."""

    before: float
    after: float

    def to_dict(self) -> dict[str, Any]:
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Suggested windows by job, and the figures of a second simulation with them."""

    windows: Mapping[str, Window]
    peak: FigureChange
    busiest: FigureChange
    longest_wait: FigureChange

    def toml(self) -> str:
        """The suggestion as text for jobs.toml: one key for the table of each job."""
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
class SimulationResult:
    """The result of a whole simulation.

    `assumed` are the jobs without history, whose runs were taken to last `assumed_seconds`. `looked` is false if there
    were too many runs to look for windows.
    """

    start: datetime
    end: datetime
    timezone: str
    seed: int
    slots: int
    states: Mapping[str, int]
    heat: StartHeatmap
    load: SimulatedLoad
    jobs: tuple[JobResult, ...]
    troubles: tuple[SimulatedProblem, ...]
    dependencies: WaitSummary
    itself: WaitSummary
    room: WaitSummary
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
        """A moment as the clocks of the result's zone show it."""
        return zone(self.timezone).wall(at)

    def troubled(self, *states: str) -> tuple[SimulatedProblem, ...]:
        return tuple(each for each in self.troubles if each.state in states)

    @property
    def overlaps(self) -> tuple[SimulatedProblem, ...]:
        """Scheduled times without a run because the run before was still running."""
        return tuple(each for each in self.troubles if each.state == "SKIPPED" and each.reason in OVERLAPPED)

    @property
    def missed(self) -> tuple[SimulatedProblem, ...]:
        """Scheduled times that were missed, and runs that were cancelled by their timeout."""
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
