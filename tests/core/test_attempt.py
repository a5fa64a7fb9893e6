"""After an attempt: done, again, or given up; and what follows for the other tasks, up to the end of every run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_lifecycle import expected_fold
from tests.core.test_occurrence import at
from tests.tier import examples

from horae import Retry
from horae.core.job.definition import Settings, effective, parse_settings
from horae.core.run.attempt import Step, TaskOutcome, TaskView, after_stop, next_step, settle
from horae.core.run.lifecycle import TASK_RUNS, AttemptState, TaskState
from horae.errors import IllegalTransition, InvalidTime

NOW = at("10:00")
ID = "attempt_5f3c1f0e-0000-5000-8000-000000000001"
law = settings(derandomize=True, deadline=None, max_examples=examples(200))


def settled(outcome: str, *, failures: int = 0, lost: int = 0, **policies: Any) -> TaskOutcome:
    chosen = effective(parse_settings(policies))
    return settle(AttemptState(outcome), failures=failures, lost=lost, settings=chosen, attempt_id=ID, now=NOW)


def test_a_success_ends_the_task_whatever_came_before() -> None:
    for failures, lost in ((0, 0), (5, 0), (0, 9)):
        assert settled("SUCCESS", failures=failures, lost=lost) == TaskOutcome(TaskState.SUCCESS)


def test_a_cancelled_attempt_is_not_tried_again() -> None:
    assert settled("CANCELLED", retry=Retry(None, "1m")) == TaskOutcome(TaskState.CANCELLED)


@pytest.mark.parametrize("outcome", ["FAILED", "TIMEOUT"])
def test_without_retries_the_first_failure_is_the_end(outcome: str) -> None:
    assert settled(outcome, failures=1) == TaskOutcome(TaskState(outcome))


@pytest.mark.parametrize("outcome", ["FAILED", "TIMEOUT"])
def test_three_retries_are_three_tries_beyond_the_first(outcome: str) -> None:
    retry = Retry(3, "1m", factor=2.0)
    waits = [settled(outcome, failures=count, retry=retry).retry_at for count in (1, 2, 3)]
    assert waits == [at("10:01"), at("10:02"), at("10:04")]
    assert settled(outcome, failures=3, retry=retry).state is TaskState.PENDING
    end = settled(outcome, failures=4, retry=retry)
    assert end == TaskOutcome(TaskState(outcome), reason="gave up after 4 attempts")


@pytest.mark.parametrize(
    ("error", "failures", "reason"),
    [
        ("ValueError: no such table", 3, "ValueError: no such table (after 3 attempts)"),
        ("ValueError: no such table", 1, "ValueError: no such table"),
        ("\n  first line\nsecond", 2, "first line (after 2 attempts)"),
        ("x" * 600, 2, f"{'x' * 500}… (after 2 attempts)"),
        (None, 2, "gave up after 2 attempts"),
        (" ", 1, None),
    ],
)
def test_a_task_that_is_given_up_says_its_last_error_first(
    error: str | None, failures: int, reason: str | None
) -> None:
    options = {"settings": Settings(), "attempt_id": ID, "now": NOW}
    assert settle(AttemptState.FAILED, error, failures=failures, lost=0, **options).reason == reason  # type: ignore[arg-type]


def test_retries_without_number_go_on() -> None:
    found = settled("FAILED", failures=10_000, retry=Retry(None, "1m"))
    assert (found.state, found.retry_at) == (TaskState.PENDING, at("10:01"))


def test_a_retry_of_its_own_jitter_waits_for_what_its_attempt_says() -> None:
    retry = Retry(3, "1m", jitter=0.5)
    assert settled("FAILED", failures=1, retry=retry).retry_at == NOW + retry.delay(0, ID)


def test_a_lost_attempt_is_tried_again_at_once_under_at_least_once() -> None:
    for lost in (1, 2):
        assert settled("LOST", lost=lost) == TaskOutcome(TaskState.PENDING, NOW, "lost")


def test_losses_have_a_budget_of_their_own() -> None:
    assert settled("LOST", lost=3) == TaskOutcome(TaskState.FAILED, reason="lost 3 times")
    assert settled("LOST", lost=2, failures=99).state is TaskState.PENDING
    assert settled("LOST", lost=3, retry=Retry(None, "1m")).state is TaskState.FAILED
    assert settled("LOST", lost=1, max_lost=1).state is TaskState.FAILED
    assert settled("LOST", lost=10**6, max_lost=None).state is TaskState.PENDING
    assert settled("FAILED", failures=1, lost=99, retry=Retry(1, "1m")).state is TaskState.PENDING


@pytest.mark.parametrize("max_lost", [1, 3, None])
def test_a_lost_attempt_is_the_end_under_at_most_once(max_lost: int | None) -> None:
    found = settled("LOST", lost=1, delivery="at_most_once", max_lost=max_lost, retry=Retry(5, "1m"))
    assert (found.state, found.retry_at) == (TaskState.FAILED, None)


@pytest.mark.parametrize("outcome", ["PENDING", "RUNNING"])
def test_an_attempt_that_has_not_ended_cannot_be_settled(outcome: str) -> None:
    with pytest.raises(IllegalTransition, match=f"that is {outcome} has not ended"):
        settled(outcome)


def test_a_naive_time_is_refused() -> None:
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(InvalidTime):
        settle(AttemptState.LOST, failures=0, lost=1, settings=Settings(), attempt_id=ID, now=naive)
    with pytest.raises(InvalidTime):
        next_step([], mode="parallel", now=naive)


_TASK = re.compile(r"(\w+)=([A-Z]+)(?:/(\w+))?(?:\*(\d+))?(?:@([\d:]+))?")


def tasks(text: str) -> list[TaskView]:
    """Tasks from `name=STATE/strategy*attempts@retry_at`, where all but name and state may be left out. `inherited` is
    continue, said by the job and not by the task."""
    found = []
    for word in text.split():
        match = _TASK.fullmatch(word)
        assert match is not None, word
        name, state, failure, attempts, retry_at = match.groups()
        usual = 0 if state in ("PENDING", "SKIPPED") else 1
        found.append(
            TaskView(
                name,
                TaskState(state),
                "continue" if failure == "inherited" else failure or "fail_fast",
                int(attempts) if attempts else usual,
                at(retry_at) if retry_at else None,
                failure == "continue",
            )
        )
    return found


def in_words(step: Step) -> str:
    words = [
        f"{verb} {' '.join(names)}"
        for verb, names in (("start", step.start), ("cancel", step.cancel), ("skip", step.skip))
        if names
    ]
    if step.park_until is not None:
        words.append(f"park until {step.park_until:%H:%M}")
    if step.outcome is not None:
        words.append(str(step.outcome))
    return ", ".join(words) or "wait"


@pytest.mark.parametrize(
    ("mode", "state", "expected"),
    [
        # The ordinary course.
        ("sequential", "a=PENDING b=PENDING c=PENDING", "start a"),
        ("sequential", "a=RUNNING b=PENDING", "wait"),
        ("sequential", "a=SUCCESS b=PENDING c=PENDING", "start b"),
        ("sequential", "a=SUCCESS b=SUCCESS", "COMPLETED"),
        ("parallel", "a=PENDING b=PENDING c=PENDING", "start a b c"),
        ("parallel", "a=RUNNING b=RUNNING c=SUCCESS", "wait"),
        ("parallel", "a=RUNNING b=PENDING", "start b"),
        ("parallel", "a=SUCCESS b=SUCCESS", "COMPLETED"),
        ("sequential", "", "COMPLETED"),
        ("parallel", "", "COMPLETED"),
        # fail_fast: cancel who runs or retries, skip who has not started.
        ("sequential", "a=FAILED b=PENDING c=PENDING", "skip b c"),
        ("sequential", "a=FAILED b=SKIPPED c=SKIPPED", "FAILED"),
        ("sequential", "a=TIMEOUT b=PENDING", "skip b"),
        ("parallel", "a=FAILED b=RUNNING c=PENDING", "cancel b, skip c"),
        ("parallel", "a=TIMEOUT b=PENDING*2@10:05 c=SUCCESS", "cancel b"),
        ("parallel", "a=FAILED b=CANCELLED c=SKIPPED", "FAILED"),
        # continue: the others go on.
        ("sequential", "a=FAILED/continue b=PENDING", "start b"),
        ("sequential", "a=FAILED/continue b=SUCCESS", "COMPLETED_WITH_ERRORS"),
        ("parallel", "a=FAILED/continue b=RUNNING c=RUNNING", "wait"),
        ("parallel", "a=TIMEOUT/continue b=SUCCESS", "COMPLETED_WITH_ERRORS"),
        ("parallel", "a=FAILED/continue b=FAILED c=RUNNING/continue", "wait"),
        # The clean-up must run: a task set to continue is spared by the failures of others.
        ("sequential", "a=FAILED b=PENDING cleanup=PENDING/continue", "start cleanup, skip b"),
        ("sequential", "a=FAILED b=SKIPPED cleanup=RUNNING/continue", "wait"),
        ("sequential", "a=FAILED b=SKIPPED cleanup=SUCCESS/continue", "FAILED"),
        ("sequential", "a=FAILED b=SKIPPED cleanup=FAILED/continue", "FAILED"),
        ("sequential", "a=FAILED first=PENDING/continue b=PENDING last=PENDING/continue", "start first, skip b"),
        ("parallel", "a=FAILED b=RUNNING cleanup=RUNNING/continue", "cancel b"),
        ("parallel", "a=FAILED b=RUNNING cleanup=PENDING/continue", "start cleanup, cancel b"),
        ("parallel", "a=FAILED cleanup=PENDING/continue*1@10:05", "park until 10:05"),
        # One that has it from its job is not: a sibling that says fail_fast stops it.
        ("sequential", "a=FAILED b=PENDING/inherited cleanup=PENDING/continue", "start cleanup, skip b"),
        ("parallel", "a=FAILED b=RUNNING/inherited c=PENDING/inherited", "cancel b, skip c"),
        ("parallel", "a=FAILED/retry_on_failure b=RUNNING/inherited", "cancel b"),
        ("parallel", "a=FAILED/inherited b=RUNNING/inherited c=PENDING/inherited", "start c"),
        # retry_on_failure: as fail_fast, but nobody starts while it is being retried.
        ("sequential", "a=PENDING/retry_on_failure*1@10:05 b=PENDING", "park until 10:05"),
        ("sequential", "a=FAILED/retry_on_failure b=PENDING", "skip b"),
        ("parallel", "a=PENDING/retry_on_failure*1@10:05 b=PENDING", "park until 10:05"),
        ("parallel", "a=PENDING/retry_on_failure*1@09:59 b=PENDING", "start a"),
        ("parallel", "a=RUNNING/retry_on_failure*2 b=PENDING", "wait"),
        ("parallel", "a=RUNNING/retry_on_failure*1 b=PENDING", "start b"),
        ("parallel", "a=RUNNING/retry_on_failure*2 b=PENDING*1@10:00", "start b"),
        ("parallel", "a=SUCCESS/retry_on_failure*2 b=PENDING", "start b"),
        ("parallel", "a=FAILED/retry_on_failure*3 b=RUNNING c=PENDING/continue", "start c, cancel b"),
        ("parallel", "a=PENDING*1@10:05 b=PENDING", "start b"),
        # Waiting for retries: the slot is given back only when nothing runs and nothing can start.
        ("sequential", "a=PENDING*1@10:05 b=PENDING", "park until 10:05"),
        ("sequential", "a=PENDING*1@10:00 b=PENDING", "start a"),
        ("parallel", "a=PENDING*1@10:05 b=PENDING*1@10:03", "park until 10:03"),
        ("parallel", "a=PENDING*1@10:05 b=RUNNING", "wait"),
        ("parallel", "a=PENDING*1@10:05 b=SUCCESS", "park until 10:05"),
        ("parallel", "a=PENDING*1@09:00 b=PENDING*1@10:03", "start a"),
    ],
)
def test_the_next_step_of_a_run(mode: str, state: str, expected: str) -> None:
    assert in_words(next_step(tasks(state), mode=mode, now=NOW)) == expected


@pytest.mark.parametrize(
    ("mode", "state", "expected"),
    [
        ("sequential", "a=RUNNING b=PENDING cleanup=PENDING/continue", "cancel a, skip b cleanup"),
        ("parallel", "a=RUNNING b=RUNNING/continue c=PENDING/continue", "cancel a b, skip c"),
        ("parallel", "a=PENDING/continue*1@10:05", "cancel a"),
        ("parallel", "a=PENDING/retry_on_failure*1@09:00 b=SUCCESS", "cancel a"),
        ("sequential", "a=SUCCESS b=CANCELLED cleanup=SKIPPED/continue", "CANCELLED"),
        ("sequential", "a=FAILED b=SKIPPED", "CANCELLED"),
    ],
)
def test_a_cancel_or_the_execution_timeout_stops_every_task(mode: str, state: str, expected: str) -> None:
    assert in_words(next_step(tasks(state), mode=mode, now=NOW, cancelled=True)) == expected


@dataclass
class Simulation:
    """One run, driven to its end with outcomes by chance; looks over the shoulder of every step."""

    views: list[TaskView]
    mode: str
    policies: dict[str, Settings]
    chance: Random
    cancel_after: int
    now: datetime = NOW
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.failures = {view.name: 0 for view in self.views}
        self.lost = dict(self.failures)

    def view(self, name: str) -> TaskView:
        return next(view for view in self.views if view.name == name)

    def put(self, name: str, state: TaskState, **changes: Any) -> None:
        TASK_RUNS.check(self.view(name).state, state)
        self.views = [replace(view, state=state, **changes) if view.name == name else view for view in self.views]

    def finish(self) -> str:
        for count in range(2000):
            self.cancelled = self.cancelled or count >= self.cancel_after
            step = next_step(self.views, mode=self.mode, now=self.now, cancelled=self.cancelled)
            if step.outcome is not None:
                return step.outcome
            self.follow(step)
        raise AssertionError("the run never ends")

    def follow(self, step: Step) -> None:
        self.check(step)
        for name in step.skip:
            self.put(name, TaskState.SKIPPED)
        for name in step.start:
            self.put(name, TaskState.RUNNING, attempts=self.view(name).attempts + 1, retry_at=None)
        for name in step.cancel:
            # A cancelled task may yet be the quicker one and end in its own way.
            if self.view(name).state is TaskState.PENDING or self.chance.random() < 0.7:
                self.put(name, TaskState.CANCELLED, retry_at=None)
        running = [view.name for view in self.views if view.state is TaskState.RUNNING]
        if step.park_until is not None:
            assert not running
            assert step.park_until > self.now
            self.now = step.park_until
        elif running:
            self.end_one(self.chance.choice(running))
        else:
            assert step.start or step.skip or step.cancel, "nothing runs and nothing is done about it"

    def end_one(self, name: str) -> None:
        outcome = AttemptState(self.chance.choice(["SUCCESS", "SUCCESS", "FAILED", "TIMEOUT", "LOST"]))
        self.now += timedelta(seconds=self.chance.randrange(100))
        self.failures[name] += outcome in (AttemptState.FAILED, AttemptState.TIMEOUT)
        self.lost[name] += outcome is AttemptState.LOST
        found = settle(
            outcome,
            failures=self.failures[name],
            lost=self.lost[name],
            settings=self.policies[name],
            attempt_id=f"{name}:{self.view(name).attempts}",
            now=self.now,
        )
        assert (found.retry_at is not None) == (found.state is TaskState.PENDING)
        self.put(name, found.state, retry_at=found.retry_at)

    def check(self, step: Step) -> None:
        names = [view.name for view in self.views]
        fatal = any(view.state in ("FAILED", "TIMEOUT") and view.failure != "continue" for view in self.views)
        for name in step.start:
            view = self.view(name)
            assert view.state is TaskState.PENDING
            assert view.attempts == self.failures[name] + self.lost[name], "started twice without a retry"
            assert view.retry_at is None or view.retry_at <= self.now
            assert not self.cancelled
            assert not fatal or view.is_spared
            retrying = [one.name for one in self.views if one.failure == "retry_on_failure" and self.retries(one)]
            assert view.attempts or not retrying
            if self.mode == "sequential":
                before = [one for one in self.views[: names.index(name)] if one.name not in step.skip]
                assert all(one.state in TASK_RUNS.terminal for one in before)
        for name in (*step.cancel, *step.skip):
            assert self.cancelled or (fatal and not self.view(name).is_spared)
        if self.mode == "sequential":
            assert len(step.start) + sum(view.state is TaskState.RUNNING for view in self.views) <= 1

    def retries(self, view: TaskView) -> bool:
        waiting = view.state is TaskState.PENDING and view.attempts > 0
        return waiting or (view.state is TaskState.RUNNING and view.attempts > 1)


@law
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fail_fast", "continue", "inherited", "retry_on_failure"]),
            st.integers(0, 3),
            st.sampled_from(["at_least_once", "at_most_once"]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["sequential", "parallel"]),
    st.integers(0, 2**16),
    st.sampled_from([10_000, 10_000, 10_000, 0, 1, 3, 6]),
)
def test_every_run_comes_to_its_end_and_every_task_to_its_own(
    given_tasks: list[tuple[str, int, str]], mode: str, seed: int, cancel_after: int
) -> None:
    names = [f"task {number}" for number in range(len(given_tasks))]
    policies = {
        name: effective(parse_settings({"retry": Retry(retries, "1m", factor=2.0), "delivery": delivery}))
        for name, (_, retries, delivery) in zip(names, given_tasks, strict=True)
    }
    views = [
        TaskView(
            name,
            TaskState.PENDING,
            "continue" if failure == "inherited" else failure,
            is_spared=failure == "continue",
        )
        for name, (failure, _, _) in zip(names, given_tasks, strict=True)
    ]
    run = Simulation(views, mode, policies, Random(seed), cancel_after)
    outcome = run.finish()
    assert all(view.state in TASK_RUNS.terminal for view in run.views)
    ended = tuple((view.state, view.failure) for view in run.views)
    assert outcome == ("CANCELLED" if run.cancelled else expected_fold(ended))
    if not run.cancelled:
        ran = {TaskState.SUCCESS, TaskState.FAILED, TaskState.TIMEOUT}
        assert all(view.state in ran and view.attempts for view in run.views if view.is_spared)


@pytest.mark.parametrize(
    ("outcome", "timed_out", "saw", "is_done", "state"),
    [
        ("SUCCESS", False, False, False, "SUCCESS"),
        ("SUCCESS", False, True, False, "CANCELLED"),
        ("SUCCESS", False, True, True, "SUCCESS"),
        ("CANCELLED", False, True, False, "CANCELLED"),
        ("CANCELLED", False, True, True, "CANCELLED"),
        ("FAILED", False, False, False, "CANCELLED"),
        ("FAILED", False, True, True, "CANCELLED"),
        ("SUCCESS", True, False, False, "TIMEOUT"),
        ("SUCCESS", True, True, True, "TIMEOUT"),
        ("FAILED", True, True, False, "TIMEOUT"),
    ],
)
def test_what_an_attempt_that_was_asked_to_stop_has_come_to(
    outcome: str, *, timed_out: bool, saw: bool, is_done: bool, state: str
) -> None:
    assert after_stop(AttemptState(outcome), timed_out=timed_out, saw=saw, is_done=is_done) == state
