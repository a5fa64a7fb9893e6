"""Responses about plans: changes of definitions, their effect on future runs, objections, and what was applied."""

from __future__ import annotations

from typing import Any

from horae.api.responses.job_responses import ApiResponse, Seconds, Time


class Changed(ApiResponse, frozen=True, kw_only=True):
    """One part of a definition that differs, by its path; null where a side does not have it."""

    path: str
    before: Any
    after: Any


class Occurrence(ApiResponse, frozen=True, kw_only=True):
    """A scheduled time and its start."""

    slot: Time
    start: Time
    was: Time | None = None
    """The start before the change, if it moves."""


class Occurrences(ApiResponse, frozen=True, kw_only=True):
    """How the change affects the scheduled times after now, up to `until`: how many are added, removed, moved and
    kept."""

    until: Time
    added: int
    removed: int
    moved: int
    kept: int
    first_added: list[Occurrence]
    first_removed: list[Occurrence]
    first_moved: list[Occurrence]
    next_before: Time | None = None
    """The old schedule's first scheduled time after `until`, if it has none up to `until`."""
    next_after: Time | None = None
    """The same for the new schedule."""
    unschedulable: int = 0
    """Scheduled times after the change that cannot start, because no draw in their windows satisfied their
    constraints."""


class JobChange(ApiResponse, frozen=True, kw_only=True):
    """One job that would change."""

    name: str
    change: str
    """created, changed or removed."""
    version: int
    """The version that the plan was made on; 0 for a new job."""
    namespace: str
    state: str
    """The state after the change."""
    policy: str
    schedule: str | None
    changes: list[Changed]
    switch_at: Time | None
    """The new schedule takes effect after this time."""
    occurrences: Occurrences | None
    """Null if the schedule cannot be evaluated here."""


class PoolChange(ApiResponse, frozen=True, kw_only=True):
    """The limit of a pool before and after the change."""

    name: str
    before: int | None
    """Null: the pool is new, or the caller may not know its limit."""
    after: int


class Load(ApiResponse, frozen=True, kw_only=True):
    """The load of a set of schedules, ignoring limits."""

    peak: int
    """Peak concurrency."""
    peak_at: Time | None
    busiest: int
    """Starts within one minute, at most."""
    busiest_at: Time | None
    starts: int
    overlaps: int
    """Starts that come due while the previous run of the same job is still under way."""
    peaks: list[int]
    """The peaks of equal steps of time."""


class Loads(ApiResponse, frozen=True, kw_only=True):
    """The load of all jobs that the caller may see, before and after the change, up to `until`."""

    before: Load
    after: Load
    until: Time
    jobs: int
    assumed: int
    """Jobs whose durations are unknown; each of their runs counts as `assumed_seconds`."""
    assumed_seconds: Seconds
    is_cut: bool
    """Whether the calculation stopped before `until` because it took too long."""


class Owed(ApiResponse, frozen=True, kw_only=True):
    """Missed scheduled times of a job, and how many runs will catch up on them, with or without the change."""

    job: str
    missed: int
    runs: int
    strategy: str
    more: bool
    """Whether there are more than were counted."""


class Objection(ApiResponse, frozen=True, kw_only=True):
    """A problem of a plan."""

    level: str
    """error (it cannot be applied) or warning (it can be applied, but something will be missing)."""
    subject: str
    message: str
    hint: str


class Plan(ApiResponse, frozen=True, kw_only=True):
    """What applying the definitions would change."""

    plan: str
    """The id by which exactly this plan can be applied."""
    now: Time
    until: Time
    """How far into the future scheduled times were compared."""
    is_cut: bool
    """Whether that is less far than requested."""
    policy: str | None
    prune: bool
    has_changes: bool
    is_possible: bool
    created: int
    changed: int
    removed: int
    unchanged: int
    jobs: list[JobChange]
    pools: list[PoolChange]
    load: Loads
    owed: list[Owed]
    running: int
    """Runs that have started already and stay as they are."""
    running_more: bool
    """Whether there are more than `running`."""
    findings: list[Objection]
    notes: list[str]


class AppliedJob(ApiResponse, frozen=True, kw_only=True):
    """One job that was changed."""

    name: str
    change: str
    version: int
    """The version after the change; of a removed job, its last one."""


class Applied(ApiResponse, frozen=True, kw_only=True):
    """What was changed, all in one transaction."""

    plan: str
    created: int
    changed: int
    removed: int
    unchanged: int
    jobs: list[AppliedJob]
    pools: list[PoolChange]
