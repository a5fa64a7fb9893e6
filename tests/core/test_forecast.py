"""Forecasts: what a change does to each slot, against slots written out one by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae.core.change.changed_job import ChangedJob, changed_view
from horae.core.change.forecast import FEW, SlotCache, forecast_jobs
from horae.core.change.update_policy import IMMEDIATE, Update, parse_update
from horae.core.job.definition import effective
from horae.core.run.job_view import JobView, decided_slot
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun
from horae.core.run.unserved import unserved_slots
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.window.window import Window

NOW = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)
CRONS = st.sampled_from(["0 * * * *", "30 * * * *", "*/20 * * * *", "15 4,16 * * *", "0 12 * * *"])
WINDOWS = st.sampled_from([None, Window.after("10m"), Window.after("10m", salt="x"), Window.around("30m")])
UPDATES = st.sampled_from(["immediate", "graceful", "graceful=2027-03-01T18:00:00Z", "windowed=6h"])
STATES = st.sampled_from(list(JobState))


def view(schedule: Schedule, state: JobState = JobState.ENABLED, **settings: Any) -> JobView:
    return JobView("job", schedule, effective(settings), NOW, state)


def changed(
    before: JobView | None, schedule: Schedule | None, update: Update = IMMEDIATE, **more: Any
) -> JobView | None:
    state = more.pop("state", JobState.ENABLED)
    return changed_view(before, "job", schedule, effective(more), state, NOW, update, 1)


def starts(each: JobView | None, until: datetime) -> dict[datetime, datetime]:
    if each is None or each.state is not JobState.ENABLED:
        return {}
    return {slot: decided_slot(each, slot).chosen for slot in each.schedule.between(NOW, until)}


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(CRONS, CRONS, WINDOWS, WINDOWS, UPDATES, STATES)
def test_every_slot_is_kept_moved_added_or_removed_as_its_two_starts_say(
    old: str, new: str, was: Window | None, will: Window | None, policy: str, state: JobState
) -> None:
    before = view(Cron(old), window=was)
    update = parse_update(policy)
    after = changed(before, Cron(new), update, state=state, window=will)
    prospect = ChangedJob("job", before, after, update.reaches(NOW))
    seen = forecast_jobs([prospect], NOW, NOW + DAY).forecasts["job"]
    first, last = starts(before, NOW + DAY), starts(after, NOW + DAY)
    # A window before the slot may have started it already: the cursor stands at now here, so nothing has.
    assert seen.added == len(last.keys() - first.keys())
    assert seen.removed == len(first.keys() - last.keys())
    both = first.keys() & last.keys()
    assert seen.moved == sum(first[slot] != last[slot] for slot in both)
    assert seen.kept == len(both) - seen.moved
    assert [each.slot for each in seen.first_added] == sorted(last.keys() - first.keys())[:FEW]
    assert [(each.slot, each.was) for each in seen.first_moved] == [
        (slot, first[slot]) for slot in sorted(both) if first[slot] != last[slot]
    ][:FEW]


def test_a_graceful_change_leaves_the_announced_slot_to_the_old_schedule_with_its_window() -> None:
    before = view(Cron("0 * * * *"), window=Window.after("10m"))
    after = changed(before, Cron("30 * * * *"), Update("graceful"))
    assert after is not None
    announced = NOW + timedelta(hours=1)
    assert decided_slot(after, announced) == decided_slot(before, announced)
    assert [slot.minute for slot in after.schedule.between(NOW, NOW + timedelta(hours=3))] == [0, 30, 30]


def test_what_a_window_has_started_before_its_time_is_not_compared() -> None:
    slot = NOW + timedelta(minutes=5)
    schedule = Cron("5 * * * *")
    begun = JobView("job", schedule, effective({"window": Window.before("2h")}), slot)
    assert decided_slot(begun, slot).chosen <= NOW
    after = changed(begun, Cron("7 * * * *"))
    seen = forecast_jobs([ChangedJob("job", begun, after)], NOW, NOW + timedelta(minutes=30)).forecasts["job"]
    assert (seen.added, seen.removed, seen.moved, seen.kept) == (1, 0, 0, 0)


def test_a_slot_that_no_moment_will_do_for_is_counted_apart() -> None:
    barred = changed(None, Cron("0 12 * * *"), window=Window.after("1h", only={"hours": 3}))
    seen = forecast_jobs([ChangedJob("job", None, barred)], NOW, NOW + 3 * DAY).forecasts["job"]
    assert (seen.starts, seen.unschedulable, seen.next_after) == (0, 3, None)


def test_runs_born_beyond_the_reach_of_a_change_stay_and_no_others_come_among_them() -> None:
    hours = [NOW + timedelta(hours=hour) for hour in range(1, 6)]
    born = tuple(ActiveRun(str(at), RunState.PENDING, at, at, judged=False) for at in hours)
    window = Window.before("6h")
    before = replace(view(Cron("0 * * * *"), window=window), planned_until=hours[-1], active=born)
    update = Update("windowed", horizon="2h")
    after = changed(before, Cron("30 * * * *"), update, window=window)
    job = ChangedJob("job", before, after, update.reaches(NOW))
    found = [slot for slot, _ in SlotCache(NOW, NOW + timedelta(hours=7)).starts(after, job.stays)]  # type: ignore[arg-type]  # it has a schedule
    half = timedelta(minutes=30)
    assert found == [NOW + half, hours[0] + half, *hours[2:], hours[4] + half, hours[4] + 3 * half]
    assert job.unborn() == [hours[1] + half, hours[2] + half, hours[3] + half]
    seen = forecast_jobs([job], NOW, NOW + timedelta(hours=7))
    assert (seen.forecasts["job"].added, seen.forecasts["job"].kept) == (4, 3)


def test_where_a_side_has_nothing_its_next_slot_is_told() -> None:
    before = view(Cron("0 0 1 5 *"))
    seen = forecast_jobs([ChangedJob("job", before, changed(before, Cron("0 0 2 5 *")))], NOW, NOW + DAY).forecasts[
        "job"
    ]
    assert (str(seen.next_before), str(seen.next_after)) == ("2027-05-01 00:00:00+00:00", "2027-05-02 00:00:00+00:00")
    paused = replace(view(Cron("0 * * * *"), JobState.PAUSED), paused_until=NOW + 3 * DAY)
    gone = forecast_jobs([ChangedJob("job", paused, None)], NOW, NOW + DAY).forecasts["job"]
    assert (gone.next_before, gone.next_after) == (NOW + 3 * DAY, None)


def test_a_pause_that_ends_lets_later_slots_run_and_one_without_end_none() -> None:
    paused = JobView("job", Cron("0 * * * *"), effective({}), NOW, JobState.PAUSED, NOW + timedelta(hours=5))
    seen = forecast_jobs([ChangedJob("job", paused, None)], NOW, NOW + timedelta(hours=8)).forecasts["job"]
    assert [each.slot.hour for each in seen.first_removed] == [14, 15, 16, 17]
    endless = JobView("job", Cron("0 * * * *"), effective({}), NOW, JobState.PAUSED)
    assert forecast_jobs([ChangedJob("job", endless, None)], NOW, NOW + DAY).forecasts["job"].removed == 0


def test_the_load_is_of_all_jobs_and_jobs_that_stay_are_on_both_sides() -> None:
    stays = [view(Cron("0 * * * *")) for _ in range(3)]
    prospects = [ChangedJob(f"stays-{place}", each, each, seconds=90) for place, each in enumerate(stays)]
    moving = view(Cron("0 * * * *"))
    prospects.append(ChangedJob("job", moving, changed(moving, Cron("30 * * * *")), seconds=90))
    outlook = forecast_jobs(prospects, NOW, NOW + timedelta(hours=4))
    assert (outlook.before.peak, outlook.before.busiest, outlook.before.starts) == (4, 4, 16)
    assert (outlook.after.peak, outlook.after.busiest, outlook.after.starts) == (3, 3, 16)
    assert outlook.before.busiest_at == NOW + timedelta(hours=1)
    slow = view(Every("1m").anchored(NOW), overlap="skip")
    met = forecast_jobs([ChangedJob("slow", slow, slow, seconds=150)], NOW, NOW + timedelta(minutes=9))
    assert (met.before.overlaps, met.before.peak) == (6, 1)


def test_where_there_is_too_much_to_look_at_the_answer_says_how_far_it_was_looked_at() -> None:
    busy = [view(Every(f"{seconds}s").anchored(NOW)) for seconds in range(1, 30)]
    prospects = [ChangedJob(f"job-{place}", each, None) for place, each in enumerate(busy)]
    outlook = forecast_jobs(prospects, NOW, NOW + DAY, effort=10_000)
    assert NOW < outlook.until < NOW + DAY
    assert NOW < outlook.load_until < NOW + DAY
    every = outlook.forecasts["job-0"]
    assert every.removed == int((outlook.until - NOW) / timedelta(seconds=1))


def test_windows_with_times_to_keep_off_are_looked_at_less_far_for_they_take_longer() -> None:
    windows = (
        None,
        Window.after("1h"),
        Window.around("1h", distribution="normal"),
        Window.after("1h", avoid={"dow": 0}),
    )
    ends = []
    for window in windows:
        hourly = changed(None, Cron("0 * * * *"), window=window)
        ends.append(forecast_jobs([ChangedJob("job", None, hourly)], NOW, NOW + 3650 * DAY, effort=10_000).until)
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == 4
    assert ends[-1] <= NOW + timedelta(hours=100)


class Broken:
    def next(self, after: datetime) -> datetime | None:
        raise RuntimeError("no calendar today")

    def previous(self, before: datetime) -> datetime | None:
        raise RuntimeError("no calendar today")

    def between(self, start: datetime, end: datetime) -> Any:
        raise RuntimeError("no calendar today")


def test_a_schedule_that_raises_is_named_and_hides_no_other_job() -> None:
    broken = JobView("broken", Cron("0 * * * *") | Broken(), effective({}), NOW)
    fine = view(Cron("0 * * * *"))
    outlook = forecast_jobs([ChangedJob("broken", broken, None), ChangedJob("job", fine, None)], NOW, NOW + DAY)
    assert outlook.unasked == {"broken": "no calendar today"}
    assert outlook.forecasts["job"].removed == 24
    assert outlook.before.starts == 24


def test_what_is_owed_is_counted_with_the_runs_that_catch_up_on_it() -> None:
    behind = NOW - timedelta(hours=5)
    hourly = JobView("job", Cron("30 * * * *"), effective({"recovery": "last"}), behind)
    found = unserved_slots(hourly, NOW)
    assert found is not None
    assert (found.missed, found.runs, found.strategy, found.more) == (5, 1, "last", False)
    assert unserved_slots(view(Cron("0 * * * *")), NOW) is None
    late = JobView("once", Once(NOW - DAY), effective({}), NOW - 2 * DAY, first_seen=True)
    passed = unserved_slots(late, NOW)
    assert passed is not None
    assert (passed.missed, passed.runs, passed.strategy) == (1, 0, "none")


def test_a_run_that_waits_in_a_window_after_its_time_is_foretold_on_both_sides() -> None:
    slot = NOW - timedelta(minutes=10)
    every = Every("1h", start=slot)
    waiting = (ActiveRun("r", RunState.PENDING, slot, NOW + timedelta(minutes=40)),)
    window = Window.after("55m")
    before = replace(view(every, window=window), planned_until=slot, active=waiting)
    until = NOW + timedelta(minutes=49)

    def told(after: JobView | None) -> tuple[int, int, int, int]:
        found = forecast_jobs([ChangedJob("a", before, after)], NOW, until).forecasts["a"]
        return found.added, found.removed, found.moved, found.kept

    other = Every("1h", start=slot + timedelta(minutes=45))
    gone = changed_view(before, "a", other, before.settings, JobState.ENABLED, NOW, Update())
    assert told(gone) == (1, 1, 0, 0)
    at_once = changed_view(before, "a", every, view(every).settings, JobState.ENABLED, NOW, Update())
    assert at_once is not None
    assert dict(SlotCache(NOW, until).starts(at_once)) == {slot: NOW}
    assert told(at_once) == (0, 0, 1, 0)
    stays = changed_view(before, "a", every, replace(before.settings, deadline=None), JobState.ENABLED, NOW, Update())
    assert told(stays) == (0, 0, 0, 1)
    graceful = changed_view(before, "a", other, before.settings, JobState.ENABLED, NOW, Update("graceful"))
    assert graceful is not None
    assert graceful.active == waiting
