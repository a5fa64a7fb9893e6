"""Counters, gauges and histograms over the stream of events, in Prometheus' text format.

A node counts its own events. The totals of the whole catalog are set before each scrape (`set_totals`). Events are
counted on the engine's thread; `render` and `snapshot` may be called on any thread. The hot path formats no text and no
label: it finds a job's series by name and adds to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import horae.events as events
from horae.core.run.lifecycle import ATTEMPTS, RUNS
from horae.core.run.skip_reason import SkipReason, skip_reason
from horae.core.run.waiting_reason import WaitingFor

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_JOBS = 1_000
MOST_TASKS = 10_000
OTHER = "other"
"""The label of jobs and tasks beyond those that get series of their own, and of every value without a label of its
own."""

_DURATIONS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_RUN_STATUS = {state: state.lower() for state in RUNS.states if state in RUNS.terminal} | {"CANCELLED": "canceled"}
_ATTEMPT_STATUS = {state: state.lower() for state in ATTEMPTS.states if state in ATTEMPTS.terminal} | {
    "FAILED": "failure",
    "CANCELLED": "canceled",
}
_STRATEGIES = {
    "all": "full_backfill",
    "last": "latest_only",
    "bounded": "bounded",
    "compressed": "compressed",
    "none": "skip",
}
CLAIM = "claim"
"""The waiting reason of a run that only needs to be claimed."""
_WAITS = frozenset((*WaitingFor, CLAIM))


class CatalogCounts(Protocol):
    """The totals of the catalog, over all nodes. `runs_due` counts PENDING runs whose time has come."""

    @property
    def runs_running(self) -> int: ...
    @property
    def runs_queued(self) -> int: ...
    @property
    def runs_pending(self) -> int: ...
    @property
    def runs_due(self) -> int: ...
    @property
    def jobs_enabled(self) -> int: ...
    @property
    def jobs_paused(self) -> int: ...
    @property
    def jobs_disabled(self) -> int: ...


class Family(NamedTuple):
    """One metric: its name, its kind, the labels of its series, and its description."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


_PLAIN: tuple[tuple[str, type, str, str], ...] = (
    ("scheduler_fence_misses_total", events.RunFenced, "", "Writes refused because another node has the run."),
    ("scheduler_runs_born_total", events.Planned, "born", "Runs that planning on this node gave birth to."),
    ("scheduler_runs_claimed_total", events.Claimed, "runs", "Runs claimed; those born started are not in it."),
    ("scheduler_runs_parked_total", events.RunParked, "", "Runs that gave up their slot to wait for a retry."),
    ("scheduler_runs_released_total", events.RunReleased, "", "Runs handed back unfinished."),
    ("scheduler_threads_abandoned_total", events.RunAbandoned, "", "Threads left behind: they could not be stopped."),
    ("scheduler_threads_freed_total", events.RunFreed, "", "Threads left behind that have ended after all."),
    ("scheduler_hook_failures_total", events.HookFailed, "", "Hooks that raised."),
    ("scheduler_results_dropped_total", events.ResultDropped, "", "Return values that could not be kept."),
    (
        "scheduler_definitions_unreadable_total",
        events.DefinitionUnreadable,
        "",
        "Due jobs found with a definition that cannot be read.",
    ),
    ("scheduler_handlers_missing_total", events.HandlerMissing, "", "Times no live node had what a job needs."),
    (
        "scheduler_sandbox_missing_total",
        events.SandboxMissing,
        "",
        "Times this node could not give programs a sandbox.",
    ),
    (
        "scheduler_clock_set_back_total",
        events.ClockSetBack,
        "",
        "Times this node found jobs ahead of a clock that was set back.",
    ),
    ("scheduler_runs_overlong_total", events.RunOverlong, "", "Runs on this node that lasted unusually long."),
    (
        "scheduler_audit_head_failures_total",
        events.HeadUnpublished,
        "",
        "Times the audit trail's head could not be published to its file or webhook.",
    ),
    ("scheduler_loop_errors_total", events.LoopFailed, "", "Unexpected errors in the engine's loops."),
    ("scheduler_heartbeats_late_total", events.HeartbeatLate, "", "Heartbeats that came too late."),
    ("scheduler_expulsions_total", events.NodeExpelled, "", "Times others declared this node dead."),
    ("scheduler_nodes_buried_total", events.NodeBuried, "", "Dead nodes this node took over from."),
    ("scheduler_runs_taken_over_total", events.NodeBuried, "runs", "Runs taken over from dead nodes."),
    ("scheduler_runs_reaped_total", events.RunsReaped, "count", "Runs ended because they did not stop when asked."),
    ("scheduler_runs_swept_total", events.RunsSwept, "count", "Waiting runs that only a sweep moved on."),
    ("scheduler_history_deleted_total", events.HistoryDeleted, "count", "Ended runs deleted by retention."),
    ("scheduler_store_outages_total", events.StoreLost, "", "Times the catalog was lost."),
    ("scheduler_store_outage_seconds_total", events.StoreFound, "seconds", "Time spent without the catalog."),
)
"""Counters that one event adds to: the metric, the event, the field that is added (none: 1), the description."""

