"""What a plan says, as records: what would change, what that does to the future, what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from horae.control.doctor import Finding
from horae.control.plantext import CHANGED as CHANGED
from horae.control.plantext import CREATED as CREATED
from horae.control.plantext import REMOVED as REMOVED
from horae.control.plantext import applied_line, plan_lines
from horae.core.diff import Change
from horae.core.forecast import Forecast, Occurrence
from horae.core.instant import rfc3339
from horae.core.load import Load
from horae.core.owing import Owed


@dataclass(frozen=True, slots=True)
class JobChange:
    """One job that would change. `version` is the one that the plan was made on, 0 for a new job; `state` is the one
    after the change. `forecast` is None where its schedule cannot be asked here. After `switch_at` the new schedule
    speaks."""

    name: str
    change: str
    version: int
    namespace: str
    state: str
    policy: str = "immediate"
    changes: tuple[Change, ...] = ()
    forecast: Forecast | None = None
    switch_at: datetime | None = None
    schedule: str | None = None
    """The schedule after the change, or that of a job that goes."""

    def to_dict(self) -> dict[str, Any]:
        seen = self.forecast
        return {
            "name": self.name,
            "change": self.change,
            "version": self.version,
            "namespace": self.namespace,
            "state": self.state,
            "policy": self.policy,
            "schedule": self.schedule,
            "changes": [{"path": each.path, "before": each.before, "after": each.after} for each in self.changes],
            "switch_at": _time(self.switch_at),
            "occurrences": None if seen is None else _forecast(seen),
        }


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A pool's limit before, None where there is no such pool, and after."""

    name: str
    before: int | None
    after: int

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Loads:
    """The load of all jobs that whoever asks may see, on both sides of the change, up to `until`. Runs take as long as
    they took in the past, or as was said; of `assumed` jobs nothing is known, and each of their runs counts as
    `assumed_seconds`. `is_cut`: there was too much to look at all of it."""

    before: Load
    after: Load
    until: datetime
    jobs: int
    assumed: int
    assumed_seconds: float
    is_cut: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": _load(self.before),
            "after": _load(self.after),
            "until": rfc3339(self.until),
            "jobs": self.jobs,
            "assumed": self.assumed,
            "assumed_seconds": self.assumed_seconds,
            "is_cut": self.is_cut,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """`id` stands for exactly this: what is wanted, under which options, on which versions. `until`: how far
    occurrences were compared. `running` runs have started and are nobody's to change (`running_more`: at least)."""

    id: str
    now: datetime
    until: datetime
    is_cut: bool
    policy: str | None
    prune: bool
    jobs: tuple[JobChange, ...]
    unchanged: int
    pools: tuple[PoolChange, ...]
    load: Loads
    owed: tuple[Owed, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    running: int = 0
    running_more: bool = False
    concerned: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Version and state that it was made on, of all jobs that are wanted or would be removed; 0 where there is none."""

    @property
    def has_changes(self) -> bool:
        return bool(self.jobs or self.pools)

    @property
    def is_possible(self) -> bool:
        """Whether nothing stands in the way of applying it."""
        return not any(each.level == "error" for each in self.findings)

    def counted(self, change: str) -> int:
        return sum(each.change == change for each in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; times are RFC 3339 in UTC."""
        return {
            "plan": self.id,
            "now": rfc3339(self.now),
            "until": rfc3339(self.until),
            "is_cut": self.is_cut,
            "policy": self.policy,
            "prune": self.prune,
            "has_changes": self.has_changes,
            "is_possible": self.is_possible,
            "created": self.counted(CREATED),
            "changed": self.counted(CHANGED),
            "removed": self.counted(REMOVED),
            "unchanged": self.unchanged,
            "jobs": [each.to_dict() for each in self.jobs],
            "pools": [each.to_dict() for each in self.pools],
            "load": self.load.to_dict(),
            "owed": [
                {
                    "job": each.job,
                    "missed": each.missed,
                    "runs": each.runs,
                    "strategy": each.strategy,
                    "more": each.more,
                }
                for each in self.owed
            ],
            "running": self.running,
            "running_more": self.running_more,
            "findings": [
                {"level": each.level, "subject": each.subject, "message": each.message, "hint": each.hint}
                for each in self.findings
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """The text of `horae plan`."""
        return "\n".join(plan_lines(self.to_dict()))


@dataclass(frozen=True, slots=True)
class AppliedJob:
    """`version` is the one after the change; of a removed job, its last."""

    name: str
    change: str
    version: int

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "change": self.change, "version": self.version}


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done, all of it in one transaction."""

    plan: str
    jobs: tuple[AppliedJob, ...]
    unchanged: int
    pools: tuple[PoolChange, ...]

    def counted(self, change: str) -> int:
        return sum(each.change == change for each in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.plan,
            "created": self.counted(CREATED),
            "changed": self.counted(CHANGED),
            "removed": self.counted(REMOVED),
            "unchanged": self.unchanged,
            "jobs": [each.to_dict() for each in self.jobs],
            "pools": [each.to_dict() for each in self.pools],
        }

    def __str__(self) -> str:
        return applied_line(self.to_dict())


def _forecast(seen: Forecast) -> dict[str, Any]:
    return {
        "until": rfc3339(seen.until),
        "added": seen.added,
        "removed": seen.removed,
        "moved": seen.moved,
        "kept": seen.kept,
        "first_added": [_occurrence(each) for each in seen.first_added],
        "first_removed": [_occurrence(each) for each in seen.first_removed],
        "first_moved": [_occurrence(each) for each in seen.first_moved],
        "next_before": _time(seen.next_before),
        "next_after": _time(seen.next_after),
        "unschedulable": seen.unschedulable,
    }


def _occurrence(each: Occurrence) -> dict[str, Any]:
    return {"slot": rfc3339(each.slot), "start": rfc3339(each.start), "was": _time(each.was)}


def _load(load: Load) -> dict[str, Any]:
    return {
        "peak": load.peak,
        "peak_at": _time(load.peak_at),
        "busiest": load.busiest,
        "busiest_at": _time(load.busiest_at),
        "starts": load.starts,
        "overlaps": load.overlaps,
        "peaks": list(load.peaks),
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
