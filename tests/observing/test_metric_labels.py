"""The labels of metrics come from closed sets: no id, no handler and no other text of a run makes a series."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from tests.observing.counting import CatalogTotals, counted
from tests.observing.samples import SAMPLES, attempt, ended, started

from horae.core.job.policies import Overlap, Queue, Retry
from horae.core.run.lifecycle import RunState
from horae.core.run.overlap import WAITING_FOR_HANDLER, ActiveRun, judge_overlap, thread_reason
from horae.core.run.skip_reason import skip_reason
from horae.events import RunPassed, StoreLost
from horae.metrics import FAMILIES, LABEL_VALUES, Metrics

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (thread_reason(ActiveRun("occ_23c6", RunState.COMPLETED, NOON, NOON, thread="b747")), "thread"),
        (f"{WAITING_FOR_HANDLER} reports.nightly", "handler"),
        ("dependency loader FAILED", "dependencies"),
        ("dependencies", "dependencies"),
        ("queue full", "queue full"),
        ("coalesced", "coalesced"),
        ("replaced", "replaced"),
        ("because node b747 said so", "other"),
        (None, "other"),
    ],
)
def test_a_reason_that_names_runs_nodes_or_handlers_is_counted_by_its_kind(reason: str | None, label: str) -> None:
    passed = RunPassed("nightly", "SKIPPED", 1, reason, False, "occ_1", 1_772_442_060_000, 1_772_442_060_000)
    labels = frozenset({("job", "nightly"), ("reason", label)})
    assert counted(passed).series("scheduler_runs_skipped_total") == {labels: 1}


def test_every_reason_that_the_overlap_policy_gives_has_a_label_of_its_own() -> None:
    running, queued = (ActiveRun("occ_1", state, NOON, NOON) for state in (RunState.RUNNING, RunState.QUEUED))
    worlds: list[list[ActiveRun]] = [
        [running],
        [queued, running],
        [replace(running, lacks="reports.nightly")],
        [replace(running, state=RunState.COMPLETED, thread="b747")],
    ]
    policies: list[Overlap] = ["skip", "coalesce", "replace", Queue(1)]
    labels: set[str] = set()
    for policy, world in product(policies, worlds):
        verdict = judge_overlap(policy, world, NOON, Retry(0, timedelta()))
        reasons = [ending.reason for ending in verdict.endings]
        reasons += [verdict.reason or ""] if verdict.state is RunState.SKIPPED else []
        labels |= {skip_reason(reason) for reason in reasons}
    assert labels == {"overlap", "thread", "handler", "queue full", "coalesced", "replaced"}


def test_no_label_takes_text_that_is_not_on_its_list() -> None:
    metrics = Metrics()
    metrics.set_totals(CatalogTotals(), {"handler": 2, "node b747": 3, "run occ_1": 4})
    odd = "run occ_23c6 on node b747"
    page = counted(
        *(each for each in SAMPLES if type(each) is not StoreLost),
        RunPassed("nightly", odd, 1, odd, False, "occ_1", 0, 0),
        RunPassed("nightly", "odder", 1, odd, False, "occ_1", 0, 0),
        RunPassed("nightly", "SKIPPED", 1, odd, False, "occ_1", 0, 0),
        started(is_recovery=True, strategy=odd),
        attempt(state=odd),
        ended(state=odd),
        metrics=metrics,
    )
    shown = {
        (family.name, label): {dict(labels)[label] for labels in page.series(family.name)}
        for family in FAMILIES
        for label in family.labels
        if label not in ("job", "task")
    }
    assert set(shown) == set(LABEL_VALUES)
    assert {key for key, values in shown.items() if not values <= set(LABEL_VALUES[key])} == set()
    assert page.value("scheduler_job_occurrences_total", job="nightly", status="other") == 3
    assert page.value("scheduler_task_attempts_total", job="nightly", task="main", status="other") == 1
    waiting = page.series("scheduler_runs_waiting")
    assert {dict(labels)["reason"]: count for labels, count in waiting.items()} == {"handler": 2, "other": 7}