FAMILIES = (
    Family("scheduler_jobs_running_total", "gauge", (), "Runs under way on this node."),
    Family("jobs_running", "gauge", (), "The same as scheduler_jobs_running_total."),
    Family("scheduler_jobs_in_queue_total", "gauge", (), "Runs that wait for their turn: queued, or due."),
    Family("scheduler_queue_depth", "gauge", (), "Runs that are due and that no node has taken yet."),
    Family("scheduler_jobs_paused_total", "gauge", (), "Jobs that are paused."),
    Family("scheduler_catalog_runs", "gauge", ("state",), "Runs in the catalog that have not ended, over all nodes."),
    Family(
        "scheduler_runs_waiting",
        "gauge",
        ("reason",),
        "Runs that have not started, by what they wait for; of very many, the newest 1,000 in each state.",
    ),
    Family("scheduler_catalog_jobs", "gauge", ("state",), "Jobs in the catalog."),
    Family("scheduler_slots", "gauge", (), "How many runs this node takes on at once; 0 when it has stopped."),
    Family("scheduler_audit_seals", "gauge", (), "The number of the audit trail's newest seal that this node saw."),
    Family(
        "scheduler_audit_head",
        "gauge",
        (),
        "The first 13 hex digits of that seal's digest, as a number: what was scraped shows a trail written anew.",
    ),
    Family("scheduler_store_up", "gauge", (), "Whether the catalog can be reached: 1 or 0."),
    Family("scheduler_leftover_threads", "gauge", (), "Threads left behind that have not ended; each holds a slot."),
    Family("scheduler_job_execution_duration_seconds", "histogram", ("job",), "From a run's start to its end."),
    Family("scheduler_task_execution_duration_seconds", "histogram", ("job", "task"), "How long one attempt took."),
    Family("scheduler_start_lag_seconds", "histogram", (), "From a run's chosen time to its first start."),
    Family("job_run_latency_ms", "histogram", (), "The same as scheduler_start_lag_seconds, in milliseconds."),
    Family("scheduler_claim_duration_seconds", "histogram", (), "How long the catalog took to hand out runs."),
    Family("scheduler_plan_duration_seconds", "histogram", (), "How long a planning pass took."),
    Family("scheduler_job_occurrences_total", "counter", ("job", "status"), "Runs that ended, started or not."),
    Family("scheduler_task_attempts_total", "counter", ("job", "task", "status"), "Attempts that ended."),
    Family("scheduler_recovery_runs_total", "counter", ("job", "strategy"), "Missed slots made up for or passed by."),
    Family("scheduler_runs_skipped_total", "counter", ("job", "reason"), "Runs that were skipped, by reason."),
    Family("jobs_failed_total", "counter", (), "Runs that failed or ran out of time."),
    *(Family(name, "counter", (), meaning) for name, _, _, meaning in _PLAIN),
)
"""Every metric, in the order of the page."""

LABEL_VALUES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("scheduler_catalog_runs", "state"): ("running", "queued", "pending"),
    ("scheduler_runs_waiting", "reason"): (*WaitingFor, CLAIM, OTHER),
    ("scheduler_catalog_jobs", "state"): ("enabled", "paused", "disabled"),
    ("scheduler_job_occurrences_total", "status"): (*_RUN_STATUS.values(), OTHER),
    ("scheduler_task_attempts_total", "status"): (*_ATTEMPT_STATUS.values(), OTHER),
    ("scheduler_recovery_runs_total", "strategy"): (*_STRATEGIES.values(), OTHER),
    ("scheduler_runs_skipped_total", "reason"): tuple(SkipReason),
}
"""Every value that a label may have, by metric and label. The labels `job` and `task` are limited in number instead, by
MOST_JOBS and MOST_TASKS."""


