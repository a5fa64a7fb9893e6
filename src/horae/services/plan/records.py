"""Records of a plan: its changes, their effect on runs to come, its findings; and what was applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from horae.core.change.diff import DefinitionChange
from horae.core.change.forecast import Forecast, ForecastSlot
from horae.core.change.load import PeakLoad
from horae.core.run.unserved import UnservedSlots
from horae.core.time.instant import rfc3339
from horae.services.doctor.doctor import DoctorFinding
from horae.services.plan.plan_text import CHANGED as CHANGED
from horae.services.plan.plan_text import CREATED as CREATED
from horae.services.plan.plan_text import REMOVED as REMOVED
from horae.services.plan.plan_text import applied_line, plan_lines


@dataclass(frozen=True, slots=True)
class JobChange:
    """One job that would change. `version` is the one that the plan is made on, 0 for a new job; `state` is the one
    after the change. `forecast` is None where the schedule cannot be asked here. The new schedule takes effect after
    `switch_at`."""

    name: str
    change: str
    version: int
    namespace: str
    state: str
    policy: str = "immediate"
    changes: tuple[DefinitionChange, ...] = ()
    forecast: Forecast | None = None
    switch_at: datetime | None = None
    schedule: str | None = None
    """The schedule after the change, or that of a removed job."""

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
    """The limit of a pool before and after. `before` None: the pool is new, or the caller may not know its limit."""

    name: str
    before: int | None
    after: int

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class PlanLoads:
    """The load of all jobs that the caller may see, before and after the change, up to `until`. Runs take as long as in
    the past, or as requested. Nothing is known of `assumed` jobs: their runs take `assumed_seconds` at most. `is_cut`:
    the load ends before the horizon, because there was too much to examine."""

    before: PeakLoad
    after: PeakLoad
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
    """What applying definitions would do. `str()` of it is the text of `horae plan`.

    `id` stands for the desired state, the options, and the versions that the plan is made on. `until` is how far
    occurrences were compared. `running` runs have started and do not change (`running_more`: at least so many).
    """

    id: str
    now: datetime
    until: datetime
    is_cut: bool
    policy: str | None
    prune: bool
    jobs: tuple[JobChange, ...]
    unchanged: int
    pools: tuple[PoolChange, ...]
    load: PlanLoads
    owed: tuple[UnservedSlots, ...]
    findings: tuple[DoctorFinding, ...]
    notes: tuple[str, ...]
    running: int = 0
    running_more: bool = False
    concerned: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Version and state that the plan is made on, of all jobs that are desired or would be removed; version 0: no such
    job."""

    @property
    def has_changes(self) -> bool:
        return bool(self.jobs or self.pools)

    @property
    def is_possible(self) -> bool:
        """Whether the plan can be applied: it has no finding of level error."""
        return not any(each.level == "error" for each in self.findings)

    def counted(self, change: str) -> int:
        """How many jobs have this kind of change: created, changed or removed."""
        return sum(each.change == change for each in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values; times are RFC 3339 in UTC."""
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
    """A job that was changed. `version` is the one after the change; of a removed job, its last."""

    name: str
    change: str
    version: int

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "change": self.change, "version": self.version}


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The changes that were applied, all of them in one transaction."""

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


def _occurrence(each: ForecastSlot) -> dict[str, Any]:
    return {"slot": rfc3339(each.slot), "start": rfc3339(each.start), "was": _time(each.was)}


def _load(load: PeakLoad) -> dict[str, Any]:
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
