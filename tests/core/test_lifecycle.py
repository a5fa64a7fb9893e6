"""Every state beside every other: what may follow what is written out here a second time, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

import pytest

from horae.core.run.lifecycle import (
    ATTEMPTS,
    FAILURES,
    MACHINES,
    RUNS,
    TASK_RUNS,
    AttemptState,
    JobState,
    RunState,
    StateMachine,
    TaskState,
    fold,
)
from horae.errors import IllegalTransition

RUN_BIRTHS = {"PENDING", "QUEUED", "RUNNING", "SKIPPED", "MISSED", "UNSCHEDULABLE"}
RUN_MOVES = {
    "PENDING": {"RUNNING", "QUEUED", "CANCELLED", "SKIPPED", "MISSED", "FAILED"},
    "QUEUED": {"PENDING", "CANCELLED", "SKIPPED", "MISSED"},
    "RUNNING": {"COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED", "FAILED_STALE", "PENDING"},
    "COMPLETED": set(),
    "COMPLETED_WITH_ERRORS": set(),
    "FAILED": set(),
    "FAILED_STALE": set(),
    "CANCELLED": set(),
    "SKIPPED": set(),
    "MISSED": set(),
    "UNSCHEDULABLE": set(),
}
# A task waits (again, for a retry), runs, or has ended; one that waits ends when its run does without it.
TASK_BIRTHS = {"PENDING", "RUNNING", "SKIPPED"}
TASK_MOVES = {
    "PENDING": {"RUNNING", "SKIPPED", "CANCELLED", "FAILED"},
    "RUNNING": {"SUCCESS", "FAILED", "TIMEOUT", "CANCELLED", "PENDING"},
    "SUCCESS": set(),
    "FAILED": set(),
    "TIMEOUT": set(),
    "CANCELLED": set(),
    "SKIPPED": set(),
}
# An attempt is one try: it never waits twice, and it is lost with its worker whether or not it had begun.
ATTEMPT_BIRTHS = {"PENDING", "RUNNING"}
ATTEMPT_MOVES = {
    "PENDING": {"RUNNING", "CANCELLED", "LOST"},
    "RUNNING": {"SUCCESS", "FAILED", "TIMEOUT", "CANCELLED", "LOST"},
    "SUCCESS": set(),
    "FAILED": set(),
    "TIMEOUT": set(),
    "CANCELLED": set(),
    "LOST": set(),
}
EXPECTED: tuple[tuple[StateMachine, set[str], dict[str, set[str]]], ...] = (
    (RUNS, RUN_BIRTHS, RUN_MOVES),
    (TASK_RUNS, TASK_BIRTHS, TASK_MOVES),
    (ATTEMPTS, ATTEMPT_BIRTHS, ATTEMPT_MOVES),
)

each_machine = pytest.mark.parametrize(
    ("machine", "births", "moves"), EXPECTED, ids=[machine.name for machine, _, _ in EXPECTED]
)


def every_pair() -> Iterator[tuple[StateMachine, str | None, str, bool]]:
    for machine, births, moves in EXPECTED:
        for after in moves:
            yield machine, None, after, after in births
        for before, after in product(moves, repeat=2):
            yield machine, before, after, after in moves[before]


PAIRS = tuple(every_pair())
LEGAL = [(machine, before, after) for machine, before, after, legal in PAIRS if legal]
ILLEGAL = [(machine, before, after) for machine, before, after, legal in PAIRS if not legal]


def named(pairs: list[tuple[StateMachine, str | None, str]]) -> list[str]:
    return [f"{machine.name}: {before or 'birth'} to {after}" for machine, before, after in pairs]


def test_there_are_three_machines_and_they_know_exactly_the_states_of_their_rows() -> None:
    assert MACHINES == (RUNS, TASK_RUNS, ATTEMPTS)
    assert [machine.name for machine in MACHINES] == ["run", "task run", "attempt"]
    assert set(RUNS.states) == set(RunState) == set(RUN_MOVES)
    assert set(TASK_RUNS.states) == set(TaskState) == set(TASK_MOVES)
    assert set(ATTEMPTS.states) == set(AttemptState) == set(ATTEMPT_MOVES)


def test_a_task_run_may_be_skipped_and_an_attempt_may_be_lost_but_not_the_other_way_round() -> None:
    assert set(TaskState) - set(AttemptState) == {"SKIPPED"}
    assert set(AttemptState) - set(TaskState) == {"LOST"}


def test_a_job_is_enabled_paused_or_disabled() -> None:
    assert [state.value for state in JobState] == ["ENABLED", "PAUSED", "DISABLED"]


@pytest.mark.parametrize(("machine", "before", "after"), LEGAL, ids=named(LEGAL))
def test_a_move_in_the_table_is_allowed(machine: StateMachine, before: str | None, after: str) -> None:
    assert machine.allows(before, after)
    machine.check(before, after)


@pytest.mark.parametrize(("machine", "before", "after"), ILLEGAL, ids=named(ILLEGAL))
def test_a_move_outside_the_table_is_refused_and_changes_nothing(
    machine: StateMachine, before: str | None, after: str
) -> None:
    table = {state: set(onward) for state, onward in machine.moves.items()}
    assert not machine.allows(before, after)
    with pytest.raises(IllegalTransition, match=f'"{after}"') as caught:
        machine.check(before, after)
    assert caught.value.details == {"machine": machine.name, "before": before, "after": after}
    assert {state: set(onward) for state, onward in machine.moves.items()} == table


@each_machine
def test_the_whole_table_is_the_one_written_here(
    machine: StateMachine, births: set[str], moves: dict[str, set[str]]
) -> None:
    assert set(machine.births) == births
    assert {state: set(onward) for state, onward in machine.moves.items()} == moves


@each_machine
def test_terminal_states_are_exactly_those_without_moves(
    machine: StateMachine, births: set[str], moves: dict[str, set[str]]
) -> None:
    assert machine.terminal == {state for state, onward in moves.items() if not onward}
    for state in machine.terminal:
        with pytest.raises(IllegalTransition) as caught:
            machine.check(state, "PENDING")
        assert caught.value.hint == f"Allowed: none, {state} is terminal."


@each_machine
def test_every_state_can_be_reached_and_every_row_can_end(
    machine: StateMachine, births: set[str], moves: dict[str, set[str]]
) -> None:
    def reached(begin: set[str]) -> set[str]:
        found, fringe = set(begin), list(begin)
        while fringe:
            onward = machine.moves[fringe.pop()] - found
            found |= onward
            fringe += onward
        return found

    assert reached(set(machine.births)) == set(machine.states)
    assert all(reached({state}) & machine.terminal for state in machine.states)


@each_machine
def test_a_state_that_does_not_exist_has_no_moves(
    machine: StateMachine, births: set[str], moves: dict[str, set[str]]
) -> None:
    for before, after in ((None, "DONE"), ("PENDING", "DONE"), ("DONE", "PENDING"), ("PENDING", "pending")):
        assert not machine.allows(before, after)
        with pytest.raises(IllegalTransition):
            machine.check(before, after)


def test_the_refusal_lists_what_would_be_allowed() -> None:
    with pytest.raises(IllegalTransition, match='A run cannot go from "QUEUED" to "RUNNING"') as caught:
        RUNS.check("QUEUED", "RUNNING")
    assert caught.value.hint == "Allowed: CANCELLED, MISSED, PENDING, SKIPPED."
    with pytest.raises(IllegalTransition, match='attempt cannot be born "LOST"'):
        ATTEMPTS.check(None, "LOST")


def test_the_tables_cannot_be_changed_at_run_time() -> None:
    for machine in MACHINES:
        with pytest.raises(TypeError):
            machine.moves["PENDING"] = frozenset()  # type: ignore[index]  # refused at run time too
        with pytest.raises(AttributeError):
            machine.births = frozenset()  # type: ignore[misc]  # bound now, or refused at run time


ENDS = (TaskState.SUCCESS, TaskState.FAILED, TaskState.TIMEOUT, TaskState.CANCELLED, TaskState.SKIPPED)
STRATEGIES = ("fail_fast", "continue", "retry_on_failure")
Ended = tuple[TaskState, str]


def expected_fold(tasks: tuple[Ended, ...]) -> str:
    """The rule as one would say it: the worst thing that happened names the run."""
    severity = 0
    for state, strategy in tasks:
        if state in (TaskState.FAILED, TaskState.TIMEOUT):
            severity = max(severity, 2 if strategy == "continue" else 3)
        elif state is TaskState.CANCELLED:
            severity = max(severity, 1)
    return ("COMPLETED", "CANCELLED", "COMPLETED_WITH_ERRORS", "FAILED")[severity]


def test_a_run_folds_to_the_worst_of_its_tasks_for_every_combination_of_up_to_three() -> None:
    ended = tuple(product(ENDS, STRATEGIES))
    combinations: Iterator[tuple[Ended, ...]] = chain.from_iterable(product(ended, repeat=size) for size in range(4))
    for tasks in combinations:
        assert fold(tasks) == expected_fold(tasks), tasks
        assert fold(iter(tasks), cancelled=True) is RunState.CANCELLED, tasks


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([], "COMPLETED"),
        ([("SUCCESS", "fail_fast")], "COMPLETED"),
        ([("SUCCESS", "fail_fast"), ("SUCCESS", "continue")], "COMPLETED"),
        ([("FAILED", "continue"), ("SUCCESS", "fail_fast")], "COMPLETED_WITH_ERRORS"),
        ([("TIMEOUT", "continue"), ("SUCCESS", "fail_fast")], "COMPLETED_WITH_ERRORS"),
        ([("FAILED", "fail_fast"), ("SKIPPED", "fail_fast"), ("SUCCESS", "continue")], "FAILED"),
        ([("FAILED", "fail_fast"), ("CANCELLED", "fail_fast"), ("FAILED", "continue")], "FAILED"),
        ([("TIMEOUT", "retry_on_failure"), ("SKIPPED", "fail_fast")], "FAILED"),
        ([("SUCCESS", "fail_fast"), ("CANCELLED", "fail_fast")], "CANCELLED"),
    ],
)
def test_the_outcomes_people_know(tasks: list[tuple[str, str]], expected: str) -> None:
    assert fold((TaskState(state), strategy) for state, strategy in tasks) == expected


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RUNNING])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_cannot_end_while_a_task_has_not(state: TaskState, cancelled: bool) -> None:
    with pytest.raises(IllegalTransition, match=f"while a task is {state}"):
        fold([(TaskState.SUCCESS, "fail_fast"), (state, "continue")], cancelled=cancelled)


def test_only_a_failure_and_a_timeout_count_as_failures() -> None:
    assert {state.value for state in FAILURES} == {"FAILED", "TIMEOUT"}


def test_whatever_a_run_folds_to_is_an_end_that_a_running_run_may_have() -> None:
    for tasks in product(product(ENDS, STRATEGIES), repeat=2):
        assert RUNS.allows("RUNNING", fold(tasks))
        assert fold(tasks) in RUNS.terminal
