"""Planning one job: slots on time, late, paused, in windows and moved, and when to look again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from horae import Cron, Every, Once, Retry, Schedule, Window
from horae.core.job.definition import effective, parse_settings
from horae.core.run.due import DueDecision, JobView, NewRunRow, deadline_passed, due
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.overlap import ActiveRun, Ending
from horae.core.window.decision import DecisionRequest, decide
from horae.errors import InvalidTime

MINUTELY = Cron("* * * * *")
HOURLY = Cron("0 * * * *")
A_YEAR = timedelta(days=365)


def at(clock: str) -> datetime:
    """A time of the day on which all of this happens."""
    return datetime.fromisoformat(f"2026-01-05T{clock}+00:00")


def view(planned: str, schedule: Schedule = MINUTELY, *active: ActiveRun, **policies: Any) -> JobView:
    """A job whose last slot so far was `planned`, with these runs about."""
    return JobView("job", schedule, effective(parse_settings(policies)), at(planned), active=active)


def run(state: str, slot: str, chosen: str = "", *, parked: bool = False, is_recovery: bool = False) -> ActiveRun:
    """A run that is about already, called by its state in small letters."""
    name = "parked" if parked else state.lower()
    return ActiveRun(name, RunState(state), at(slot), at(chosen or slot), parked, is_recovery)


def told(plan: DueDecision) -> list[str]:
    """What is born, in the order of the slots, in words."""
    return [_sentence(birth) for birth in sorted(plan.births, key=lambda birth: birth.scheduled_time)]


def _sentence(birth: NewRunRow) -> str:
    text = f"{birth.scheduled_time:%H:%M} {birth.state}"
    if birth.scheduled_time.second:
        text = f"{birth.scheduled_time:%H:%M:%S} {birth.state}"
    if birth.reason is not None:
        text += f" ({birth.reason})"
    if birth.is_recovery:
        text += " recovery"
    if birth.covers_from is not None and birth.covers_to is not None:
        text += f" {birth.count} slots {birth.covers_from:%H:%M}-{birth.covers_to:%H:%M}"
    return text


def hours(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%H:%M:%S}"


def test_a_slot_on_time_is_born_pending_at_its_own_time() -> None:
    plan = due(view("09:59"), at("10:00"))
    assert plan.births == (NewRunRow(at("10:00"), RunState.PENDING, at("10:00")),)
    assert (plan.endings, plan.cancels, plan.resumed, plan.more) == ((), (), False, False)
    assert plan.planned_until == at("10:00")
    assert plan.next_run_time == plan.wake_at == at("10:01")


def test_nothing_is_born_before_its_time() -> None:
    plan = due(view("10:00"), at("10:00:59.999999"))
    assert told(plan) == []
    assert plan.planned_until == at("10:00")
    assert plan.next_run_time == plan.wake_at == at("10:01")


def test_a_clock_that_steps_back_runs_no_slot_again() -> None:
    plan = due(view("10:00"), at("09:30"))
    assert told(plan) == []
    assert plan.planned_until == at("10:00")


def test_several_slots_due_in_one_pass_are_born_in_order() -> None:
    job = view("09:59", Every("20s", start=at("09:00")), overlap="allow", recovery="all")
    plan = due(job, at("10:00:10"))
    assert told(plan) == ["09:59:20 PENDING", "09:59:40 PENDING", "10:00 PENDING"]
    assert [birth.scheduled_time for birth in plan.births] == sorted(birth.scheduled_time for birth in plan.births)


def test_a_schedule_that_has_ended_has_no_next_run_and_needs_no_waking() -> None:
    plan = due(view("09:00", Once(at("10:00"))), at("10:00:05"))
    assert told(plan) == ["10:00 PENDING"]
    assert (plan.planned_until, plan.next_run_time, plan.wake_at) == (at("10:00"), None, None)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(InvalidTime, match="now"):
        due(view("09:59"), at("10:00").replace(tzinfo=None))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("10:00:00", "10:00 PENDING"),
        ("10:01:00", "10:00 PENDING"),
        ("10:01:00.000001", "10:00 MISSED (missed)"),
        ("10:45:00", "10:00 MISSED (missed)"),
    ],
)
def test_a_slot_is_missed_once_it_is_older_than_the_misfire_grace(now: str, expected: str) -> None:
    assert told(due(view("09:00", HOURLY, recovery="none"), at(now))) == [expected]


def test_the_misfire_grace_is_a_setting() -> None:
    job = view("09:00", HOURLY, recovery="none", misfire_grace="10m")
    assert told(due(job, at("10:10:00"))) == ["10:00 PENDING"]
    assert told(due(job, at("10:10:01"))) == ["10:00 MISSED (missed)"]


@pytest.mark.parametrize(
    ("deadline", "now", "passed"),
    [
        ("0s", "10:00:00", False),
        ("0s", "10:00:00.999999", False),
        ("0s", "10:00:01", True),
        ("30s", "10:00:30.9", False),
        ("30s", "10:00:31", True),
        (None, "23:59:59", False),
    ],
)
def test_a_deadline_is_compared_in_whole_seconds(deadline: str | None, now: str, passed: bool) -> None:
    length = parse_settings({"deadline": deadline})["deadline"]
    assert deadline_passed(at("10:00"), length, at(now)) is passed
    plan = due(view("09:00", HOURLY, deadline=deadline, misfire_grace="1d"), at(now[:8]))
    if now[:2] == "10":
        assert told(plan) == ["10:00 MISSED (deadline)" if passed else "10:00 PENDING"]


def test_a_deadline_applies_to_recovery_runs_too() -> None:
    job = view("09:55", deadline="150s", recovery="all", overlap="allow")
    assert told(due(job, at("10:00"))) == [
        "09:56 MISSED (deadline)",
        "09:57 MISSED (deadline)",
        "09:58 PENDING recovery",
        "09:59 PENDING",
        "10:00 PENDING",
    ]
    assert told(due(view("09:00", HOURLY, deadline="5m"), at("10:05"))) == ["10:00 PENDING recovery"]
    assert told(due(view("09:00", HOURLY, deadline="5m"), at("10:05:01"))) == ["10:00 MISSED (deadline)"]


def test_a_run_that_missed_its_deadline_stands_in_nobodys_way() -> None:
    job = view("09:58", Every("30s", start=at("09:00")), deadline="10s", recovery="none")
    assert told(due(job, at("09:59:31")))[-2:] == ["09:59 MISSED (deadline)", "09:59:30 PENDING"]


def test_a_disabled_job_has_nothing_happen_to_it() -> None:
    job = replace(view("09:00", MINUTELY, run("RUNNING", "09:00")), state=JobState.DISABLED)
    assert due(job, at("10:00")) == DueDecision((), (), (), at("09:00"), None, None)


def test_slots_of_a_paused_job_pass_and_are_recorded() -> None:
    job = replace(view("09:57", MINUTELY, run("RUNNING", "09:57"), overlap="replace"), state=JobState.PAUSED)
    plan = due(job, at("10:00:30"))
    assert told(plan) == ["09:58 SKIPPED (paused)", "09:59 SKIPPED (paused) 2 slots 09:58-10:00"]
    assert (plan.endings, plan.cancels, plan.resumed) == ((), (), False)
    assert (plan.planned_until, plan.next_run_time, plan.wake_at) == (at("10:00"), None, at("10:01"))


def test_a_job_paused_until_a_time_shows_its_first_run_after_it() -> None:
    job = replace(view("10:00"), state=JobState.PAUSED, paused_until=at("10:10:30"))
    plan = due(job, at("10:00:30"))
    assert (told(plan), plan.resumed) == ([], False)
    assert (plan.next_run_time, plan.wake_at) == (at("10:11"), at("10:01"))
    hourly = replace(job, schedule=HOURLY)
    assert due(hourly, at("10:00:30")).wake_at == at("10:10:30")


def test_a_pause_that_has_ended_is_over_in_the_same_pass() -> None:
    job = replace(view("09:55"), state=JobState.PAUSED, paused_until=at("09:57:30"))
    plan = due(job, at("10:00:30"))
    assert told(plan) == [
        "09:56 SKIPPED (paused)",
        "09:57 SKIPPED (paused) 1 slots 09:56-09:57",
        "09:58 MISSED (missed)",
        "09:59 MISSED (missed)",
        "10:00 PENDING",
    ]
    assert plan.resumed
    assert plan.next_run_time == plan.wake_at == at("10:01")


def test_a_pause_ends_exactly_at_its_time_and_not_before() -> None:
    job = replace(view("10:00"), state=JobState.PAUSED, paused_until=at("10:00:30"))
    assert not due(job, at("10:00:29.999999")).resumed
    assert due(job, at("10:00:30")).resumed


@pytest.mark.parametrize("window", [None, Window.before("10m"), Window.around("10m"), Window.after("10m")])
def test_a_paused_job_is_not_looked_at_again_and_again(window: Window | None) -> None:
    job = replace(view("09:00", HOURLY, window=window), state=JobState.PAUSED)
    plan = due(job, at("09:58"))
    assert told(plan) == []
    assert plan.wake_at is not None
    assert plan.wake_at > at("09:58")


def decided(window: Window, slot: str, timezone: str = "UTC") -> datetime:
    request = DecisionRequest(
        "job", at(slot), timezone, window.mode, window.duration, window.distribution, window.seed, window.salt
    )
    chosen = decide(request).chosen_time
    assert chosen is not None
    return chosen


@pytest.mark.parametrize(
    ("window", "opens"),
    [
        (Window.after("30m"), "10:00:00"),
        (Window.before("30m"), "09:30:00"),
        (Window.around("30m"), "09:45:00"),
        (Window.around("30m", salt="other", seed="daily"), "09:45:00"),
        (Window.after("0s"), "10:00:00"),
        (Window.before("3h"), "07:00:00"),
    ],
)
def test_a_run_is_born_when_its_window_opens_to_start_at_the_time_decided(window: Window, opens: str) -> None:
    job = view("09:00", HOURLY, window=window)
    before = due(job, at(opens) - timedelta(microseconds=1))
    assert at("10:00") not in {birth.scheduled_time for birth in before.births}
    assert (before.wake_at, before.next_run_time) == (at(opens), decided(window, "10:00"))
    birth = due(job, at(opens)).births[-1]
    assert (birth.scheduled_time, birth.state) == (at("10:00"), RunState.PENDING)
    assert birth.chosen_time == decided(window, "10:00")
    assert birth.decision is not None
    assert birth.decision.chosen_time == birth.chosen_time


@pytest.mark.parametrize("length", ["1s", "5s", "1s500ms"])
def test_a_window_whose_half_is_no_whole_second_opens_at_the_second_before(length: str) -> None:
    window = Window.around(length)
    job = view("09:00", HOURLY, window=window)
    waiting = due(job, at("09:30"))
    assert waiting.wake_at == decide(window.request("job", at("10:00"), "UTC")).window_start
    assert waiting.wake_at < at("10:00")
    assert told(due(job, waiting.wake_at)) == ["10:00 PENDING"]


def test_the_seed_of_the_day_follows_the_jobs_own_zone() -> None:
    window = Window.after("3h", seed="daily")
    job = view("01:00", Cron("0 * * * *", tz="America/New_York"), window=window)
    birth = due(job, at("02:00")).births[0]
    assert birth.decision is not None
    assert birth.decision.period_key == "2026-01-04"
    assert birth.chosen_time == decided(window, "02:00", "America/New_York")


def test_windows_longer_than_the_period_bear_every_slot_once() -> None:
    policies: dict[str, Any] = {"overlap": "allow", "recovery": "all", "misfire_grace": "10m"}
    job, born = view("10:00", window=Window.around("10m"), **policies), []
    for minute in range(1, 6):
        plan = due(job, at(f"10:0{minute}"))
        born += told(plan)
        job = replace(job, planned_until=plan.planned_until)
    assert born == [f"10:{minute:02d} PENDING" for minute in range(1, 11)]


@pytest.mark.parametrize("overlap", ["skip", "queue", "coalesce", "replace"])
def test_a_run_in_a_window_is_not_judged_before_its_chosen_time(overlap: str) -> None:
    window = Window.after("30m")
    chosen = decided(window, "10:00")
    assert at("10:00:30") < chosen
    job = view("09:00", HOURLY, run("RUNNING", "09:00"), overlap=overlap, window=window)
    early = due(job, chosen - timedelta(seconds=1))
    assert (told(early), early.endings, early.cancels) == (["10:00 PENDING"], (), ())
    late = due(job, chosen)
    assert told(late) == ["10:00 SKIPPED (overlap)" if overlap == "skip" else "10:00 QUEUED"]


def test_a_late_run_in_a_window_is_missed_by_its_chosen_time_not_its_nominal_one() -> None:
    window = Window.after("30m")
    chosen = decided(window, "10:00")
    job = view("09:00", HOURLY, window=window, recovery="none")
    assert told(due(job, chosen + timedelta(seconds=60))) == ["10:00 PENDING"]
    assert told(due(job, chosen + timedelta(seconds=61))) == ["10:00 MISSED (missed)"]
    strict = view("09:00", HOURLY, window=window, deadline="0s")
    assert told(due(strict, chosen)) == ["10:00 PENDING"]
    assert told(due(strict, chosen + timedelta(seconds=1))) == ["10:00 MISSED (deadline)"]


def test_a_slot_for_which_nothing_can_be_chosen_is_recorded_as_unschedulable() -> None:
    job = view("09:00", HOURLY, window=Window.after("10m", only={"hours": "11"}))
    plan = due(job, at("10:00"))
    assert [(birth.scheduled_time, birth.state) for birth in plan.births] == [(at("10:00"), RunState.UNSCHEDULABLE)]
    assert plan.births[0].reason == "no candidate accepted within MaxAttempts"
    assert plan.births[0].decision is not None
    assert plan.births[0].decision.unschedulable
    following = due(replace(job, planned_until=plan.planned_until), at("11:00"))
    assert told(following) == ["11:00 PENDING"]


def moved(planned: str, slot: str, to: str, **policies: Any) -> JobView:
    return replace(view(planned, HOURLY, **policies), moved_slot=at(slot), moved_to=at(to))


@pytest.mark.parametrize("window", [None, Window.around("20m")])
def test_a_slot_moved_later_keeps_its_nominal_time_and_starts_at_the_new_one(window: Window | None) -> None:
    job = moved("09:00", "10:00", "10:20", window=window)
    before = due(job, at("09:30"))
    assert (told(before), before.next_run_time) == ([], at("10:20"))
    plan = due(job, at("10:00"))
    assert [(birth.scheduled_time, birth.chosen_time) for birth in plan.births] == [(at("10:00"), at("10:20"))]
    assert told(plan) == ["10:00 PENDING"]
    assert plan.planned_until == at("10:00")


@pytest.mark.parametrize("window", [None, Window.around("20m")])
def test_a_slot_moved_earlier_is_born_early_and_not_a_second_time(window: Window | None) -> None:
    job = moved("09:00", "10:00", "09:30", window=window)
    before = due(job, at("09:29:59"))
    assert (told(before), before.next_run_time, before.wake_at) == ([], at("09:30"), at("09:30"))
    plan = due(job, at("09:30"))
    assert [(birth.scheduled_time, birth.chosen_time) for birth in plan.births] == [(at("10:00"), at("09:30"))]
    assert (told(plan), plan.planned_until) == (["10:00 PENDING"], at("10:00"))
    assert told(due(replace(job, planned_until=plan.planned_until), at("10:00"))) == []


def test_grace_deadline_and_overlap_count_from_where_the_slot_was_moved_to() -> None:
    later = moved("09:00", "10:00", "10:20", deadline="90s", recovery="none")
    assert told(due(later, at("10:21"))) == ["10:00 PENDING"]
    assert told(due(later, at("10:21:01"))) == ["10:00 MISSED (missed)"]
    earlier = moved("09:00", "10:00", "09:30")
    assert told(due(earlier, at("10:00"))) == ["10:00 PENDING recovery"]
    assert told(due(moved("09:00", "10:00", "09:30", deadline="10m"), at("10:00"))) == ["10:00 MISSED (deadline)"]
    busy = replace(later, active=(run("RUNNING", "09:00"),))
    assert told(due(busy, at("10:19:59"))) == ["10:00 PENDING"]
    assert told(due(busy, at("10:20"))) == ["10:00 SKIPPED (overlap)"]


def test_the_slots_around_a_moved_one_stay_where_they_are() -> None:
    job = moved("09:00", "10:00", "11:30", overlap="allow", recovery="all", misfire_grace="3h")
    plan = due(job, at("12:00"))
    chosen = {hours(birth.scheduled_time): hours(birth.chosen_time) for birth in plan.births}
    assert chosen == {"10:00:00": "11:30:00", "11:00:00": "11:00:00", "12:00:00": "12:00:00"}


def test_the_next_occurrence_ends_a_retry_that_goes_on_until_then() -> None:
    job = view("09:59", MINUTELY, run("PENDING", "09:59", parked=True), retry=Retry(None, "30s"))
    plan = due(job, at("10:00"))
    assert told(plan) == ["10:00 PENDING"]
    assert plan.endings == (Ending("parked", RunState.FAILED, "superseded"),)
    assert due(job, at("09:59:59")).endings == ()


def test_a_retry_with_a_number_of_tries_is_not_superseded_but_counts() -> None:
    job = view("09:59", MINUTELY, run("PENDING", "09:59", parked=True), retry=Retry(3, "30s"))
    plan = due(job, at("10:00"))
    assert told(plan) == ["10:00 SKIPPED (overlap)"]
    assert plan.endings == ()


def test_a_make_up_run_supersedes_a_waiting_retry_as_well() -> None:
    job = view("09:00", HOURLY, run("PENDING", "09:00", parked=True), retry=Retry(None, "30s"))
    plan = due(job, at("10:30"))
    assert told(plan) == ["10:00 PENDING recovery"]
    assert plan.endings == (Ending("parked", RunState.FAILED, "superseded"),)
