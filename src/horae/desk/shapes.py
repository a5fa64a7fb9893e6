"""Answers as plain values, in the one form that every surface shows: `--json`, HTTP, pages.

Field names are a contract. Times are RFC 3339 text in UTC; lengths are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Time = Annotated[str, Meta(description="RFC 3339, in UTC", extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, Meta(description="seconds")]


class Shape(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What every answer is."""


# ---- jobs ------------------------------------------------------------------------------------------------------------


class Outcome(Shape, frozen=True, gc=False):
    """One of a job's latest runs."""

    run_id: str
    state: str
    scheduled_time: Time
    started_at: Time | None = None
    duration_seconds: Seconds | None = None


class Job(Shape, frozen=True, kw_only=True):
    """A job as lists have it. `outcomes` are its latest runs, the newest first, where they were asked for."""

    name: str
    state: str
    next_run_time: Time | None
    schedule: str | None
    timezone: str | None
    owner: str
    version: int
    tags: list[str]
    paused_until: Time | None
    pause_note: str | None
    description: str = ""
    namespace: str = "default"
    schedule_description: str | None = None
    outcomes: list[Outcome] | None = None
    fault: str | None = None
    """Why its definition cannot be read, where that is so."""


class JobPage(Shape, frozen=True, kw_only=True):
    """One page of jobs; `next_offset` is where the next begins, if there is one."""

    jobs: list[Job]
    total: int
    next_offset: int | None = None


class Moved(Shape, frozen=True, kw_only=True):
    """The slot that somebody moved, and to when."""

    slot: Time
    to: Time


class Former(Shape, frozen=True, kw_only=True):
    """An earlier version that slots up to a moment still belong to: the change after it is graceful."""

    version: int
    until: Time


class Coming(Shape, frozen=True, kw_only=True):
    """A start that is to come. `window_start` and `window_end` where it is chosen inside a window."""

    job: str
    nominal: Time
    chosen: Time | None
    window_start: Time | None = None
    window_end: Time | None = None
    paused: bool = False


class WholeJob(Shape, frozen=True, kw_only=True):
    """Everything about a job. `definition` is what PUT takes; `sql`, `toml` and `krontab` are the same as text, None
    where the job cannot be said that way."""

    name: str
    state: str
    next_run_time: Time | None
    schedule: str | None
    timezone: str | None
    owner: str
    version: int
    tags: list[str]
    paused_until: Time | None
    pause_note: str | None
    description: str
    namespace: str
    schedule_description: str | None
    depends_on: list[str]
    run_as: str | None
    created_at: Time
    created_by: str
    updated_at: Time
    moved: Moved | None
    former: list[Former]
    settings: dict[str, Any]
    definition: dict[str, Any]
    sql: str | None = None
    toml: str | None = None
    krontab: str | None = None
    may: list[str] = field(default_factory=list)
    """What whoever asks may do with it: alter, drop, execute."""
    coming: list[Coming] = field(default_factory=list)
    """Its next ten starts."""
    dependents: list[str] = field(default_factory=list)
    """Jobs that depend on it, of those that whoever asks may see."""
    fault: str | None = None
    """Why its definition cannot be read, where that is so."""


class Version(Shape, frozen=True, kw_only=True):
    version: int
    created_at: Time
    author: str
    source: str
    reason: str | None
    definition: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    """What it says otherwise than the version before."""


class VersionPage(Shape, frozen=True, kw_only=True):
    versions: list[Version]
    next_before: int | None = None


class Day(Shape, frozen=True, kw_only=True):
    """One day on the job's own clocks: runs by state where it has passed, slots that are still to come, and marks:
    `clocks_change`, `window` (starts are spread, perhaps over midnight), `today`."""

    date: str
    runs: dict[str, int] = field(default_factory=dict)
    coming: int = 0
    marks: list[str] = field(default_factory=list)


class Calendar(Shape, frozen=True, kw_only=True):
    """`cut`: there are more slots to come than were counted, up to `counted_until`."""

    job: str
    year: int
    timezone: str
    days: list[Day]
    runs: dict[str, int]
    coming: int
    clock_changes: list[str]
    cut: bool = False
    counted_until: Time | None = None


class Explained(Shape, frozen=True, kw_only=True):
    """Why a slot starts when it does: steps in the order in which they are decided, as subject and verdict."""

    job: str
    steps: list[list[str]]