class HistogramBuckets(NamedTuple):
    """A histogram at one moment. `counts` are cumulative: one for each of `bounds`, and the last for all values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class _Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self, scale: int = 1) -> HistogramBuckets:
        # Copied first: the engine may go on counting, and the last bucket must equal the count.
        counts = tuple(accumulate(self.counts.copy()))
        return HistogramBuckets(tuple(bound * scale for bound in self.bounds), counts, self.total * scale)


class _Series(_Histogram):
    """All that is counted of one job or one task: durations, ends by state, and rare events."""

    __slots__ = ("ends", "recoveries", "skips", "tasks")

    def __init__(self) -> None:
        super().__init__(_DURATIONS)
        self.ends: defaultdict[str, int] = defaultdict(int)
        self.recoveries: defaultdict[str, int] = defaultdict(int)
        self.skips: defaultdict[str, int] = defaultdict(int)
        self.tasks: dict[str, _Series] = {}


Labels = tuple[str, ...]
Sample = tuple[Labels, "int | float | HistogramBuckets"]


class Metrics:
    """The metrics of one node. `attach` it to a stream; `render` it for Prometheus, `snapshot` it for programs."""

    def __init__(self, *, most_jobs: int = MOST_JOBS, most_tasks: int = MOST_TASKS) -> None:
        self._most_jobs, self._most_tasks = most_jobs, most_tasks
        self._jobs: dict[str, _Series] = {}
        self._other_job: _Series | None = None
        self._other_task: _Series | None = None
        self._running: set[str] = set()
        self._lag, self._claims, self._plans = (_Histogram(_LATENCIES) for _ in range(3))
        self._plain: dict[str, float] = {name: 0 for name, *_ in _PLAIN}
        self._failed = self._slots = self._tasks = 0
        self._store_up: int | None = None
        self._sealed: events.TrailSealed | None = None
        self._totals: CatalogCounts | None = None
        self._waiting: dict[str, int] = {}

    def attach(self, stream: events.Stream) -> Callable[[], None]:
        """Counts the stream's events from now on, until the returned function is called. Attached twice, it counts
        twice."""
        listeners: list[tuple[Callable[[Any], None], type]] = [
            (self._on_run_started, events.RunStarted),
            (self._on_attempt_ended, events.AttemptEnded),
            (self._on_run_ended, events.RunEnded),
            (self._on_run_passed, events.RunPassed),
            (self._on_run_left, events.RunParked),
            (self._on_run_left, events.RunReleased),
            (self._on_run_left, events.RunFenced),
            (self._on_node_began, events.EngineStarted),
            (self._on_node_gone, events.EngineStopped),
            (self._on_node_gone, events.NodeExpelled),
            (self._on_store_lost, events.StoreLost),
            (self._on_store_found, events.StoreFound),
            (self._on_trail_sealed, events.TrailSealed),
            (lambda event: self._claims.observe(event.seconds), events.Claimed),
            (lambda event: self._plans.observe(event.seconds), events.Planned),
        ]
        listeners += [(self._adder(name, field), kind) for name, kind, field, _ in _PLAIN]
        endings = [stream.listen(listener, kind) for listener, kind in listeners]

        def detach() -> None:
            for end in endings:
                end()

        return detach

    def set_totals(self, totals: CatalogCounts | None, waiting: Mapping[str, int] | None = None) -> None:
        """Sets the catalog's totals and how many runs wait for each reason. None if the catalog cannot be read, so that
        no old totals are shown."""
        self._totals = totals
        counted: dict[str, int] = {}
        for reason, count in (waiting or {}).items():
            label = reason if reason in _WAITS else OTHER
            counted[label] = counted.get(label, 0) + count
        self._waiting = counted

    def render(self) -> str:
        """All metrics in Prometheus' text exposition format, version 0.0.4 (CONTENT_TYPE)."""
        lines: list[str] = []
        for family, samples in self._collect():
            lines.append(f"# HELP {family.name} {family.meaning}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            for values, value in samples:
                labels = [f'{name}="{_escaped(label)}"' for name, label in zip(family.labels, values, strict=True)]
                if isinstance(value, HistogramBuckets):
                    lines += _histogram_lines(family.name, labels, value)
                else:
                    lines.append(f"{family.name}{_braced(labels)} {_number(value)}")
        return "\n".join(lines) + "\n"

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """The metrics as plain values: for each metric a list of series with `labels` and `value`. A histogram's series
        has `count`, `sum` and `buckets` (cumulative, by upper bound) instead of `value`."""
        return {
            family.name: [
                {"labels": dict(zip(family.labels, values, strict=True)), **_plain_value(value)}
                for values, value in samples
            ]
            for family, samples in self._collect()
        }

    # ---- the hot path: what _Histogram.observe does is written out, since a call costs as much as all of it ---

    def _on_run_started(self, event: events.RunStarted) -> None:
        run_id, job, origin, _, chosen_ms, started_ms, fence, is_recovery, strategy = event
        self._running.add(run_id)
        if fence == 1 and origin == "SCHEDULE":
            # A later start continues a parked or lost run: its wait is no lag, and it is no second recovery. A run that
            # was asked for has no scheduled start to be late for.
            lag = self._lag
            seconds = (started_ms - chosen_ms) / 1000 if started_ms > chosen_ms else 0.0
            lag.counts[bisect_left(_LATENCIES, seconds)] += 1
            lag.total += seconds
            if is_recovery:
                self._job(job).recoveries[_STRATEGIES.get(strategy, OTHER)] += 1

    def _on_attempt_ended(self, event: events.AttemptEnded) -> None:
        _, job, task, _, state, seconds, *_ = event
        try:
            series = self._jobs[job].tasks[task]
        except KeyError:
            series = self._task(job, task)
        series.counts[bisect_left(_DURATIONS, seconds)] += 1
        series.total += seconds
        series.ends[state] += 1

    def _on_run_ended(self, event: events.RunEnded) -> None:
        run_id, job, state, reason, seconds, *_ = event
        self._running.discard(run_id)
        series = self._jobs.get(job) or self._job(job)
        series.counts[bisect_left(_DURATIONS, seconds)] += 1
        series.total += seconds
        series.ends[state] += 1
        if state != "COMPLETED":
            self._failed += _is_failure(state, reason)

    # ---- seldom ----------------------------------------------------------------------------------------------

    def _job(self, job: str) -> _Series:
        series = self._jobs.get(job)
        if series is not None:
            return series
        if len(self._jobs) < self._most_jobs:
            return self._jobs.setdefault(job, _Series())
        self._other_job = self._other_job or _Series()
        return self._other_job

    def _task(self, job: str, task: str) -> _Series:
        of_job = self._job(job)
        if of_job is not self._other_job and self._tasks < self._most_tasks:
            self._tasks += 1
            return of_job.tasks.setdefault(task, _Series())
        self._other_task = self._other_task or _Series()
        return self._other_task

    def _on_run_passed(self, event: events.RunPassed) -> None:
        job, state, count, reason, is_recovery, _, _, _ = event
        series = self._job(job)
        series.ends[state] += count
        if state == "SKIPPED":
            series.skips[skip_reason(reason)] += count
        elif state == "MISSED" and (is_recovery or reason != "deadline"):
            series.recoveries[_STRATEGIES["none"]] += count
        self._failed += _is_failure(state, reason) * count

    def _on_run_left(self, event: events.RunParked | events.RunReleased | events.RunFenced) -> None:
        self._running.discard(event.run_id)

    def _on_node_began(self, event: events.EngineStarted) -> None:
        self._slots, self._store_up = event.slots, 1

    def _on_node_gone(self, event: events.EngineStopped | events.NodeExpelled) -> None:
        """Clears the running runs: they have ended or belong to other nodes."""
        self._running.clear()
        if type(event) is events.EngineStopped:
            self._slots = 0

    def _on_store_lost(self, event: events.StoreLost) -> None:
        self._store_up, self._totals, self._waiting = 0, None, {}

    def _on_store_found(self, event: events.StoreFound) -> None:
        self._store_up = 1

    def _on_trail_sealed(self, event: events.TrailSealed) -> None:
        self._sealed = event

    def _adder(self, name: str, field: str) -> Callable[[Any], None]:
        def add(event: Any) -> None:
            self._plain[name] += getattr(event, field) if field else 1

        return add

    # ---- showing ---------------------------------------------------------------------------------------------

    def _collect(self) -> Iterator[tuple[Family, list[Sample]]]:
        """Yields each metric with its series. Dicts are copied in one step, because the engine may add to them
        meanwhile."""
        jobs: list[tuple[Labels, _Series]] = [((job,), each) for job, each in self._jobs.copy().items()]
        tasks = [((*key, task), each) for key, job in jobs for task, each in job.tasks.copy().items()]
        if self._other_job is not None:
            jobs.append(((OTHER,), self._other_job))
        if self._other_task is not None:
            tasks.append(((OTHER, OTHER), self._other_task))
        running, plain = len(self._running), self._plain
        leftover = plain["scheduler_threads_abandoned_total"] - plain["scheduler_threads_freed_total"]
        series: dict[str, list[Sample]] = {
            "scheduler_jobs_running_total": [((), running)],
            "jobs_running": [((), running)],
            "scheduler_slots": [((), self._slots)],
            "scheduler_store_up": [] if self._store_up is None else [((), self._store_up)],
            **_sealed_series(self._sealed),
            "scheduler_leftover_threads": [((), leftover)],
            "scheduler_job_execution_duration_seconds": [(key, each.buckets()) for key, each in jobs],
            "scheduler_task_execution_duration_seconds": [(key, each.buckets()) for key, each in tasks],
            "scheduler_start_lag_seconds": [((), self._lag.buckets())],
            "job_run_latency_ms": [((), self._lag.buckets(scale=1000))],
            "scheduler_claim_duration_seconds": [((), self._claims.buckets())],
            "scheduler_plan_duration_seconds": [((), self._plans.buckets())],
            "scheduler_job_occurrences_total": _split(((key, each.ends) for key, each in jobs), _RUN_STATUS),
            "scheduler_task_attempts_total": _split(((key, each.ends) for key, each in tasks), _ATTEMPT_STATUS),
            "scheduler_recovery_runs_total": _split(((key, each.recoveries) for key, each in jobs), None),
            "scheduler_runs_skipped_total": _split(((key, each.skips) for key, each in jobs), None),
            "jobs_failed_total": [((), self._failed)],
            **_catalog_series(self._totals),
            "scheduler_runs_waiting": [((reason,), count) for reason, count in sorted(self._waiting.items())],
            **{name: [((), value)] for name, value in plain.items()},
        }
        for family in FAMILIES:
            yield family, series.get(family.name, [])


def _sealed_series(sealed: events.TrailSealed | None) -> dict[str, list[Sample]]:
    """The metrics of the audit trail's newest seal.

    The digest is a value, since as a label each digest would be a new series. Its first 52 bits fit a float exactly.
    """
    if sealed is None:
        return {}
    return {"scheduler_audit_seals": [((), sealed.seal)], "scheduler_audit_head": [((), int(sealed.head[:13], 16))]}


def _catalog_series(totals: CatalogCounts | None) -> dict[str, list[Sample]]:
    if totals is None:
        return {}
    runs = {"running": totals.runs_running, "queued": totals.runs_queued, "pending": totals.runs_pending}
    jobs = {"enabled": totals.jobs_enabled, "paused": totals.jobs_paused, "disabled": totals.jobs_disabled}
    return {
        "scheduler_jobs_in_queue_total": [((), totals.runs_queued + totals.runs_due)],
        "scheduler_queue_depth": [((), totals.runs_due)],
        "scheduler_jobs_paused_total": [((), totals.jobs_paused)],
        "scheduler_catalog_runs": [((state,), count) for state, count in runs.items()],
        "scheduler_catalog_jobs": [((state,), count) for state, count in jobs.items()],
    }


def _split(counted: Iterable[tuple[Labels, dict[str, int]]], names: dict[str, str] | None) -> list[Sample]:
    """One series for each key of each dict. With `names`, keys are states and get the metrics' names for them."""
    samples: list[Sample] = []
    for key, counts in counted:
        by_label: dict[str, int] = {}
        for value, count in counts.copy().items():
            label = value if names is None else names.get(value, OTHER)
            by_label[label] = by_label.get(label, 0) + count
        samples += [((*key, label), count) for label, count in by_label.items()]
    return samples


def _is_failure(state: str, reason: str | None) -> bool:
    """Whether a run failed. A run that was cancelled by its timeout counts as failed."""
    return state in ("FAILED", "FAILED_STALE") or (state == "CANCELLED" and reason == "timeout")


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _braced(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _histogram_lines(name: str, labels: list[str], value: HistogramBuckets) -> list[str]:
    before = f"{name}_bucket{{{''.join([f'{label},' for label in labels])}le="
    counted = zip((*map(_number, value.bounds), "+Inf"), value.counts, strict=True)
    lines = [f'{before}"{bound}"}} {count}' for bound, count in counted]
    ends = _braced(labels)
    return [*lines, f"{name}_sum{ends} {_number(value.total)}", f"{name}_count{ends} {value.counts[-1]}"]


def _plain_value(value: float | HistogramBuckets) -> dict[str, Any]:
    if not isinstance(value, HistogramBuckets):
        return {"value": value}
    buckets = dict(zip((*map(_number, value.bounds), "+Inf"), value.counts, strict=True))
    return {"count": value.counts[-1], "sum": value.total, "buckets": buckets}
