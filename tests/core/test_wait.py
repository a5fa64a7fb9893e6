"""What a run waits for, as a pure rule: the reasons in their order, and what a reader may know of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from horae.core.lifecycle import RunState
from horae.core.wait import Around, Holder, LiveNode, Pool, Requirements, WaitingRun, lacking_node, wait_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PENDING = WaitingRun("occ_1", "a", RunState.PENDING, None, NOW, NOW)
NODE = LiveNode("n", frozenset({"x"}), 1)
OTHERS = (Holder("occ_2", "b", RunState.RUNNING), Holder("occ_3", "c", RunState.RUNNING))
LATER = NOW + timedelta(minutes=1)


def told(run: WaitingRun, **around: object) -> str | None:
    found = wait_of(run, Around(NOW, **around))  # type: ignore[arg-type]
    return None if found is None else f"{found.reason}: {found.detail}"


def needing(*handlers: str, **more: object) -> WaitingRun:
    return replace(PENDING, requires=Requirements(frozenset(handlers), **more))  # type: ignore[arg-type]


def test_a_run_that_a_node_can_take_waits_for_nothing() -> None:
    assert told(needing("x"), nodes=[NODE]) is None
    assert told(needing("whatever"), nodes=[LiveNode("n")]) is None


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (replace(PENDING, not_before=LATER), "rescheduled: not before 2026-01-01T12:01:00Z"),
        (replace(PENDING, not_before=LATER, stored="window"), "window: 2026-01-01T12:01:00Z, chosen within its window"),
        (replace(PENDING, not_before=LATER, stored="retry"), "retry: retry 1 at 2026-01-01T12:01:00Z"),
        (
            replace(PENDING, not_before=LATER, stored="retry", retry_count=2, error="KeyError: 'a'\nmore"),
            "retry: retry 3 at 2026-01-01T12:01:00Z, after KeyError: 'a'",
        ),
        (replace(PENDING, state=RunState.QUEUED), "previous_run: the run of its job before it"),
        (
            replace(PENDING, stored="dependencies", not_before=None),
            "dependencies: runs of the jobs that it depends on",
        ),
    ],
)
def test_a_time_a_turn_and_dependencies_come_before_nodes(run: WaitingRun, reason: str) -> None:
    assert told(run) == reason
    assert told(run, nodes=[NODE]) == reason


def test_a_due_run_waits_for_a_node_then_for_its_handlers_then_for_room() -> None:
    assert told(needing("x")) == "node: no node is alive"
    assert told(needing("x", "y"), nodes=[NODE]) == 'handler: no live node has the task "y"'
    split = [NODE, LiveNode("m", frozenset({"y"}), 1)]
    assert told(needing("x", "y"), nodes=split) == ('handler: no live node has all of "x", "y": each is on another one')
    full = replace(NODE, free=0)
    assert told(needing("x"), nodes=[full]) == "capacity: every node that can run it is full (n)"
    assert told(needing("x"), nodes=[full, LiveNode("m", frozenset(), 5)]) is not None


def test_a_full_pool_names_its_holders_to_readers_who_may_know_them() -> None:
    run = needing("x", pool="db")
    around = {"nodes": [NODE], "pools": {"db": Pool(2, OTHERS)}}
    assert told(run, **around) == 'pool: the pool "db" is full (2 of 2: occ_2 of b, RUNNING; occ_3 of c, RUNNING)'
    assert told(run, **around, names_others=False) == 'pool: the pool "db" is full (2 of 2)'
    assert told(run, nodes=[NODE], pools={"db": Pool(3, OTHERS)}) is None


def test_dependencies_are_named_to_readers_who_may_know_them() -> None:
    run = replace(needing("x", depends_on=("b", "c")), stored="dependencies")
    latest = {"occ_1": {"b": RunState.FAILED, "c": None, "d": RunState.COMPLETED}}
    assert told(run, dependencies=latest) == "dependencies: b (FAILED), c (no run yet)"
    assert told(run, dependencies=latest, names_others=False) == "dependencies: 2 of its dependencies"


def test_of_many_runs_a_few_are_named() -> None:
    many = tuple(Holder(f"occ_{n}", "a", RunState.RUNNING) for n in range(5))
    found = told(needing("x", max_concurrent=5), nodes=[NODE], running={"a": many}, names_others=False)
    assert found is not None
    assert found.endswith("occ_2 of a, RUNNING and 2 more)")


def test_other_abilities_than_handlers_are_told_in_words() -> None:
    found = lacking_node(Requirements(frozenset({"external ", "connection crm "})), [NODE])
    assert found is not None
    assert found.detail == 'no live node has the connection "crm", none may start programs'
