"""Faults that a reviewer found once, each as the sentence that holds now."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from horae import Cron, DecisionRequest, Distribution, Every, Once, Schedule, Window, decide
from horae.core.job.definition import effective
from horae.core.job.dependencies import unmet
from horae.core.job.policies import NO_RETRY
from horae.core.run.attempt import TaskView, next_step, settle
from horae.core.run.due import JobView, due
from horae.core.run.lifecycle import AttemptState, RunState, TaskState
from horae.core.run.overlap import ActiveRun, judge_overlap
from horae.core.schedule.custom import Custom, as_schedule
from horae.errors import HoraeError, InvalidDecision

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Noon:
    """A schedule of a user's own: every day at noon."""

    def next(self, after: datetime) -> datetime | None:
        return next(islice(self.between(after, after + timedelta(days=2)), 1))

    def previous(self, before: datetime) -> datetime | None:
        found = [at for at in self.between(before - timedelta(days=2), before) if at < before]
        return found[-1]

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        at = start.astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        while at <= end:
            if at > start:
                yield at
            at += timedelta(days=1)


def test_changing_the_caller_s_parameters_afterwards_changes_no_decision() -> None:
    params = {"shape": 3.0}
    request = Window.after("1h", Distribution("skewEarly", params)).request("a", NOW, "UTC")
    before = decide(request)
    params["shape"] = 0.1
    assert decide(request) == before


def test_what_is_no_request_is_refused() -> None:
    wrongs: list[Any] = [None, {}, "job"]
    for wrong in wrongs:
        with pytest.raises(InvalidDecision):
            decide(wrong)


def test_a_window_can_be_given_its_length_by_the_name_of_the_contract() -> None:
    assert Window.after(d="1h") == Window("after", "1h")
    assert Window("center", "2h") == Window.around("2h")


def test_a_user_s_own_schedule_joins_a_union_from_either_side() -> None:
    union = Cron("0 6 * * *") | Noon()
    assert [at.hour for at in union.between(NOW, NOW + timedelta(days=1))] == [6, 12]
    assert (Noon() | Cron("0 6 * * *")) == union
    with pytest.raises(TypeError):
        Cron("@daily") | 5


def test_a_union_of_equals_is_the_one_they_equal() -> None:
    assert (Cron("@daily") | Cron("0 0 * * *")) == Cron("@daily")


def test_a_union_goes_by_its_parts_clocks_where_they_agree() -> None:
    berlin = Cron("@daily", tz="Europe/Berlin")
    assert (berlin | Cron("0 6 * * *", tz="Europe/Berlin")).timezone == "Europe/Berlin"
    assert (berlin | Cron("0 6 * * *")).timezone == "UTC"


def test_a_copy_of_a_loaded_custom_schedule_is_loaded_too() -> None:
    loaded = as_schedule(Noon())
    for twin in (copy.copy(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert twin.next(NOW) == NOW + timedelta(days=1)
    assert isinstance(Schedule.from_dict({"kind": "custom", "path": "a.b:C"}), Custom)


def test_a_backlog_nothing_can_be_chosen_for_is_settled_in_bounded_work() -> None:
    settings = effective({"window": Window.after("30s", only={"dates": "2020-01-01"}), "recovery": "last"})
    job = JobView("a", Cron("* * * * *"), settings, NOW - timedelta(days=365))
    plan = due(job, NOW)
    assert len(plan.births) < 200
    assert sum(birth.count for birth in plan.births if birth.scheduled_time <= NOW) == 365 * 24 * 60
    assert not [birth for birth in plan.births if birth.state is RunState.PENDING]


def test_the_one_run_that_makes_up_is_born_however_small_the_limit() -> None:
    settings = effective({"window": Window.after("10m", only={"hours": "0-8"}), "recovery": "last"})
    plan = due(JobView("a", Cron("0 * * * *"), settings, NOW.replace(hour=6)), NOW + timedelta(minutes=30), limit=1)
    assert [birth.scheduled_time.hour for birth in plan.births if birth.is_recovery] == [8]


def test_the_older_of_two_windowed_runs_that_come_due_together_goes_first() -> None:
    older = ActiveRun("a", RunState.PENDING, NOW - timedelta(hours=2), NOW)
    newer = ActiveRun("b", RunState.PENDING, NOW - timedelta(hours=1), NOW)
    for_older = judge_overlap("skip", [newer], NOW, NO_RETRY, older.scheduled_time)
    for_newer = judge_overlap("skip", [older], NOW, NO_RETRY, newer.scheduled_time)
    assert (for_older.state, for_newer.state) == (RunState.PENDING, RunState.SKIPPED)


def test_states_may_come_as_the_catalog_s_plain_texts() -> None:
    view = JobView("a", Cron("* * * * *"), effective(), NOW - timedelta(minutes=1), state="DISABLED")  # type: ignore[arg-type]  # as a catalog gives it
    assert due(view, NOW).births == ()
    assert ActiveRun("a", "RUNNING", NOW, NOW).counts(NOW, NO_RETRY)  # type: ignore[arg-type]  # likewise
    assert unmet({"a": "COMPLETED"}) == ()  # type: ignore[dict-item]  # likewise


def test_a_run_lost_under_at_most_once_ends_stale() -> None:
    outcome = settle(
        AttemptState.LOST,
        failures=0,
        lost=1,
        settings=effective({"delivery": "at_most_once"}),
        attempt_id="attempt_x",
        now=NOW,
    )
    assert outcome.stale
    tasks = (TaskView("a", outcome.state), TaskView("b", TaskState.PENDING))
    assert next_step(tasks, mode="sequential", now=NOW, stale=True).skip == ("b",)
    ended = (TaskView("a", outcome.state), TaskView("b", TaskState.SKIPPED))
    assert next_step(ended, mode="sequential", now=NOW, stale=True).outcome is RunState.FAILED_STALE


def test_counting_a_century_of_minutes_does_not_walk_them() -> None:
    start = datetime(2000, 1, 1, tzinfo=UTC)
    for tz in ("UTC", "Europe/Berlin"):
        cron = Cron("* * * * *", tz=tz)
        assert cron.count(start, start + timedelta(days=36_524)) == 36_524 * 1440
        week = (start + timedelta(days=80), start + timedelta(days=90, seconds=7))
        assert cron.count(*week) == sum(1 for _ in cron.between(*week))


def test_a_bare_interval_refuses_what_names_no_instant() -> None:
    naive = datetime(2026, 1, 1)
    for ask in (
        lambda: Every("1h").matches(naive),
        lambda: Every("1h").between(naive, NOW),
        lambda: Every("1h").anchored(None),  # type: ignore[arg-type]  # on purpose
        lambda: Once(NOW).between(NOW, naive),
    ):
        with pytest.raises(HoraeError):
            ask()


def test_a_salt_that_cannot_be_written_is_blamed_itself() -> None:
    with pytest.raises(InvalidDecision, match="salt"):
        decide(DecisionRequest("fine", NOW, salt="\ud800"))
