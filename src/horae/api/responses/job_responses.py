"""Responses about jobs and runs, in the one form that all surfaces show: `--json`, HTTP, web pages.

Field names are a contract. Times are RFC 3339 text in UTC; durations are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Time = Annotated[str, Meta(description="RFC 3339, in UTC", extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, Meta(description="seconds")]


class ApiResponse(Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The base of all responses."""


# ---- jobs ------------------------------------------------------------------------------------------------------------


class Outcome(ApiResponse, frozen=True, gc=False):
    """One of a job's latest runs."""

    run_id: str
    state: str
    scheduled_time: Time
    started_at: Time | None = None
    duration_seconds: Seconds | None = None


class Job(ApiResponse, frozen=True, kw_only=True):
    """A job as lists show it."""

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
    """The job's latest runs, the newest first, if they were requested."""
    fault: str | None = None
    """Why its definition cannot be read, if it cannot."""


class JobPage(ApiResponse, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: list[Job]
    total: int
    next_offset: int | None = None
    """The offset of the next page; null: this is the last one."""


class Moved(ApiResponse, frozen=True, kw_only=True):
    """The scheduled time that an operator moved, and its new start."""

    slot: Time
    to: Time


class Former(ApiResponse, frozen=True, kw_only=True):
    """An earlier version that still applies to scheduled times up to `until`, because the change after it is
    graceful."""

    version: int
    until: Time


class Coming(ApiResponse, frozen=True, kw_only=True):
    """A start that is to come."""

    job: str
    nominal: Time
    chosen: Time | None
    window_start: Time | None = None
    """The window in which the start was chosen, if there is one."""
    window_end: Time | None = None
    paused: bool = False


class WholeJob(ApiResponse, frozen=True, kw_only=True):
    """Everything about a job."""

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
    """The definition as PUT takes it."""
    sql: str | None = None
    """The definition as SQL; `sql`, `toml` and `krontab` are null if that format cannot express it."""
    toml: str | None = None
    krontab: str | None = None
    may: list[str] = field(default_factory=list)
    """What the caller may do with it: alter, drop, execute."""
    coming: list[Coming] = field(default_factory=list)
    """Its next ten starts."""
    dependents: list[str] = field(default_factory=list)
    """Jobs that depend on it and that the caller may see."""
    fault: str | None = None
    """Why its definition cannot be read, if it cannot."""


class Version(ApiResponse, frozen=True, kw_only=True):
    version: int
    created_at: Time
    author: str
    source: str
    reason: str | None
    definition: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    """What differs from the version before."""


class VersionPage(ApiResponse, frozen=True, kw_only=True):
    versions: list[Version]
    next_before: int | None = None


class Day(ApiResponse, frozen=True, kw_only=True):
    """One day in the job's own time zone."""

    date: str
    runs: dict[str, int] = field(default_factory=dict)
    """Past runs by state."""
    coming: int = 0
    """How many scheduled times are still to come."""
    marks: list[str] = field(default_factory=list)
    """`clocks_change`, `window` (starts are spread, perhaps over midnight), `today`."""


class Calendar(ApiResponse, frozen=True, kw_only=True):
    """The runs of one job in one year, by day."""

    job: str
    year: int
    timezone: str
    days: list[Day]
    runs: dict[str, int]
    coming: int
    clock_changes: list[str]
    cut: bool = False
    """Whether there are more scheduled times to come than were counted up to `counted_until`."""
    counted_until: Time | None = None


class Explained(ApiResponse, frozen=True, kw_only=True):
    """Why a run starts when it does."""

    job: str
    steps: list[list[str]]
    """The steps of the decision in their order, each as subject and verdict."""


class Defined(ApiResponse, frozen=True, kw_only=True):
    """The version of a job after a change."""

    name: str
    version: int
    change: str
    """created, changed or unchanged."""


class Done(ApiResponse, frozen=True, kw_only=True):
    """What an operation on a job did, with the job's state afterwards."""

    job: str
    action: str
    message: str
    state: str | None = None
    """Null: the job does not exist any more."""
    next_run_time: Time | None = None


class Rescheduled(ApiResponse, frozen=True, kw_only=True):
    """The run of the scheduled time `slot` now starts at `at`; its scheduled time stays the same."""

    job: str
    slot: Time
    at: Time
    message: str


class Backfilled(ApiResponse, frozen=True, kw_only=True):
    job: str
    runs: list[str]
    message: str


class Admitted(ApiResponse, frozen=True, kw_only=True):
    """A run that was requested."""

    run_id: str
    job: str
    state: str
    fresh: bool
    """False if a request with the same key came before."""
    message: str
    replay_of: str | None = None


# ---- runs ------------------------------------------------------------------------------------------------------------


class Run(ApiResponse, frozen=True, kw_only=True):
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
    """Why the replay was requested, if it is one."""


class RunPage(ApiResponse, frozen=True, kw_only=True):
    """One page of runs."""

    runs: list[Run]
    next_before: str | None = None
    """The `before` of the next page; null: this is the last one."""


class WholeRun(ApiResponse, frozen=True, kw_only=True):
    """A run with its report."""

    run: Run
    report: Report
    payload: Any = None
    node: str | None = None
    is_active: bool = False
    """Whether it has not ended."""
    may: list[str] = field(default_factory=list)
    """What the caller may do with it: cancel, replay."""


class Attempt(ApiResponse, frozen=True, kw_only=True):
    attempt_id: str
    number: int
    state: str
    started_at: Time | None
    ended_at: Time | None
    error: str | None
    traceback: str | None = None
    """Where it failed; for a program, its last output lines."""
    duration_seconds: Seconds | None = None


class Task(ApiResponse, frozen=True, kw_only=True):
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
    """From its first start to its end, including waits between attempts."""
    working_seconds: Seconds | None = None
    """How long its attempts ran in total."""


class Report(ApiResponse, frozen=True, kw_only=True):
    """What happened in a run, by task and attempt."""

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
    """The whole report as text."""
    summary: str = ""
    """What happened, in a few sentences."""
    working_seconds: Seconds | None = None
    """How long attempts ran; `duration_seconds` counts from the first start to the end."""
    replay_reason: str | None = None
    """Why the replay was requested, if it is one; `reason` explains the outcome."""


class Output(ApiResponse, frozen=True, kw_only=True):
    """What one attempt printed, from the requested position on."""

    attempt_id: str
    text: str
    next: int
    """The position to request next."""
    task: str | None = None
    attempt: int | None = None


class RunOutput(ApiResponse, frozen=True, kw_only=True):
    id: str
    output: list[Output]


class Cancelled(ApiResponse, frozen=True, kw_only=True):
    run_id: str
    state: str
    message: str
