"""Small spans with known answers: the engine's own rules, seen through what a rehearsal reports."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.simulate.acting import START, clock, later, part, played, span, states

from horae.core.change.succession import Stage
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once
from horae.core.window.window import Window
from horae.errors import DependencyCycle, InvalidDefinition, InvalidInput
from horae.simulate.draws import DrawOptions, Draws
from horae.simulate.engine import MOST_RUNS, SimulatedSpan, check_size, count_scheduled, simulate_span
from horae.simulate.jobs import SimulatedJob, SimulatedJobs
from horae.simulate.simulate import play


def test_a_run_that_comes_due_beside_another_is_skipped_and_told_with_its_first_times() -> None:
    result = played(part("etl", "*/10 * * * *", 900))
    assert states(result, "etl") == {"COMPLETED": 6, "SKIPPED": 6}
    (overlap,) = result.overlaps
    assert (overlap.job, overlap.reason, overlap.count) == ("etl", "overlap", 6)
    assert [clock(at) for at in overlap.first] == ["00:10", "00:30", "00:50"]


def test_a_job_that_queues_waits_for_itself_and_for_nothing_else() -> None:
    result = played(part("etl", "*/30 * * * *", 2400, overlap="queue"))
    (job,) = result.jobs
    assert job.states == {"COMPLETED": 2, "QUEUED": 1, "RUNNING": 1}
    assert (job.itself.runs, job.itself.longest) == (2, 1200)
    assert result.dependencies.runs == result.room.runs == 0


def test_a_job_waits_for_what_it_depends_on_and_for_how_long_is_told() -> None:
    result = played(part("first", seconds=600), part("second", seconds=60, depends_on=["first"]))
    waited = {job.job: (job.dependencies.runs, job.dependencies.longest) for job in result.jobs}
    assert waited == {"first": (0, 0), "second": (2, 600)}
    assert result.states == {"COMPLETED": 4}
    assert result.load.peak == 1


def test_what_finds_no_room_in_a_pool_before_its_deadline_is_missed() -> None:
    jobs = [part(name, seconds=600, pool="one", deadline="1m") for name in ("a", "b")]
    result = played(*jobs, pools={"one": 1})
    assert result.states == {"COMPLETED": 2, "MISSED": 2}
    (missed,) = result.missed
    assert (missed.state, missed.reason, missed.count) == ("MISSED", "deadline", 2)


def test_runs_that_wait_for_a_pool_are_told_with_the_longest_and_the_usual_wait() -> None:
    jobs = [part(f"job-{number}", seconds=600, pool="two") for number in range(5)]
    result = played(*jobs, length="1h", pools={"two": 2})
    assert (result.room.runs, result.room.longest, result.room.most) == (3, 1200, 1200)
    assert result.load.peak == 2


def test_slots_bound_what_runs_at_once() -> None:
    result = played(*(part(f"job-{number}", seconds=60) for number in range(6)), length="1h", slots=4)
    assert (result.load.peak, result.room.runs, result.room.longest) == (4, 2, 60)
    (peak,) = result.load.peaks
    assert (peak.at, peak.runs, peak.seconds, len(peak.jobs)) == (START, 4, 60, 4)


def test_a_run_that_takes_longer_than_it_may_is_cut_off_and_told_among_what_was_missed() -> None:
    result = played(part("slow", seconds=600, execution_timeout="5m"))
    (cut,) = result.missed
    assert (cut.job, cut.reason, cut.count) == ("slow", "timeout", 2)
    assert result.jobs[0].seconds == 300


def test_a_task_that_takes_longer_than_it_may_is_tried_again_and_fails() -> None:
    retry = {"max_retries": 1, "interval": "5m"}
    result = played(part("slow", seconds=600, task_timeout="1m", retry=retry), length="1h")
    (job,) = result.jobs
    assert (job.states, job.retries, job.timeouts) == ({"FAILED": 1}, 1, 2)


def test_a_sequence_shares_the_time_of_its_job_and_parallel_tasks_take_it_together() -> None:
    names = ("one", "two", "three")
    result = played(part("row", seconds=90, tasks=names), part("beside", seconds=90, tasks=names, mode="parallel"))
    assert [job.seconds for job in result.jobs] == [90, 90]


def test_runs_fail_as_often_as_they_did_before_and_only_if_asked() -> None:
    jobs = [part(f"job-{number}", "*/5 * * * *", 10, failed=(1, 4)) for number in range(10)]
    assert played(*jobs, length="4h").states == {"COMPLETED": 480}
    result = played(*jobs, length="4h", chance=DrawOptions(fails=True))
    assert result.states["FAILED"] + result.states["COMPLETED"] == 480
    assert 85 <= result.states["FAILED"] <= 155
    assert sum(each.count for each in result.troubled("FAILED")) == result.states["FAILED"]


def test_lengths_are_drawn_from_the_past_and_assumed_where_there_is_none() -> None:
    result = played(part("known", "*/5 * * * *", (10, 20)), part("new"), part("busy", "* * * * *"), length="3h")
    seconds = {job.job: job.seconds for job in result.jobs}
    assert seconds == {"known": 20, "new": 60, "busy": 30}
    assert result.assumed == ("new", "busy")
    assert [job.job for job in result.jobs if job.assumed] == ["busy", "new"]
    assert played(part("known", seconds=10), chance=DrawOptions(seconds=90)).jobs[0].seconds == 90


def test_slots_right_at_the_start_belong_to_the_span_and_those_right_at_its_end_do_not() -> None:
    result = played(part("hourly", seconds=60), part("every", Every("1h"), 60))
    assert {job.job: job.started for job in result.jobs} == {"hourly": 2, "every": 1}
    assert result.heat.hours[0][0] == 1


def test_what_is_off_paused_or_over_does_not_run() -> None:
    off, paused = part("off"), part("paused")
    jobs = [
        SimulatedJob(_in(off, JobState.DISABLED).spec),
        SimulatedJob(_in(paused, JobState.PAUSED).spec, paused_until=later("90m")),
        part("over", Once(later("0s").replace(year=2026))),
        part("hourly", "30 * * * *"),
    ]
    result = played(*jobs, length="3h")
    assert states(result, "off") == states(result, "over") == {}
    assert states(result, "paused") == {"SKIPPED": 2, "COMPLETED": 1}
    assert states(result, "hourly") == {"COMPLETED": 3}


def _in(given: SimulatedJob, state: JobState) -> SimulatedJob:
    return replace(given, spec=replace(given.spec, state=state))


def test_a_slot_that_was_moved_starts_where_it_was_moved_to() -> None:
    moved = SimulatedJob(part("hourly", seconds=60).spec, moved=(START, later("25m")))
    assert [minute for minute, count in enumerate(played(moved).heat.hours[0]) if count] == [25]


def test_what_an_earlier_version_announced_is_still_its_own() -> None:
    before, after = part("job", "30 * * * *"), part("job", "0 * * * *")
    changing = SimulatedJob(after.spec, earlier=(Stage(1, later("90m"), before.spec.schedule, None),))
    heat = played(changing, length="4h").heat.hours
    assert [minute for hour in heat[:4] for minute, count in enumerate(hour) if count] == [30, 30, 0, 0]


def test_a_window_without_room_makes_slots_unschedulable() -> None:
    window = Window.after("10m", only=[{"hours": [5]}])
    result = played(part("picky", window=window))
    assert states(result, "picky") == {"UNSCHEDULABLE": 2}
    (trouble,) = result.troubled("UNSCHEDULABLE")
    assert (trouble.job, trouble.why) == ("picky", "none of 64 draws in its window is a time that only and avoid allow")


def test_the_same_seed_gives_the_same_answer_and_another_one_another() -> None:
    jobs = [part(f"job-{number}", "*/7 * * * *", range(1, 400, 13), failed=(1, 3)) for number in range(6)]

    def said(seed: int) -> str:
        return json.dumps(played(*jobs, length="4h", chance=DrawOptions(seed, fails=True), suggest=True).to_dict())

    assert said(1) == said(1)
    assert said(1) != said(2)


def test_hours_are_those_of_the_clocks_that_were_asked_for() -> None:
    result = played(part("hourly", "15 * * * *"), length="1h", timezone="Asia/Kolkata")
    assert [(hour, row.index(1)) for hour, row in enumerate(result.heat.hours) if any(row)] == [(5, 45)]


def test_days_are_told_apart() -> None:
    result = played(part("daily", "0 9 * * *"), length="3d")
    assert [(day.day, hours[9], sum(hours)) for day, hours in result.heat.days] == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]


def test_more_runs_than_can_be_shown_are_refused_before_anything_is_done() -> None:
    cast = SimulatedJobs((part("often", Every("1s")), part("hourly")))
    with pytest.raises(InvalidInput, match=r"604,967 runs, and at most 200,000") as refused:
        check_size(cast, span("7d"))
    assert "often alone has 604,799" in (refused.value.hint or "")
    assert MOST_RUNS == 200_000


def test_what_an_earlier_version_says_and_what_a_pause_lets_go_on_counts_as_well() -> None:
    often, hourly = part("often", Every("1s")), part("often")
    announced = SimulatedJob(hourly.spec, earlier=(Stage(1, later("3d"), often.spec.schedule, None),))
    with pytest.raises(InvalidInput, match=r"259,\d{3} runs"):
        check_size(SimulatedJobs((announced,)), span("4d"))
    check_size(
        SimulatedJobs((SimulatedJob(hourly.spec, earlier=(Stage(1, later("1d"), often.spec.schedule, None),)),)),
        span("4d"),
    )
    paused = replace(_in(often, JobState.PAUSED), paused_until=later("1d"))
    with pytest.raises(InvalidInput, match=r"259,\d{3} runs"):
        check_size(SimulatedJobs((paused,)), span("4d"))
    assert count_scheduled(SimulatedJobs((paused,)), span("1d")) == {}
    assert count_scheduled(SimulatedJobs((_in(often, JobState.PAUSED),)), span("4d")) == {}


def test_a_clock_change_that_skips_or_repeats_slots_is_told_with_the_jobs_it_concerns() -> None:
    night = datetime(2027, 3, 27, 12, tzinfo=UTC)
    jobs = [
        part("skipped", Cron("30 2 * * *", "Europe/Berlin")),
        part("noon", Cron("0 12 * * *", "Europe/Berlin")),
        part("utc", "30 2 * * *"),
        _in(part("off", Cron("30 2 * * *", "Europe/Berlin")), JobState.DISABLED),
    ]
    spring = play(
        SimulatedJobs(tuple(jobs)), SimulatedSpan(night, night + timedelta(days=1)), DrawOptions(), suggest=False
    )
    assert [(each.job, each.effect.kind, each.effect.wall) for each in spring.clock_changes] == [
        ("skipped", "skipped", "2027-03-28 02:30")
    ]
    autumn = datetime(2027, 10, 30, 12, tzinfo=UTC)
    hourly = part("hourly", Cron("15 * * * *", "Europe/Berlin"))
    result = play(
        SimulatedJobs((hourly,)), SimulatedSpan(autumn, autumn + timedelta(days=1)), DrawOptions(), suggest=False
    )
    (change,) = result.clock_changes
    assert (change.effect.kind, result.started) == ("repeated", 24)
    assert played(hourly).clock_changes == ()


def test_definitions_that_no_catalog_would_take_are_refused_as_there() -> None:
    with pytest.raises(InvalidDefinition, match='depends on "gone"'):
        played(part("job", depends_on=["gone"]))
    with pytest.raises(DependencyCycle):
        played(part("a", depends_on=["b"]), part("b", depends_on=["a"]))
    with pytest.raises(InvalidInput, match="before it begins"):
        span("0s")


def test_progress_is_told_up_to_the_end() -> None:
    told: list[datetime] = []
    cast = SimulatedJobs((part("hourly", seconds=60),))
    simulate_span(cast, span("1h"), Draws(DrawOptions(), cast.parts, START), told.append)
    assert told == sorted(told)
    assert clock(told[-1]) == "00:59"
