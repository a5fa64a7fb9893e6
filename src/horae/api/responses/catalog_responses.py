"""Responses about the catalog: overview, nodes, previews, SQL results, the audit trail, settings."""

from __future__ import annotations

from typing import Any

from msgspec import field

from horae.api.responses.job_responses import ApiResponse, Calendar, Run, Seconds, Time
from horae.api.responses.job_responses import Coming as Coming


class ScheduleRow(ApiResponse, frozen=True, kw_only=True):
    """A schedule with the columns of `cb_schedules`."""

    name: str
    kind: str
    """task, or flow for a job of several tasks."""
    cron_spec: str | None
    next_run_at: Time | None
    last_run_at: Time | None
    enabled: bool
    id: int | None = None
    last_enqueued_at: Time | None = None
    created_at: Time | None = None
    updated_at: Time | None = None


class SchedulePage(ApiResponse, frozen=True, kw_only=True):
    schedules: list[ScheduleRow]
    total: int
    next_offset: int | None = None


class Bar(ApiResponse, frozen=True, kw_only=True):
    """Runs that ended in one step of time, by state."""

    at: Time
    runs: dict[str, int]


class Spread(ApiResponse, frozen=True, kw_only=True):
    """Percentiles of the latest runs, in seconds."""

    count: int
    """How many runs they are calculated from."""
    p50: Seconds | None = None
    p95: Seconds | None = None
    p99: Seconds | None = None
    most: Seconds | None = None


class Node(ApiResponse, frozen=True, kw_only=True):
    """One incarnation of a node."""

    node: str
    name: str | None
    state: str
    """ALIVE, SILENT (its lock is free or its heartbeat is late) or DEAD."""
    started_at: Time
    heartbeat_at: Time
    running: int
    slots: int | None = None
    host: str | None = None
    process: int | None = None
    version: str | None = None
    handlers: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class Nodes(ApiResponse, frozen=True, kw_only=True):
    nodes: list[Node]
    now: Time


class Totals(ApiResponse, frozen=True, kw_only=True):
    jobs_enabled: int
    jobs_paused: int
    jobs_disabled: int
    runs_running: int
    runs_queued: int
    runs_pending: int
    runs_due: int


class Overview(ApiResponse, frozen=True, kw_only=True):
    """What runs now, what comes next, what failed, how late runs start, how busy the nodes are."""

    now: Time
    totals: Totals
    running: list[Run]
    waiting: list[Run]
    coming: list[Coming]
    failures: list[Run]
    """The newest of the failed runs that `failed` counts."""
    recent: list[Run]
    bars: list[Bar]
    """Ended runs of the last 24 hours, by hour."""
    ended: dict[str, int]
    """Ended runs of the last 24 hours, by state."""
    lag: Spread
    duration: Spread
    slots: int
    slots_taken: int
    nodes: int
    overdue: int
    failed: int
    """Failed runs of the last day's scheduled times, as `list_runs` returns them for the states `failed,failed_stale`
    since `failed_since`; 500 means 500 or more."""
    failed_since: Time


class Finding(ApiResponse, frozen=True, kw_only=True):
    """One problem that the examination found."""

    level: str
    """error or warning."""
    subject: str
    message: str
    hint: str
    check: str = ""
    """The check, of `checks`, that found it."""


class Examination(ApiResponse, frozen=True, kw_only=True):
    findings: list[Finding]
    jobs: int
    nodes: int
    waiting: int
    checks: dict[str, str] = field(default_factory=dict)
    """What was checked, each with a short result."""


class Preview(ApiResponse, frozen=True, kw_only=True):
    """What a schedule will do. `calendar` and `trace` are present if they were requested."""

    schedule: str
    description: str
    timezone: str
    start: Time
    note: str | None
    occurrences: list[dict[str, Any]]
    daylight_effects: list[dict[str, Any]]
    windowed: bool = False
    kind: str = "schedule"
    """`schedule`, or `krontab` if a line or a file was given."""
    calendar: Calendar | None = None
    trace: dict[str, Any] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Warnings of the linter."""


class SqlResult(ApiResponse, frozen=True, kw_only=True):
    statement: str
    message: str
    columns: list[str] | None = None
    rows: list[list[Any]] | None = None
    cut: bool = False
    rowcount: int = -1


class SqlAnswer(ApiResponse, frozen=True, kw_only=True):
    results: list[SqlResult]


class AuditRow(ApiResponse, frozen=True, kw_only=True):
    number: int
    at: Time
    event: str
    actor: str
    outcome: str
    job: str | None
    run_id: str | None
    details: dict[str, Any]
    is_sealed: bool


class AuditPage(ApiResponse, frozen=True, kw_only=True):
    rows: list[AuditRow]
    next_before: int | None = None


class Tampering(ApiResponse, frozen=True, kw_only=True):
    kind: str
    message: str
    first: int | None = None
    last: int | None = None
    number: int | None = None
    seal: int | None = None
    run: int | None = None


class Verification(ApiResponse, frozen=True, kw_only=True):
    """The result of a verification of the audit trail."""

    ok: bool
    rows: int
    seals: int
    keyed: int
    """Seals that have a code under the audit key."""
    codes_checked: bool
    """Whether the server had the master key to check these codes."""
    unsealed: int
    head: str
    count: int
    findings: list[Tampering]


class Setting(ApiResponse, frozen=True, kw_only=True):
    """A setting of ALTER SYSTEM."""

    name: str
    value: Any
    """The value that ALTER SYSTEM has set; null: none, so each node's own configuration applies."""
    default: Any = None
    description: str = ""


class Settings(ApiResponse, frozen=True, kw_only=True):
    settings: list[Setting]
