"""Answers about plans: what would change, what that does to the future, what stands in the way, what was done."""

from __future__ import annotations

from typing import Any

from horae.desk.shapes import Seconds, Shape, Time


class Changed(Shape, frozen=True, kw_only=True):
    """One part of a definition that differs, by its path; none where a side does not have it."""

    path: str
    before: Any
    after: Any


class Occurrence(Shape, frozen=True, kw_only=True):
    """A slot with its start; `was` is the start that it would have had, where it moves."""

    slot: Time
    start: Time
    was: Time | None = None


class Occurrences(Shape, frozen=True, kw_only=True):
    """Slots after now, up to `until`: how many come, go, start at another time and stay, with the first of each. Where
    a side has none up to then, its next one after that. `unschedulable` are those after the change that cannot start:
    no draw in their windows found a time that their constraints allow."""

    until: Time
    added: int
    removed: int
    moved: int
    kept: int
    first_added: list[Occurrence]
    first_removed: list[Occurrence]
    first_moved: list[Occurrence]
    next_before: Time | None = None
    next_after: Time | None = None
    unschedulable: int = 0


class JobChange(Shape, frozen=True, kw_only=True):
    """`change`: created, changed or removed. `version` is the one that the plan was made on, 0 for a new job; `state`
    the one after it. After `switch_at` the new schedule speaks. `occurrences` is none where its schedule cannot be
    asked."""

    name: str
    change: str
    version: int
    namespace: str
    state: str
    policy: str
    schedule: str | None
    changes: list[Changed]
    switch_at: Time | None
    occurrences: Occurrences | None


class PoolChange(Shape, frozen=True, kw_only=True):
    """A pool's limit before, none where there is no such pool, and after."""

    name: str
    before: int | None
    after: int


class Load(Shape, frozen=True, kw_only=True):
    """`peak` runs at once, `busiest` starts in one minute; of all `starts`, `overlaps` come due while the same job's
    run before still goes on. `peaks` are those of equal steps."""

    peak: int
    peak_at: Time | None
    busiest: int
    busiest_at: Time | None
    starts: int
    overlaps: int
    peaks: list[int]


class Loads(Shape, frozen=True, kw_only=True):
    """The load of all jobs that whoever asks may see, up to `until`. Of `assumed` jobs it is not known how long they
    take: each of their runs counts as `assumed_seconds`. `is_cut`: it was too much to look at all of it."""

    before: Load
    after: Load
    until: Time
    jobs: int
    assumed: int
    assumed_seconds: Seconds
    is_cut: bool


class Owed(Shape, frozen=True, kw_only=True):
    """Slots that came and that nobody saw to: so many runs catch up on them, by that rule, with or without the change.
    `more`: there are more than were counted."""

    job: str
    missed: int
    runs: int
    strategy: str
    more: bool


class Objection(Shape, frozen=True, kw_only=True):
    """`level`: error (it cannot be applied) or warning (it can, and something will be missing)."""

    level: str
    subject: str
    message: str
    hint: str


class Plan(Shape, frozen=True, kw_only=True):
    """`plan` is the number to apply exactly this by. `until`: how far occurrences were compared (`is_cut`: less far
    than was asked for). `running` runs have started already and stay as they are (`running_more`: or more)."""

    plan: str
    now: Time
    until: Time
    is_cut: bool
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
    running_more: bool
    findings: list[Objection]
    notes: list[str]


class AppliedJob(Shape, frozen=True, kw_only=True):
    """`version` is the one after the change; of a removed job, its last."""

    name: str
    change: str
    version: int


class Applied(Shape, frozen=True, kw_only=True):
    """What was done, all of it in one transaction."""

    plan: str
    created: int
    changed: int
    removed: int
    unchanged: int
    jobs: list[AppliedJob]
    pools: list[PoolChange]
