"""What a run waits for, as a pure rule: the reasons in their order, and what a reader may know of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from horae.core.run.lifecycle import RunState
from horae.core.run.waiting_reason import (
    HoldingRun,
    LiveNode,
    PoolUse,
    Requirements,
    WaitFacts,
    WaitingRun,
    lacking_node,
    wait_of,
)
from horae.core.window.decision import decide
from horae.core.window.window import Window

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PENDING = WaitingRun("occ_1", "a", RunState.PENDING, None, NOW, NOW)
NODE = LiveNode("n", frozenset({"x"}), 1)
OTHERS = (HoldingRun("occ_2", "b", RunState.RUNNING), HoldingRun("occ_3", "c", RunState.RUNNING))
LATER = NOW + timedelta(minutes=1)
PLAIN = Requirements(timezone="UTC")
"""Of a job without a window."""


def told(run: WaitingRun, **around: object) -> str | None:
    found = wait_of(run, WaitFacts(NOW, **around))  # type: ignore[arg-type]
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
        (
            replace(PENDING, not_before=LATER, stored="window", chosen_time=LATER, scheduled_time=NOW, requires=PLAIN),
            "rescheduled: somebody moved it to 2026-01-01T12:01:00Z",
        ),
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


def test_a_run_waits_for_its_window_where_that_chose_its_time_and_else_for_the_time_it_was_moved_to() -> None:
    window = Window.after("1h")
    chosen = decide(window.request("a", NOW, "UTC")).chosen_time
    assert chosen is not None
    assert chosen > LATER
    run = replace(PENDING, stored="window", scheduled_time=NOW, requires=Requirements(window=window, timezone="UTC"))

    def reason(at: datetime, **other: object) -> str:
        found = wait_of(replace(run, not_before=at, chosen_time=at, **other), WaitFacts(NOW))  # type: ignore[arg-type]
        assert found is not None
        return str(found.reason)

    assert reason(chosen) == "window"
    assert reason(LATER) == reason(NOW + timedelta(hours=5)) == "rescheduled"
    # A slot that a version before bore ahead of its time waits for that; nobody moved it.
    assert reason(LATER, scheduled_time=LATER, requires=PLAIN) == "window"
    assert reason(LATER, requires=Requirements()) == "window"


@pytest.mark.parametrize(
    ("run", "also"),
    [
        (replace(PENDING, not_before=LATER, stored="retry"), "retry: retry 1 at 2026-01-01T12:01:00Z"),
        (replace(PENDING, not_before=LATER, stored="window"), "window: 2026-01-01T12:01:00Z, chosen within its window"),
        (replace(PENDING, not_before=LATER), "rescheduled: not before 2026-01-01T12:01:00Z"),
        (replace(PENDING, not_before=None, stored="dependencies"), "dependencies: runs of the jobs that it depends on"),
        (replace(PENDING, state=RunState.QUEUED), "previous_run: the run of its job before it"),
    ],
)
def test_a_handler_that_no_live_node_has_is_named_before_what_else_is_waited_for(run: WaitingRun, also: str) -> None:
    lacking = replace(run, requires=Requirements(frozenset({"gone"})))
    assert told(lacking, nodes=[NODE]) == f'handler: no live node has the task "gone"; it also waits for {also}'
    assert told(replace(run, requires=Requirements(frozenset({"x"}))), nodes=[NODE]) == also
    assert told(lacking, nodes=[LiveNode("n")]) == also, "a node that has not reported all of its handlers may have it"
    assert told(lacking) == also


@pytest.mark.parametrize("stored", ["registration", "previous_run"])
def test_a_registration_and_an_own_thread_are_waited_for_whatever_nodes_have(stored: str) -> None:
    found = told(replace(needing("gone"), stored=stored), nodes=[NODE])
    assert found is not None
    assert found.startswith(f"{stored}: ")


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
    around = {"nodes": [NODE], "pools": {"db": PoolUse(2, OTHERS)}}
    assert told(run, **around) == 'pool: the pool "db" is full (2 of 2: occ_2 of b, RUNNING; occ_3 of c, RUNNING)'
    assert told(run, **around, names_others=False) == 'pool: the pool "db" is full (2 of 2)'
    assert told(run, nodes=[NODE], pools={"db": PoolUse(3, OTHERS)}) is None


def test_dependencies_are_named_to_readers_who_may_know_them() -> None:
    run = replace(needing("x", depends_on=("b", "c")), stored="dependencies")
    latest = {"occ_1": {"b": RunState.FAILED, "c": None, "d": RunState.COMPLETED}}
    assert told(run, dependencies=latest) == "dependencies: b (FAILED), c (no run yet)"
    until = datetime(2026, 1, 1, 4, 30, tzinfo=UTC)
    assert told(run, dependencies=latest, give_ups={run.run_id: until}) == (
        "dependencies: b (FAILED), c (no run yet); SKIPPED at 2026-01-01T04:30:00Z, unless COMPLETED by then"
    )
    assert told(run, dependencies=latest, names_others=False) == "dependencies: 2 of its dependencies"


def test_of_many_runs_a_few_are_named() -> None:
    many = tuple(HoldingRun(f"occ_{n}", "a", RunState.RUNNING) for n in range(5))
    found = told(needing("x", max_concurrent=5), nodes=[NODE], running={"a": many}, names_others=False)
    assert found is not None
    assert found.endswith("occ_2 of a, RUNNING and 2 more)")


def test_other_abilities_than_handlers_are_told_in_words() -> None:
    found = lacking_node(Requirements(frozenset({"external ", "connection crm "})), [NODE])
    assert found is not None
    assert found.detail == 'no live node has the connection "crm", none may start programs'


def test_a_program_waits_for_its_sandbox_only_where_nothing_else_is_missing_and_no_node_has_it() -> None:
    program = Requirements(frozenset({"external "}))
    unsafe = LiveNode("b", frozenset({"tidy"}), 1, "bubblewrap (bwrap) is not installed")
    assert lacking_node(program, [NODE, unsafe]) == ("sandbox", "node b: bubblewrap (bwrap) is not installed")
    more = lacking_node(program, [unsafe, replace(unsafe, name="c")])
    assert more is not None
    assert more.detail.startswith("node b (and 1 more): ")
    assert lacking_node(program, [unsafe, LiveNode("c", frozenset({"external "}))]) is None
    both = lacking_node(Requirements(frozenset({"external ", "gone"})), [unsafe])
    assert both is not None
    assert both.reason == "handler"
