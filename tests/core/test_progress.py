"""How a run goes on: what is written and started after attempts end, a hand-back, a loss, a request to stop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.job.definition import Settings, effective
from horae.core.run.lifecycle import ATTEMPTS, RUNS, TASK_RUNS, AttemptState, RunState, TaskState
from horae.core.run.progress import Advance, EndedAttempt, TaskProgress, advance, first_starts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING, PENDING = TaskState.RUNNING, TaskState.PENDING


def went_on(tasks: list[TaskProgress], *ends: EndedAttempt, mode: str = "sequential", **asked: Any) -> Advance:
    settings = effective({"mode": mode, **asked.pop("settings", {})})
    return advance(tasks, settings, [settings] * 5, ends, NOW, spared=(), **asked)


def states(step: Advance) -> dict[str, TaskState]:
    return {task.name: task.state for task in step.tasks}


def test_the_only_task_that_succeeds_completes_the_run() -> None:
    step = went_on([TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.SUCCESS))
    assert (step.outcome, states(step), step.starts) == (RunState.COMPLETED, {"a": TaskState.SUCCESS}, ())


def test_the_next_task_of_a_sequence_starts_when_the_one_before_it_is_done() -> None:
    step = went_on(
        [TaskProgress(0, "a", RUNNING, 1), TaskProgress(1, "b", PENDING)], EndedAttempt(0, 1, AttemptState.SUCCESS)
    )
    assert (step.outcome, step.starts) == (None, ((1, 1),))


def test_a_failure_ends_what_has_not_started_and_names_the_culprit() -> None:
    step = went_on(
        [TaskProgress(0, "a", RUNNING, 1), TaskProgress(1, "b", PENDING)], EndedAttempt(0, 1, AttemptState.FAILED)
    )
    assert step.outcome is RunState.FAILED
    assert step.tasks[1].cancelled_by == "a"


def test_a_failure_stops_the_siblings_that_run() -> None:
    tasks = [TaskProgress(0, "a", RUNNING, 1), TaskProgress(1, "b", RUNNING, 1)]
    step = went_on(tasks, EndedAttempt(0, 1, AttemptState.FAILED), mode="parallel")
    assert (step.outcome, step.cancels) == (None, (1,))


def test_a_retry_that_has_to_wait_parks_the_run() -> None:
    settings = {"retry": {"max_retries": 1, "interval": "10s"}}
    step = went_on([TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.FAILED), settings=settings)
    assert step.park_until == NOW + timedelta(seconds=10)
    assert states(step) == {"a": PENDING}


def test_an_end_of_an_attempt_that_is_over_counts_for_nothing() -> None:
    step = went_on([TaskProgress(0, "a", RUNNING, 2)], EndedAttempt(0, 1, AttemptState.FAILED))
    assert step == Advance()


def test_what_is_handed_back_counts_as_no_try() -> None:
    step = went_on([TaskProgress(0, "a", RUNNING, 1), TaskProgress(1, "b", PENDING)], release=True)
    assert step.ends == (EndedAttempt(0, 1, AttemptState.CANCELLED),)
    assert (step.tasks[0].failures, step.tasks[0].lost, step.park_until) == (0, 0, NOW)


def test_what_was_stopped_to_be_handed_back_counts_as_no_try_either() -> None:
    running = [TaskProgress(0, "a", RUNNING, 1), TaskProgress(1, "b", PENDING)]
    assert went_on(running, EndedAttempt(0, 1, AttemptState.CANCELLED, "no disk"), release=True) == went_on(
        running, release=True
    )
    failed = went_on(running, EndedAttempt(0, 1, AttemptState.FAILED), release=True)
    assert failed.ends == (EndedAttempt(0, 1, AttemptState.FAILED),)
    stopped = went_on(running, EndedAttempt(0, 1, AttemptState.CANCELLED), release=True, stop="enough")
    assert (stopped.outcome, stopped.reason) == (RunState.CANCELLED, "enough")


def test_a_lost_attempt_is_tried_again_until_its_budget_is_used_up() -> None:
    again = went_on([TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.LOST), start=False)
    assert (again.park_until, again.outcome) == (NOW, None)
    over = went_on([TaskProgress(0, "a", RUNNING, 3, lost=2)], EndedAttempt(0, 3, AttemptState.LOST), start=False)
    assert over.outcome is RunState.FAILED
    once = {"delivery": "at_most_once"}
    stale = went_on(
        [TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.LOST), start=False, settings=once
    )
    assert stale.outcome is RunState.FAILED_STALE


def test_a_request_to_stop_that_comes_after_the_last_task_ended_comes_too_late() -> None:
    step = went_on([TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.SUCCESS), stop="cancelled")
    assert step.outcome is RunState.COMPLETED


@pytest.mark.parametrize("reason", ["timeout", "replaced", "by hand"])
def test_a_run_that_was_stopped_says_why(reason: str) -> None:
    step = went_on([TaskProgress(0, "a", RUNNING, 1)], EndedAttempt(0, 1, AttemptState.CANCELLED), stop=reason)
    assert (step.outcome, step.reason) == (RunState.CANCELLED, reason)


def test_a_run_begins_with_its_first_task_or_with_all() -> None:
    assert list(first_starts(3, "sequential")) == [0]
    assert list(first_starts(3, "parallel")) == [0, 1, 2]


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(
    st.lists(st.sampled_from(["fail_fast", "continue", "retry_on_failure"]), min_size=1, max_size=4),
    st.sampled_from(["sequential", "parallel"]),
    st.integers(0, 2),
    st.lists(st.sampled_from(["SUCCESS", "FAILED", "TIMEOUT", "LOST", "CANCELLED"]), min_size=60, max_size=60),
    st.sets(st.integers(0, 30), max_size=2),
)
def test_every_run_comes_to_an_end_by_moves_the_tables_allow(
    failures: list[str], mode: str, retries: int, fates: list[str], releases: set[int]
) -> None:
    job = effective({"mode": mode, "retry": {"max_retries": retries, "interval": 0}})
    own: list[Settings] = [effective(job.to_dict(), {"failure": failure}) for failure in failures]
    tasks = [TaskProgress(position, f"t{position}", PENDING) for position in range(len(failures))]
    spared = {place for place, failure in enumerate(failures) if failure == "continue"}
    step = advance(tasks, job, own, (), NOW, spared=spared)
    drawn = iter(fates)
    for turn in range(60):
        for before, after in ((tasks[each.position], each) for each in step.tasks):
            # A retry without a wait is RUNNING before and after, one attempt further.
            assert before.state is after.state or TASK_RUNS.allows(before.state, after.state)
            tasks[after.position] = after
        assert all(ATTEMPTS.allows("RUNNING", end.state) for end in step.ends)
        if step.outcome is not None:
            assert RUNS.allows("RUNNING", step.outcome)
            assert all(task.state in TASK_RUNS.terminal for task in tasks)
            return
        running = [task for task in tasks if task.state is RUNNING]
        assert bool(running) != (step.park_until is not None)
        if turn in releases and running:
            step = advance(tasks, job, own, (), NOW, spared=spared, release=True)
            continue
        ends = [
            EndedAttempt(task.position, task.attempts, AttemptState(next(drawn, "SUCCESS"))) for task in running[:1]
        ]
        step = advance(tasks, job, own, ends, NOW, spared=spared)
    raise AssertionError("the run never ended")
