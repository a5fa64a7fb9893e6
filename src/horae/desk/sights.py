"""Answers about the whole: what goes on, what a schedule will do, what SQL came to, who did what."""

from __future__ import annotations

from typing import Any

from msgspec import field

from horae.desk.shapes import Calendar, Run, Seconds, Shape, Time
from horae.desk.shapes import Coming as Coming


class ScheduleRow(Shape, frozen=True, kw_only=True):
    """A schedule in the words of `cb_schedules`. `kind` is task, or flow for a job of several tasks."""

    name: str
    kind: str
    cron_spec: str | None
    next_run_at: Time | None
    last_run_at: Time | None
    enabled: bool
    id: int | None = None
    last_enqueued_at: Time | None = None
    created_at: Time | None = None
    updated_at: Time | None = None


class SchedulePage(Shape, frozen=True, kw_only=True):
    schedules: list[ScheduleRow]
    total: int
    next_offset: int | None = None


class Bar(Shape, frozen=True, kw_only=True):
    """Runs that ended in one step of time, by state."""

    at: Time
    runs: dict[str, int]


class Spread(Shape, frozen=True, kw_only=True):
    """Of the latest runs, in seconds: the middle, the 95th and 99th of 100, the most; `count` of them."""

    count: int
    p50: Seconds | None = None
    p95: Seconds | None = None
    p99: Seconds | None = None
    most: Seconds | None = None


class Node(Shape, frozen=True, kw_only=True):
    """One incarnation of a node. `state`: ALIVE, SILENT (its lock is free, or its heartbeat late) or DEAD."""

    node: str
    name: str | None
    state: str
    started_at: Time
    heartbeat_at: Time
    running: int
    slots: int | None = None
    host: str | None = None
    process: int | None = None
    version: str | None = None
    handlers: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class Nodes(Shape, frozen=True, kw_only=True):
    nodes: list[Node]
    now: Time


class Totals(Shape, frozen=True, kw_only=True):
    jobs_enabled: int
    jobs_paused: int
    jobs_disabled: int
    runs_running: int
    runs_queued: int
    runs_pending: int
    runs_due: int


class Overview(Shape, frozen=True, kw_only=True):
    """What runs now, what comes next, what failed, how late things start, how full the nodes are."""

    now: Time
    totals: Totals
    running: list[Run]
    waiting: list[Run]
    coming: list[Coming]
    failures: list[Run]
    """The newest of the failed runs, as `failed` counts them."""
    recent: list[Run]
    bars: list[Bar]
    """The last 24 hours, by hour."""
    ended: dict[str, int]
    """The same summed up, by state."""
    lag: Spread
    duration: Spread
    slots: int
    slots_taken: int
    nodes: int
    overdue: int
    failed: int
    """Runs of the last day's slots that failed, as `list_runs` has them with `failed,failed_stale` and `failed_since`;
    500 stands for that many or more."""
    failed_since: Time


class Finding(Shape, frozen=True, kw_only=True):
    """`level` is error or warning."""

    level: str
    subject: str
    message: str
    hint: str
    check: str = ""
    """Of `checks`, the one that showed it."""


class Examination(Shape, frozen=True, kw_only=True):
    findings: list[Finding]
    jobs: int
    nodes: int
    waiting: int
    checks: dict[str, str] = field(default_factory=dict)
    """What was looked at, and what was found there, in a few words each."""


class Preview(Shape, frozen=True, kw_only=True):
    """What a schedule will do. `calendar` and `trace` where they were asked for."""

    schedule: str
    description: str
    timezone: str
    start: Time
    note: str | None
    occurrences: list[dict[str, Any]]
    daylight_effects: list[dict[str, Any]]
    windowed: bool = False
    kind: str = "schedule"
    """`schedule`, or `krontab` where a line or a file was given."""
    calendar: Calendar | None = None
    trace: dict[str, Any] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    """What a linter says of a krontab line."""


class SqlResult(Shape, frozen=True, kw_only=True):
    statement: str
    message: str
    columns: list[str] | None = None
    rows: list[list[Any]] | None = None
    cut: bool = False
    rowcount: int = -1


class SqlAnswer(Shape, frozen=True, kw_only=True):
    results: list[SqlResult]


class AuditRow(Shape, frozen=True, kw_only=True):
    number: int
    at: Time
    event: str
    actor: str
    outcome: str
    job: str | None
    run_id: str | None
    details: dict[str, Any]
    is_sealed: bool


class AuditPage(Shape, frozen=True, kw_only=True):
    rows: list[AuditRow]
    next_before: int | None = None


class Tampering(Shape, frozen=True, kw_only=True):
    kind: str
    message: str
    first: int | None = None
    last: int | None = None
    number: int | None = None
    seal: int | None = None
    run: int | None = None


class Verification(Shape, frozen=True, kw_only=True):
    """`keyed`: seals that have a code under the audit key. `codes_checked`: whether the server had the master key to
    check those codes with."""

    ok: bool
    rows: int
    seals: int
    keyed: int
    codes_checked: bool
    unsealed: int
    head: str
    count: int
    findings: list[Tampering]


class Setting(Shape, frozen=True, kw_only=True):
    """`value` is what ALTER SYSTEM has set; None: nothing, so each node's own configuration holds."""

    name: str
    value: Any
    default: Any = None
    description: str = ""


class Settings(Shape, frozen=True, kw_only=True):
    settings: list[Setting]