class Defined(Shape, frozen=True, kw_only=True):
    """`change`: created, changed or unchanged."""

    name: str
    version: int
    change: str


class Done(Shape, frozen=True, kw_only=True):
    """What an action on a job did, in a sentence, with the job as it is after that (None: it is gone)."""

    job: str
    action: str
    message: str
    state: str | None = None
    next_run_time: Time | None = None


class Rescheduled(Shape, frozen=True, kw_only=True):
    """`slot` keeps its identity and starts at `at`."""

    job: str
    slot: Time
    at: Time
    message: str


class Backfilled(Shape, frozen=True, kw_only=True):
    job: str
    runs: list[str]
    message: str


class Admitted(Shape, frozen=True, kw_only=True):
    """A run that was asked for. `fresh` is false where the same key had asked before."""

    run_id: str
    job: str
    state: str
    fresh: bool
    message: str
    replay_of: str | None = None


# ---- runs ------------------------------------------------------------------------------------------------------------


class Run(Shape, frozen=True, kw_only=True):
    run_id: str
    job: str
    state: str
    origin: str
    version: int
    scheduled_time: Time
    chosen_time: Time
    started_at: Time | None
    completed_at: Time | None
    duration_seconds: Seconds | None
    retry_count: int
    reason: str | None
    waiting_for: str | None
    replay_of: str | None
    cancelled_by: str | None
    error: str | None
    is_recovery: bool = False
    count: int = 1
    covers_from: Time | None = None
    covers_to: Time | None = None
    not_before: Time | None = None
    created_at: Time | None = None
    waiting_detail: str | None = None
    replay_reason: str | None = None
    """Why the replay was asked for, where it is one."""


class RunPage(Shape, frozen=True, kw_only=True):
    """`next_before` goes on to the next page, if there is one."""

    runs: list[Run]
    next_before: str | None = None


class WholeRun(Shape, frozen=True, kw_only=True):
    """A run with its report. `is_active`: it has not ended. `may`: what whoever asks may do: cancel, replay."""

    run: Run
    report: Report
    payload: Any = None
    node: str | None = None
    is_active: bool = False
    may: list[str] = field(default_factory=list)


class Attempt(Shape, frozen=True, kw_only=True):
    attempt_id: str
    number: int
    state: str
    started_at: Time | None
    ended_at: Time | None
    error: str | None
    traceback: str | None = None
    """Where it failed; of a program, the last lines it printed."""
    duration_seconds: Seconds | None = None


class Task(Shape, frozen=True, kw_only=True):
    task_run_id: str
    name: str
    state: str
    failure: str
    cancelled_by: str | None
    reason: str | None
    result: Any
    attempts: list[Attempt]
    started_at: Time | None = None
    ended_at: Time | None = None
    duration_seconds: Seconds | None = None
    """From its first start to its end, waits between attempts included."""
    working_seconds: Seconds | None = None
    """How long an attempt was under way."""


class Report(Shape, frozen=True, kw_only=True):
    """What happened in a run, task by task and try by try."""

    run_id: str
    job: str
    version: int
    origin: str
    outcome: str
    reason: str | None
    mode: str
    failure: str
    is_recovery: bool
    replay_of: str | None
    cancelled_by: str | None
    scheduled_time: Time
    chosen_time: Time | None
    started_at: Time | None
    completed_at: Time | None
    covers_from: Time | None
    covers_to: Time | None
    lag_seconds: Seconds | None
    duration_seconds: Seconds | None
    tasks: list[Task]
    text: str = ""
    """The same for people."""
    summary: str = ""
    """What happened, in a few plain sentences."""
    working_seconds: Seconds | None = None
    """How long an attempt was under way; `duration_seconds` is from the first start to the end."""
    replay_reason: str | None = None
    """Why the replay was asked for, where it is one; `reason` is the outcome's."""


class Output(Shape, frozen=True, kw_only=True):
    """What one attempt printed, from the place that was asked for; `next` asks for what follows."""

    attempt_id: str
    text: str
    next: int
    task: str | None = None
    attempt: int | None = None


class RunOutput(Shape, frozen=True, kw_only=True):
    id: str
    output: list[Output]


class Cancelled(Shape, frozen=True, kw_only=True):
    run_id: str
    state: str
    message: str
