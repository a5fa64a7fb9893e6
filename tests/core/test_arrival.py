"""Runs that waited in their windows: in time, late within their grace, and missed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae.core.job.definition import Settings
from horae.core.job.policies import Bounded, Queue
from horae.core.run.arrival import Arrival, judge_arrival
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun, Ending, OverlapVerdict
from horae.core.schedule.interval import Every
from horae.core.window.window import Window

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOURLY = Every("1h", start=START)
MISSED = Arrival(OverlapVerdict(RunState.MISSED, "missed"))


def waiting(hour: int, chosen: int = 10, *, judged: bool = False, state: RunState = RunState.PENDING) -> ActiveRun:
    """The run of 09:00 and so many hours, chosen so many minutes later."""
    slot = START + timedelta(hours=hour)
    return ActiveRun(f"run-{hour}", state, slot, slot + chosen * MINUTE, judged=judged)


def judged(
    run: ActiveRun, *others: ActiveRun, late: timedelta, state: JobState = JobState.ENABLED, **policies: Any
) -> Arrival:
    """The verdict on a run that is looked at `late` after its chosen time; slots up to the newest run are created."""
    settings = replace(Settings(window=Window.after("20m")), **policies)
    newest = max(each.scheduled_time for each in (run, *others))
    job = JobView("a", HOURLY, settings, newest, state, active=(run, *others))
    return judge_arrival(settings, run, others, run.chosen_time + late, job)


def state_of(found: Arrival) -> tuple[RunState, bool]:
    return found.verdict.state, found.is_recovery


@pytest.mark.parametrize("recovery", ["last", "all", "none", "compressed", Bounded(1)])
def test_a_run_that_is_looked_at_in_time_starts_whatever_the_recovery(recovery: Any) -> None:
    assert state_of(judged(waiting(0), late=MINUTE, recovery=recovery)) == (RunState.PENDING, False)


@pytest.mark.parametrize("recovery", ["last", "all", "compressed", Bounded(1), Bounded(max_age="2h")])
def test_a_run_that_was_missed_catches_up_where_it_is_owed(recovery: Any) -> None:
    assert state_of(judged(waiting(0), late=2 * MINUTE, recovery=recovery)) == (RunState.PENDING, True)


def test_under_none_it_is_recorded_missed() -> None:
    assert judged(waiting(0), late=2 * MINUTE, recovery="none") == MISSED


def test_under_last_it_gives_way_to_a_newer_slot_that_has_no_run_yet() -> None:
    assert judged(waiting(0), late=timedelta(hours=2), recovery="last") == MISSED
    # Disabled or paused, the job creates no newer run.
    for state in (JobState.DISABLED, JobState.PAUSED):
        found = judged(waiting(0), late=timedelta(hours=2), state=state, recovery="last")
        assert state_of(found) == (RunState.PENDING, True)


def test_under_last_it_gives_way_to_a_newer_run_that_waited_too_also_within_its_grace() -> None:
    older, newer = waiting(0, 65), waiting(1, 5)
    assert judged(older, newer, late=MINUTE, recovery="last") == MISSED
    # Whichever is looked at first.
    first = judge_arrival(Settings(recovery="last"), newer, (older,), older.chosen_time + MINUTE, None)
    assert first == Arrival(OverlapVerdict(RunState.PENDING, endings=(Ending("run-0", RunState.MISSED, "missed"),)))
    # One whose time has not come, or that has been judged, is nothing to give way to.
    assert state_of(judged(older, waiting(1, 15), late=MINUTE, recovery="last")) == (RunState.PENDING, False)
    found = judged(older, waiting(1, 5, judged=True), late=MINUTE, recovery="last", overlap="allow")
    assert state_of(found) == (RunState.PENDING, False)


def test_runs_whose_windows_chose_the_same_moment_are_not_late_and_give_way_to_none() -> None:
    older, newer = waiting(0, 65), waiting(1, 5)
    for run, other in ((older, newer), (newer, older)):
        found = judged(run, other, late=timedelta(seconds=1), recovery="last", overlap="allow")
        assert found == Arrival(OverlapVerdict(RunState.PENDING))


def test_bounds_hold_for_it() -> None:
    too_old = judged(waiting(0), late=timedelta(hours=3), recovery=Bounded(max_age="2h"))
    assert too_old == Arrival(OverlapVerdict(RunState.MISSED, "too old to catch up on"))
    too_many = judged(waiting(0), late=timedelta(hours=2), recovery=Bounded(2))
    assert too_many == Arrival(OverlapVerdict(RunState.MISSED, "too many to catch up on"))


def test_a_missed_run_lines_up_behind_what_is_before_it_whatever_the_overlap() -> None:
    before = waiting(0, 10, state=RunState.RUNNING)
    for overlap in ("skip", "allow", "coalesce", "replace", Queue(1)):
        found = judged(waiting(1), before, late=2 * MINUTE, recovery="all", overlap=overlap)
        assert state_of(found) == (RunState.QUEUED, True)


def test_in_time_the_overlap_policy_decides() -> None:
    before = waiting(0, 10, state=RunState.RUNNING)
    assert state_of(judged(waiting(1), before, late=MINUTE, recovery="last")) == (RunState.SKIPPED, False)
    assert state_of(judged(waiting(1), before, late=MINUTE, overlap="allow")) == (RunState.PENDING, False)


def test_under_all_runs_that_are_late_together_line_up_and_none_is_skipped() -> None:
    before = waiting(0, 10, state=RunState.RUNNING)
    older, newer = waiting(1, 65), waiting(2, 5)
    assert state_of(judged(older, before, newer, late=MINUTE, recovery="all")) == (RunState.QUEUED, False)
    queued = replace(older, state=RunState.QUEUED)
    assert state_of(judged(newer, before, queued, late=MINUTE, recovery="all")) == (RunState.QUEUED, False)


def test_a_job_without_a_schedule_has_no_newer_slots() -> None:
    run, settings = waiting(0), Settings(recovery="last")
    found = judge_arrival(settings, run, (), run.chosen_time + timedelta(hours=5), None)
    assert state_of(found) == (RunState.PENDING, True)
