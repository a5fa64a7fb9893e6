"""Dependencies: which runs of another job count, how long a run waits for them, and graphs that could never start."""

from __future__ import annotations

from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import HOURLY, at
from tests.tier import examples

from horae import Cron, Every, Once
from horae.core.job.dependencies import (
    DependencyWindow,
    check_graph,
    dependency_window,
    find_cycle,
    judge,
    unmet,
)
from horae.core.run.lifecycle import RunState
from horae.errors import DependencyCycle, InvalidDefinition, InvalidTime

law = settings(derandomize=True, deadline=None, max_examples=examples(200))


def test_runs_count_from_after_the_previous_slot_up_to_this_one() -> None:
    window = dependency_window(HOURLY, at("10:00"))
    assert window == DependencyWindow(after=at("09:00"), until=at("10:00"), give_up=at("11:00"))


def test_the_slots_before_and_after_are_those_of_the_schedule_not_a_period() -> None:
    window = dependency_window(Cron("0 9,17 * * MON-FRI"), at("09:00"))
    assert window.after == at("17:00") - timedelta(days=3)
    assert window.give_up == at("17:00")


def test_the_first_slot_has_no_earlier_bound_and_the_last_no_end_to_its_wait() -> None:
    first = dependency_window(Every("1h", start=at("10:00")), at("10:00"))
    assert (first.after, first.give_up) == (None, at("11:00"))
    last = dependency_window(Every("1h", start=at("08:00"), end=at("10:30")), at("10:00"))
    assert (last.after, last.give_up) == (at("09:00"), None)
    assert dependency_window(Once(at("10:00")), at("10:00")) == DependencyWindow(None, at("10:00"), None)


def test_a_naive_slot_is_refused() -> None:
    with pytest.raises(InvalidTime):
        dependency_window(HOURLY, at("10:00").replace(tzinfo=None))


@pytest.mark.parametrize("state", [None, *RunState])
def test_only_a_completed_run_meets_a_dependency(state: RunState | None) -> None:
    expected = () if state is RunState.COMPLETED else ("extract",)
    assert unmet({"extract": state}) == expected


def test_what_is_unmet_is_named_in_order() -> None:
    latest = {"c": RunState.FAILED, "a": None, "b": RunState.COMPLETED, "d": RunState.COMPLETED_WITH_ERRORS}
    assert unmet(latest) == ("a", "c", "d")
    assert unmet({}) == ()


@pytest.mark.parametrize(
    ("latest", "now", "expected"),
    [
        ({"a": RunState.COMPLETED}, "10:00", None),
        ({"a": RunState.COMPLETED}, "23:00", None),
        ({}, "10:00", None),
        ({"a": None}, "10:00", RunState.PENDING),
        ({"a": RunState.RUNNING}, "10:59:59.999999", RunState.PENDING),
        ({"a": RunState.FAILED}, "10:30", RunState.PENDING),
        ({"a": RunState.COMPLETED, "b": None}, "10:30", RunState.PENDING),
        ({"a": RunState.RUNNING}, "11:00", RunState.SKIPPED),
        ({"a": None}, "12:00", RunState.SKIPPED),
    ],
)
def test_a_run_waits_until_its_next_slot_and_is_skipped_then(
    latest: dict[str, RunState | None], now: str, expected: RunState | None
) -> None:
    assert judge(latest, dependency_window(HOURLY, at("10:00")), at(now)) is expected


def test_without_a_next_slot_a_run_waits_for_as_long_as_it_takes() -> None:
    window = dependency_window(Once(at("10:00")), at("10:00"))
    assert judge({"a": RunState.RUNNING}, window, at("10:00") + timedelta(days=9999)) is RunState.PENDING


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": ["a"]}, ("a", "a")),
        ({"a": ["b"], "b": ["a"]}, ("a", "b", "a")),
        ({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b"]}, ("b", "c", "d", "b")),
        ({"x": ["y"], "y": ["x"], "m": ["n"], "n": ["m"]}, ("m", "n", "m")),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["a"]}, ("a", "b", "d", "a")),
        ({"z": ["a"], "a": [], "b": ["b"]}, ("b", "b")),
    ],
)
def test_a_cycle_is_named_from_beginning_to_beginning(graph: dict[str, list[str]], cycle: tuple[str, ...]) -> None:
    assert find_cycle(graph) == cycle
    with pytest.raises(DependencyCycle) as caught:
        check_graph(graph)
    assert caught.value.cycle == cycle
    assert str(caught.value) == f"Dependencies form a cycle: {' -> '.join(cycle)}"


@pytest.mark.parametrize(
    "graph",
    [
        {},
        {"a": []},
        {"a": ["b"], "b": []},
        {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []},
        {"a": ["b", "b"], "b": []},
    ],
)
def test_what_has_no_cycle_is_accepted(graph: dict[str, list[str]]) -> None:
    assert find_cycle(graph) is None
    check_graph(graph)


def test_a_chain_as_long_as_a_catalog_is_walked_without_recursion() -> None:
    chain = {f"job {number:05d}": [f"job {number + 1:05d}"] for number in range(10_000)}
    chain["job 10000"] = []
    check_graph(chain)
    chain["job 10000"] = ["job 05000"]
    found = find_cycle(chain)
    assert found is not None
    assert (len(found), found[0], found[-1]) == (5002, "job 05000", "job 05000")


def test_a_job_that_does_not_exist_is_named_with_the_one_that_asks_for_it() -> None:
    with pytest.raises(InvalidDefinition, match='Job "load" depends on "extrakt", which does not exist'):
        check_graph({"load": ["extrakt"], "extract": []})


names = st.sampled_from("abcdefg")


@law
@given(st.dictionaries(names, st.lists(names, max_size=3), max_size=7))
def test_a_cycle_is_found_exactly_where_there_is_no_order_to_run_in(graph: dict[str, list[str]]) -> None:
    whole = {name: [other for other in graph.get(name, []) if other in graph] for name in graph}
    try:
        TopologicalSorter(whole).prepare()
        ordered = True
    except CycleError:
        ordered = False
    found = find_cycle(whole)
    assert (found is None) == ordered
    if found is not None:
        assert found[0] == found[-1]
        assert len(set(found)) == len(found) - 1
        assert all(after in whole[before] for before, after in pairwise(found))
