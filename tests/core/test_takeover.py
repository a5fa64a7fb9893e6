"""What a change reaches: runs that wait for their chosen time, and runs that wait for a retry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from horae.core.change.run_move import moved_tasks, retried_tasks
from horae.core.change.takeover import cursor_after, is_reached, passed_slot, reopens, replaces_time
from horae.core.change.update_policy import Update
from horae.core.job.definition import effective
from horae.core.run.job_view import JobView, Slot, decided_slot, is_too_late
from horae.core.run.lifecycle import JobState, TaskState
from horae.core.run.progress import TaskProgress
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.window import Window

NOW = datetime(2026, 3, 2, 10, 10, tzinfo=UTC)
minutes = st.integers(-90, 90).map(lambda count: NOW + timedelta(minutes=count))
updates = st.sampled_from((Update(), Update("graceful"), Update("windowed", horizon=timedelta(minutes=30))))


@given(minutes, minutes, st.integers(0, 60), updates)
def test_a_change_reaches_what_is_to_start_after_it_unless_its_policy_leaves_it(
    scheduled: datetime, chosen: datetime, switch: int, update: Update
) -> None:
    begin = NOW + timedelta(minutes=switch if update.policy == "graceful" else 0)
    reached = is_reached(scheduled, chosen, begin, update, NOW)
    left = {
        "its time has come": chosen <= NOW,
        "the version before speaks for it": update.policy == "graceful" and scheduled <= begin,
        "it is beyond the horizon": update.policy == "windowed" and scheduled - NOW > timedelta(minutes=30),
    }
    assert reached is not any(left.values()), left


def _view(cron: str, window: Window | None) -> JobView:
    return JobView("a", Cron(cron), effective({"window": window}), NOW)


def test_a_passed_slot_is_decided_by_the_new_window_and_starts_at_once_where_that_is_over() -> None:
    ten = NOW.replace(minute=0)
    assert passed_slot(_view("30 * * * *", None), ten, None, NOW) is None
    assert passed_slot(_view("0 * * * *", None), ten, None, NOW) == Slot(ten, NOW)
    later = NOW + timedelta(minutes=3)
    assert passed_slot(_view("0 * * * *", None), ten, later, NOW) == Slot(ten, later)
    for minute in range(1, 60, 7):
        view = _view("0 * * * *", Window.after(timedelta(minutes=minute), salt=str(minute)))
        decided = decided_slot(view, ten)
        found = passed_slot(view, ten, None, NOW)
        assert found == (decided if decided.chosen > NOW else Slot(ten, NOW))


def test_a_window_that_has_no_moment_makes_the_run_unschedulable() -> None:
    view = _view("0 * * * *", Window.after("50m", only={"hours": [3]}))
    found = passed_slot(view, NOW.replace(minute=0), None, NOW)
    assert found is not None
    assert found.unschedulable


def test_a_once_that_gets_another_time_is_replaced_and_one_that_was_done_is_enabled_again() -> None:
    once, other, daily = Once(NOW), Once(NOW + timedelta(hours=1)), Cron("0 4 * * *")
    for schedule in (other, daily, None):
        assert replaces_time(once, schedule, Update())
        assert not replaces_time(once, schedule, Update("graceful"))
    assert not replaces_time(once, Once(NOW, drop=True), Update())
    assert not replaces_time(daily, other, Update())
    assert reopens(once, other, Update(), JobState.DISABLED, NOW)
    assert not reopens(once, other, Update(), JobState.DISABLED, NOW - timedelta(seconds=1))
    assert not reopens(once, other, Update(), JobState.PAUSED, NOW)
    assert not reopens(once, None, Update(), JobState.DISABLED, NOW)


@given(minutes, minutes)
def test_the_cursor_leaves_a_once_within_its_grace_to_be_planned_and_nothing_else(
    at: datetime, planned: datetime
) -> None:
    grace = timedelta(minutes=5)
    cursor = cursor_after(Once(at), grace, planned, NOW, decided=False)
    assert cursor_after(Once(at), grace, planned, NOW, decided=True) == max(planned, NOW)
    assert (cursor < at <= NOW) is (NOW - grace <= at <= NOW)
    assert cursor >= NOW or cursor == at - timedelta(seconds=1)
    assert cursor_after(Cron("0 4 * * *"), grace, planned, NOW, decided=False) == max(planned, NOW)
    assert is_too_late(Once(at), grace, NOW) is (NOW - at > grace)


states = st.sampled_from((TaskState.PENDING, TaskState.FAILED, TaskState.SUCCESS))
names = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@given(names, names, st.data(), st.booleans())
def test_a_retry_goes_on_by_name_only_and_only_where_nothing_has_succeeded(
    own: list[str], present: list[str], data: st.DataObject, at_most_once: bool
) -> None:
    tasks = [TaskProgress(place, name, data.draw(states), 1) for place, name in enumerate(own)]
    found = retried_tasks(tasks, present, at_most_once=at_most_once)
    may = not at_most_once and set(own) <= set(present) and all(task.state != "SUCCESS" for task in tasks)
    if not may:
        assert found is None
        return
    assert found is not None
    assert {(move.before, move.name) for move in found} == set(enumerate(own))
    assert all(present[move.after] == move.name for move in found)
    assert found == moved_tasks(tasks, present, at_most_once=False)


def test_a_run_that_was_only_handed_back_was_not_tried() -> None:
    handed_back = [TaskProgress(0, "a", TaskState.PENDING, 2, reason="released")]
    assert moved_tasks(handed_back, ["a"], at_most_once=True) is not None
    for tried in (
        TaskProgress(0, "a", TaskState.PENDING, 1, failures=1),
        TaskProgress(0, "a", TaskState.PENDING, 1, lost=1),
        TaskProgress(0, "a", TaskState.SUCCESS, 1),
    ):
        assert moved_tasks([tried], ["a"], at_most_once=True) is None
