"""What is counted, under which names and labels: read back from the rendered text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.observing.counting import CatalogTotals, counted
from tests.observing.samples import RUN, SAMPLES, attempt, ended, sample, started

from horae.core.job.policies import RECOVERIES
from horae.core.run.lifecycle import ATTEMPTS, RUNS
from horae.events import (
    Claimed,
    EngineStarted,
    EngineStopped,
    Event,
    NodeExpelled,
    Planned,
    RunAbandoned,
    RunFenced,
    RunFreed,
    RunParked,
    RunPassed,
    RunReleased,
    StoreFound,
    StoreLost,
)
from horae.metrics import FAMILIES, Metrics


def test_every_family_is_announced_with_its_kind_even_before_anything_happened() -> None:
    page = counted()
    assert page.kinds == {family.name: family.kind for family in FAMILIES}
    assert page.helps == {family.name: family.meaning for family in FAMILIES}


def test_the_names_and_labels_that_were_promised_are_these() -> None:
    labels = {family.name: family.labels for family in FAMILIES}
    promised: dict[str, tuple[str, ...]] = {
        "scheduler_jobs_running_total": (),
        "scheduler_jobs_in_queue_total": (),
        "scheduler_jobs_paused_total": (),
        "scheduler_job_execution_duration_seconds": ("job",),
        "scheduler_task_execution_duration_seconds": ("job", "task"),
        "scheduler_task_attempts_total": ("job", "task", "status"),
        "scheduler_job_occurrences_total": ("job", "status"),
        "scheduler_recovery_runs_total": ("job", "strategy"),
        "scheduler_queue_depth": (),
        "jobs_running": (),
        "jobs_failed_total": (),
        "job_run_latency_ms": (),
        "scheduler_claim_duration_seconds": (),
        "scheduler_start_lag_seconds": (),
        "scheduler_fence_misses_total": (),
        "scheduler_runs_skipped_total": ("job", "reason"),
    }
    assert {name: labels[name] for name in promised} == promised


def test_a_page_with_every_event_on_it_keeps_to_the_format() -> None:
    metrics = Metrics()
    metrics.set_totals(CatalogTotals(), {"handler": 2})
    page = counted(*(each for each in SAMPLES if type(each) is not StoreLost), metrics=metrics)
    named = {family.name for family in FAMILIES} - {"scheduler_recovery_runs_total"}
    assert {name for name, _ in page.samples} >= {name for name in named if page.kinds[name] != "histogram"}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("COMPLETED", "completed"),
        ("COMPLETED_WITH_ERRORS", "completed_with_errors"),
        ("FAILED", "failed"),
        ("FAILED_STALE", "failed_stale"),
        ("CANCELLED", "canceled"),
        ("SKIPPED", "skipped"),
        ("MISSED", "missed"),
        ("UNSCHEDULABLE", "unschedulable"),
    ],
)
def test_runs_are_counted_by_how_they_ended_whether_or_not_they_started(state: str, status: str) -> None:
    assert state in RUNS.terminal
    page = counted(
        ended(state=state),
        ended("occ_2", state=state),
        RunPassed("nightly", state, 40, None, False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
    )
    assert page.series("scheduler_job_occurrences_total") == {frozenset({("job", "nightly"), ("status", status)}): 42}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("SUCCESS", "success"),
        ("FAILED", "failure"),
        ("TIMEOUT", "timeout"),
        ("CANCELLED", "canceled"),
        ("LOST", "lost"),
    ],
)
def test_attempts_are_counted_by_task_and_status(state: str, status: str) -> None:
    assert state in ATTEMPTS.terminal
    page = counted(attempt(state=state), attempt(state=state, task="second"))
    for task in ("main", "second"):
        assert page.value("scheduler_task_attempts_total", job="nightly", task=task, status=status) == 1


def test_durations_fall_into_buckets_whose_bounds_are_inclusive() -> None:
    page = counted(*(ended(seconds=seconds) for seconds in (0.005, 0.0051, 1.0, 5000.0)))
    name = "scheduler_job_execution_duration_seconds"
    buckets = dict(page.buckets(name, job="nightly"))
    assert (buckets[0.005], buckets[0.025], buckets[0.5], buckets[1.0]) == (1, 2, 2, 3)
    assert (buckets[3600.0], buckets[float("inf")]) == (3, 4)
    assert page.value(f"{name}_count", job="nightly") == 4
    assert page.value(f"{name}_sum", job="nightly") == pytest.approx(5001.0101)


def test_a_task_s_duration_is_told_for_each_task() -> None:
    page = counted(attempt(seconds=0.3), attempt(seconds=0.2, task="second"))
    name = "scheduler_task_execution_duration_seconds"
    assert page.value(f"{name}_sum", job="nightly", task="main") == 0.3
    assert page.value(f"{name}_sum", job="nightly", task="second") == 0.2


def test_the_buckets_of_every_histogram_never_fall_and_end_with_all() -> None:
    lags = [started(f"occ_{lag}", started_ms=1_000_000 + lag) for lag in (0, 1, 3, 40, 41, 700, 999_999)]
    page = counted(*SAMPLES, *lags, Claimed(1, 0.3), Planned(1, 1, 12.0))
    histograms = [family for family in FAMILIES if family.kind == "histogram"]
    assert histograms
    for family in histograms:
        for labels, count in page.series(f"{family.name}_count").items():
            buckets = page.buckets(family.name, **dict(labels))
            assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets})
            assert [number for _, number in buckets] == sorted(number for _, number in buckets)
            assert buckets[-1] == (float("inf"), count)
            assert count > 0


def test_the_start_lag_is_told_in_seconds_and_under_the_older_name_in_milliseconds() -> None:
    page = counted(started(started_ms=1_000_250), started("occ_2", started_ms=1_002_000))
    assert page.value("scheduler_start_lag_seconds_sum") == 2.25
    assert page.value("job_run_latency_ms_sum") == 2250
    seconds, milliseconds = page.buckets("scheduler_start_lag_seconds"), page.buckets("job_run_latency_ms")
    assert [(bound * 1000, count) for bound, count in seconds] == milliseconds
    assert dict(milliseconds)[250] == 1


def test_only_a_run_s_first_start_has_a_lag() -> None:
    page = counted(
        started(), RunParked(RUN, "nightly", sample(RunParked).until), started(fence=2, started_ms=9_999_999)
    )
    assert page.value("scheduler_start_lag_seconds_count") == 1


def test_a_start_before_its_time_by_the_clocks_has_no_negative_lag() -> None:
    page = counted(started(started_ms=999_000))
    assert page.value("scheduler_start_lag_seconds_sum") == 0


@pytest.mark.parametrize(
    ("policy", "strategy"),
    [
        ("all", "full_backfill"),
        ("last", "latest_only"),
        ("none", "skip"),
        ("bounded", "bounded"),
        ("compressed", "compressed"),
    ],
)
def test_recovery_runs_are_counted_once_by_the_strategy_that_made_them(policy: str, strategy: str) -> None:
    assert policy in RECOVERIES
    again = started(is_recovery=True, strategy=policy, fence=2)
    page = counted(started(is_recovery=True, strategy=policy), again, started("occ_2", strategy=policy))
    labels = frozenset({("job", "nightly"), ("strategy", strategy)})
    assert page.series("scheduler_recovery_runs_total") == {labels: 1}


def test_missed_slots_that_are_not_made_up_for_count_as_passed_over() -> None:
    page = counted(
        RunPassed("nightly", "MISSED", 300, "missed", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
        RunPassed("nightly", "MISSED", 1, "deadline", True, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
        RunPassed("nightly", "MISSED", 1000, "deadline", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
    )
    assert page.value("scheduler_recovery_runs_total", job="nightly", strategy="skip") == 301


def test_skipped_runs_are_counted_by_reason() -> None:
    page = counted(
        RunPassed("nightly", "SKIPPED", 2, "overlap", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
        RunPassed("nightly", "SKIPPED", 3, "paused", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
        RunPassed("nightly", "SKIPPED", 1, None, False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
        RunPassed("nightly", "MISSED", 9, "deadline", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
    )
    found = {dict(labels)["reason"]: count for labels, count in page.series("scheduler_runs_skipped_total").items()}
    assert found == {"overlap": 2, "paused": 3, "other": 1}


def test_failed_runs_are_those_that_failed_and_those_that_ran_out_of_time() -> None:
    good = (ended(), ended(state="COMPLETED_WITH_ERRORS"), ended(state="CANCELLED", reason="operator"))
    assert counted(*good).value("jobs_failed_total") == 0
    bad = (ended(state="FAILED"), ended(state="FAILED_STALE"), ended(state="CANCELLED", reason="timeout"))
    page = counted(
        *good,
        *bad,
        RunPassed("nightly", "FAILED", 2, "superseded", False, "occ_1", 1_772_442_060_000, 1_772_442_060_000),
    )
    assert page.value("jobs_failed_total") == 5


@pytest.mark.parametrize(
    "leaving",
    [
        ended("occ_2"),
        RunParked("occ_2", "nightly", sample(RunParked).until),
        RunReleased("occ_2", "nightly", "shutdown"),
        RunFenced("occ_2", "nightly", 1),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_run_is_under_way_from_its_start_until_it_leaves_this_node(leaving: Event) -> None:
    running = [started("occ_1"), started("occ_2"), started("occ_3")]
    for name in ("scheduler_jobs_running_total", "jobs_running"):
        assert counted(*running).value(name) == 3
        # A second farewell, such as a late write that is refused, takes nobody else away.
        assert counted(*running, leaving, leaving).value(name) == 2


@pytest.mark.parametrize("end", [EngineStopped("n", 2), NodeExpelled("n")], ids=["stopped", "expelled"])
def test_nothing_is_under_way_on_a_node_that_stopped_or_was_expelled(end: Event) -> None:
    assert counted(started("occ_1"), started("occ_2"), end).value("jobs_running") == 0


def test_slots_are_those_of_the_engine_while_it_works() -> None:
    begun = EngineStarted("n", None, 3, 50)
    assert counted(begun).value("scheduler_slots") == 50
    assert counted(begun, EngineStopped("n", 0)).value("scheduler_slots") == 0


def test_leftover_threads_are_those_abandoned_and_not_freed() -> None:
    left = [RunAbandoned(RUN, "nightly", "main", "timeout")] * 3
    page = counted(*left, RunFreed(RUN, "nightly", "main", 4.0))
    assert page.value("scheduler_leftover_threads") == 2
    assert page.value("scheduler_threads_abandoned_total") == 3


def test_whether_the_catalog_can_be_reached_is_told_once_it_is_known() -> None:
    begun = EngineStarted("n", None, 3, 50)
    assert counted().series("scheduler_store_up") == {}
    assert counted(begun).value("scheduler_store_up") == 1
    assert counted(begun, StoreLost("gone")).value("scheduler_store_up") == 0
    page = counted(begun, StoreLost("gone"), StoreFound(2.5), StoreLost("gone"), StoreFound(0.25))
    assert page.value("scheduler_store_up") == 1
    assert page.value("scheduler_store_outages_total") == 2
    assert page.value("scheduler_store_outage_seconds_total") == 2.75


def test_claims_and_planning_passes_are_timed_and_what_they_brought_is_counted() -> None:
    page = counted(Claimed(4, 0.002), Claimed(0, 0.03), Planned(9, 5, 0.5))
    assert dict(page.buckets("scheduler_claim_duration_seconds"))[0.01] == 1
    assert page.value("scheduler_claim_duration_seconds_count") == 2
    assert page.value("scheduler_runs_claimed_total") == 4
    assert page.value("scheduler_plan_duration_seconds_sum") == 0.5
    assert page.value("scheduler_runs_born_total") == 5


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("scheduler_fence_misses_total", 1),
        ("scheduler_runs_parked_total", 1),
        ("scheduler_runs_released_total", 1),
        ("scheduler_threads_freed_total", 1),
        ("scheduler_hook_failures_total", 1),
        ("scheduler_results_dropped_total", 1),
        ("scheduler_handlers_missing_total", 1),
        ("scheduler_loop_errors_total", 1),
        ("scheduler_heartbeats_late_total", 1),
        ("scheduler_expulsions_total", 1),
        ("scheduler_nodes_buried_total", 1),
        ("scheduler_runs_taken_over_total", 4),
        ("scheduler_runs_reaped_total", 1),
        ("scheduler_runs_swept_total", 5),
        ("scheduler_history_deleted_total", 5000),
    ],
)
def test_what_is_seldom_is_counted_too(name: str, amount: int) -> None:
    assert counted().value(name) == 0
    assert counted(*SAMPLES).value(name) == amount


def test_what_the_catalog_holds_is_shown_once_somebody_has_looked() -> None:
    metrics = Metrics()
    assert counted(metrics=metrics).series("scheduler_queue_depth") == {}
    metrics.set_totals(CatalogTotals(), {"handler": 2, "pool": 1})
    page = counted(metrics=metrics)
    waits = {dict(labels)["reason"]: count for labels, count in page.series("scheduler_runs_waiting").items()}
    assert waits == {"handler": 2, "pool": 1}
    assert page.value("scheduler_jobs_in_queue_total") == 8
    assert page.value("scheduler_queue_depth") == 5
    assert page.value("scheduler_jobs_paused_total") == 2
    states = {dict(labels)["state"]: count for labels, count in page.series("scheduler_catalog_runs").items()}
    assert states == {"running": 7, "queued": 3, "pending": 20}
    states = {dict(labels)["state"]: count for labels, count in page.series("scheduler_catalog_jobs").items()}
    assert states == {"enabled": 40, "paused": 2, "disabled": 1}
    metrics.set_totals(replace(CatalogTotals(), runs_due=0))
    assert counted(metrics=metrics).value("scheduler_queue_depth") == 0


def test_old_totals_are_not_shown_while_the_catalog_is_lost() -> None:
    metrics = Metrics()
    metrics.set_totals(CatalogTotals(), {"pool": 1})
    page = counted(StoreLost("gone"), metrics=metrics)
    assert page.series("scheduler_queue_depth") == page.series("scheduler_runs_waiting") == {}
