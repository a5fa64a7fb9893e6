"""Slots that were missed: which are caught up on, which are only recorded, and what that costs after a year."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from time import process_time
from typing import Any, ClassVar

import pytest
from tests.core.test_occurrence import A_YEAR, HOURLY, MINUTELY, at, decided, run, told, view

from horae import Bounded, Every, Once, Window
from horae.core.job.definition import effective, parse_settings
from horae.core.run.due import LONGEST_ROWS, DueDecision, JobView, NewRunRow, due
from horae.core.run.lifecycle import JobState, RunState
from horae.core.window.decision import decide

EVERY_POLICY: tuple[Any, ...] = ("last", "all", "none", Bounded(2), Bounded(max_age="2h"), "compressed")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("last", ["07:00 MISSED (missed)", "08:00 MISSED (missed)", "09:00 MISSED (missed)", "10:00 PENDING recovery"]),
        (
            "all",
            ["07:00 PENDING recovery", "08:00 QUEUED recovery", "09:00 QUEUED recovery", "10:00 QUEUED recovery"],
        ),
        ("none", [f"{hour} MISSED (missed)" for hour in ("07:00", "08:00", "09:00", "10:00")]),
        (
            Bounded(2),
            [
                "07:00 MISSED (too many to catch up on)",
                "08:00 MISSED (too many to catch up on)",
                "09:00 PENDING recovery",
                "10:00 QUEUED recovery",
            ],
        ),
        (
            Bounded(max_age="2h"),
            [
                "07:00 MISSED (too old to catch up on)",
                "08:00 MISSED (too old to catch up on)",
                "09:00 PENDING recovery",
                "10:00 QUEUED recovery",
            ],
        ),
        (
            Bounded(1, "3h"),
            [
                "07:00 MISSED (too old to catch up on)",
                "08:00 MISSED (too many to catch up on)",
                "09:00 MISSED (too many to catch up on)",
                "10:00 PENDING recovery",
            ],
        ),
        (
            Bounded(3, "1h"),
            [
                "07:00 MISSED (too old to catch up on)",
                "08:00 MISSED (too old to catch up on)",
                "09:00 MISSED (too old to catch up on)",
                "10:00 PENDING recovery",
            ],
        ),
        ("compressed", ["10:00 PENDING recovery 4 slots 06:00-10:00"]),
    ],
    ids=str,
)
def test_what_becomes_of_four_missed_slots(policy: Any, expected: list[str]) -> None:
    plan = due(view("06:00", HOURLY, recovery=policy), at("10:30"))
    assert told(plan) == expected
    assert plan.planned_until == at("10:00")
    assert plan.next_run_time == plan.wake_at == at("11:00")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("last", ["08:00 MISSED (missed)", "09:00 MISSED (missed)", "10:00 PENDING"]),
        ("all", ["08:00 PENDING recovery", "09:00 QUEUED recovery", "10:00 QUEUED"]),
        ("none", ["08:00 MISSED (missed)", "09:00 MISSED (missed)", "10:00 PENDING"]),
        (Bounded(1), ["08:00 MISSED (too many to catch up on)", "09:00 PENDING recovery", "10:00 QUEUED"]),
        (Bounded(max_age="90m"), ["08:00 MISSED (too old to catch up on)", "09:00 PENDING recovery", "10:00 QUEUED"]),
        ("compressed", ["09:00 PENDING recovery 2 slots 07:00-09:00", "10:00 QUEUED"]),
    ],
    ids=str,
)
def test_what_becomes_of_two_missed_slots_beside_one_within_grace(policy: Any, expected: list[str]) -> None:
    assert told(due(view("07:00", HOURLY, recovery=policy, overlap="queue"), at("10:00:30"))) == expected


def test_only_one_of_several_slots_within_grace_is_run_where_others_were_missed() -> None:
    plan = due(view("09:55", MINUTELY, misfire_grace="150s", overlap="allow"), at("10:00:30"))
    missed = ["09:56", "09:57", "09:58", "09:59"]
    assert told(plan) == [*(f"{slot} MISSED (missed)" for slot in missed), "10:00 PENDING"]


@pytest.mark.parametrize("overlap", ["skip", "allow", "queue", "coalesce", "replace"])
def test_after_a_short_downtime_the_newest_slot_within_grace_runs_and_the_older_are_recorded(overlap: str) -> None:
    plan = due(view("09:57", MINUTELY, misfire_grace="150s", overlap=overlap), at("10:00:30"))
    assert told(plan) == ["09:58 MISSED (missed)", "09:59 MISSED (missed)", "10:00 PENDING"]


@pytest.mark.parametrize("policy", ["all", "none", Bounded(5), "compressed"], ids=str)
def test_slots_within_grace_are_all_ordinary_under_other_policies(policy: Any) -> None:
    plan = due(view("09:57", MINUTELY, misfire_grace="150s", overlap="allow", recovery=policy), at("10:00:30"))
    assert told(plan) == ["09:58 PENDING", "09:59 PENDING", "10:00 PENDING"]


def test_the_slot_within_grace_stays_the_one_run_even_if_overlap_skips_it() -> None:
    plan = due(view("08:00", HOURLY, run("RUNNING", "08:00")), at("10:00:30"))
    assert told(plan) == ["09:00 MISSED (missed)", "10:00 SKIPPED (overlap)"]


def test_a_slot_whose_window_is_open_but_whose_time_has_not_come_is_not_yet_the_one_run() -> None:
    window = Window.before("30m")
    now = decided(window, "11:00") - timedelta(seconds=1)
    assert at("10:31") < now < at("11:00")
    plan = due(view("09:00", HOURLY, window=window), now)
    assert told(plan) == ["10:00 PENDING recovery", "11:00 PENDING"]


def test_a_recovery_run_lines_up_behind_whatever_is_about() -> None:
    for about in (run("RUNNING", "08:00"), run("QUEUED", "08:00"), run("PENDING", "08:00")):
        assert told(due(view("09:00", HOURLY, about, overlap="allow"), at("10:30"))) == ["10:00 QUEUED recovery"]
    waiting = run("PENDING", "08:00", "10:40")
    assert told(due(view("09:00", HOURLY, waiting), at("10:30"))) == ["10:00 PENDING recovery"]


def test_a_slot_exactly_as_old_as_the_bound_is_still_caught_up_on() -> None:
    job = view("07:00", HOURLY, recovery=Bounded(max_age="2h"))
    assert told(due(job, at("10:00:00")))[:2] == ["08:00 PENDING recovery", "09:00 QUEUED recovery"]
    assert told(due(job, at("10:00:01")))[0] == "08:00 MISSED (too old to catch up on)"


def test_two_hundred_hours_down_with_a_bound_of_a_day_runs_24_and_records_176() -> None:
    now = at("10:30")
    job = replace(view("00:00", HOURLY, recovery=Bounded(max_age="24h")), planned_until=now - timedelta(hours=200))
    recorded, *runs = due(job, now).births
    assert (recorded.state, recorded.count) == (RunState.MISSED, 176)
    assert [birth.scheduled_time for birth in runs] == [
        at("10:00") - timedelta(hours=back) for back in range(23, -1, -1)
    ]
    assert all(birth.is_recovery for birth in runs)


def test_a_compressed_run_goes_back_to_the_last_completed_coverage() -> None:
    job = view("06:00", HOURLY, recovery="compressed")
    (birth,) = due(replace(job, covered_until=at("03:00")), at("10:30")).births
    assert (birth.scheduled_time, birth.covers_from, birth.covers_to) == (at("10:00"), at("03:00"), at("10:00"))
    assert birth.count == 4


def test_a_compressed_run_covers_all_that_was_missed_whatever_was_covered_beyond_it() -> None:
    job = view("06:00", HOURLY, recovery="compressed")
    (birth,) = due(replace(job, covered_until=at("08:30")), at("10:30")).births
    assert (birth.covers_from, birth.covers_to, birth.count) == (at("06:00"), at("10:00"), 4)


def test_a_compressed_run_also_covers_what_passed_while_the_job_was_paused() -> None:
    job = replace(view("06:00", HOURLY, recovery="compressed"), state=JobState.PAUSED, paused_until=at("08:30"))
    assert told(due(job, at("10:30"))) == [
        "07:00 SKIPPED (paused)",
        "08:00 SKIPPED (paused) 1 slots 07:00-08:00",
        "10:00 PENDING recovery 2 slots 06:00-10:00",
    ]


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=str)
def test_a_new_definition_does_not_catch_up_on_what_was_before_it(policy: Any) -> None:
    job = replace(view("07:00", HOURLY, recovery=policy), first_seen=True)
    assert told(due(job, at("10:00:30"))) == ["08:00 MISSED (missed)", "09:00 MISSED (missed)", "10:00 PENDING"]


def test_a_time_just_past_when_it_is_first_seen_runs_at_once_and_later_is_missed() -> None:
    job = replace(view("00:00", Once(at("10:00"))), first_seen=True)
    assert told(due(job, at("10:01"))) == ["10:00 PENDING"]
    assert told(due(job, at("10:01:01"))) == ["10:00 MISSED (missed)"]


def test_every_slot_that_a_compressed_run_would_have_covered_is_recorded_when_it_is_past_its_deadline() -> None:
    plan = due(view("06:00", HOURLY, recovery="compressed", deadline="0s"), at("10:30"))
    assert {birth.state for birth in plan.births} == {RunState.MISSED}
    assert sum(birth.count for birth in plan.births) == 4


NIGHT = Window.after("10m", only={"hours": "0-8"})


@pytest.mark.parametrize("policy", ["last", "compressed"])
def test_a_slot_that_could_never_have_run_is_not_the_one_chosen_to_make_up(policy: str) -> None:
    for slot in ("07:00", "08:00"):
        assert decide(NIGHT.request("job", at(slot), "UTC")).chosen_time is not None
    plan = due(view("06:00", HOURLY, recovery=policy, window=NIGHT), at("12:30"))
    made_up = [(birth.scheduled_time, birth.state) for birth in plan.births if birth.is_recovery]
    assert made_up == [(at("08:00"), RunState.PENDING)]


def minutes_down(count: int, **policies: Any) -> DueDecision:
    """A minutely job plans again at 10:00, when exactly so many of its slots have been missed."""
    now = at("10:00:30")
    job = view("00:00", MINUTELY, misfire_grace="30s", **policies)
    return due(replace(job, planned_until=at("10:00") - timedelta(minutes=count + 1)), now)


def test_a_hundred_missed_slots_are_a_hundred_rows_and_one_more_makes_it_one() -> None:
    rows = minutes_down(LONGEST_ROWS, recovery="none").births[:-1]
    assert len(rows) == LONGEST_ROWS == 100
    assert {(birth.state, birth.count, birth.covers_from) for birth in rows} == {(RunState.MISSED, 1, None)}
    span, ordinary = minutes_down(101, recovery="none").births
    first, last = at("08:19"), at("09:59")
    before = first - timedelta(minutes=1)
    assert span == NewRunRow(last, RunState.MISSED, last, "missed", covers_from=before, covers_to=last, count=101)
    assert (ordinary.scheduled_time, ordinary.state) == (at("10:00"), RunState.PENDING)


def test_long_spans_beside_a_run_that_is_kept_are_one_row_too() -> None:
    for policy, kept in (("last", 0), (Bounded(5), 5), (Bounded(max_age="5m30s"), 5)):
        assert len(minutes_down(kept + 100, recovery=policy).births) == 100 + kept + 1
        span, *rest = minutes_down(kept + 101, recovery=policy).births
        assert (span.state, span.count, len(rest)) == (RunState.MISSED, 101, kept + 1)
    assert len(due(view("06:00", recovery="last"), at("10:01:30")).births) == 2


def test_a_long_pause_is_its_first_slot_and_one_row_for_the_others() -> None:
    job = replace(view("00:00"), state=JobState.PAUSED)
    first, span = due(job, at("01:41")).births
    assert (first.scheduled_time, first.covers_from, first.count) == (at("00:01"), None, 1)
    assert (span.state, span.reason, span.count) == (RunState.SKIPPED, "paused", 100)
    assert (span.covers_from, span.covers_to, span.scheduled_time) == (at("00:01"), at("01:41"), at("00:02"))


def test_a_long_span_past_its_deadline_is_one_row() -> None:
    plan = minutes_down(300, recovery="all", deadline="0s")
    assert {birth.state for birth in plan.births} == {RunState.MISSED}
    assert sum(birth.count for birth in plan.births) == 301
    assert len(plan.births) <= 2


def test_a_long_span_that_overlaps_is_one_row() -> None:
    running = run("RUNNING", "09:50")
    job = view("09:50", Every("1s", start=at("00:00")), running, misfire_grace="1h", recovery="none")
    plan = due(job, at("10:00"), limit=1000)
    assert sum(birth.count for birth in plan.births) == 600
    assert len(plan.births) == 1


def resumed(job: JobView, now: datetime, limit: int) -> list[NewRunRow]:
    """All that is born when the work is cut short again and again; nothing starts or ends in between."""
    births: list[NewRunRow] = []
    for _ in range(1000):
        plan = due(job, now, limit=limit)
        births += plan.births
        assert plan.planned_until >= job.planned_until
        if not plan.more:
            return births
        assert plan.wake_at == now
        job = replace(job, planned_until=plan.planned_until)
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=str)
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_work_cut_short_goes_on_without_losing_or_doubling_a_slot(policy: Any, limit: int) -> None:
    job = view("03:00", HOURLY, recovery=policy, overlap="allow")
    whole = due(job, at("10:00:30"))
    assert not whole.more
    born = resumed(job, at("10:00:30"), limit)
    slots = [birth.scheduled_time for birth in born]
    assert len(set(slots)) == len(slots)
    assert [(b.scheduled_time, b.is_recovery) for b in born] == [
        (b.scheduled_time, b.is_recovery) for b in whole.births
    ]


def test_at_most_so_many_runs_are_born_at_once() -> None:
    plan = due(view("00:00", MINUTELY, recovery="all"), at("09:59"), limit=10)
    assert len(plan.births) == 10
    assert (plan.more, plan.wake_at, plan.planned_until) == (True, at("09:59"), at("00:10"))
    assert plan.next_run_time == at("00:11")


@pytest.mark.parametrize("policy", ["last", "all", "none", Bounded(3)], ids=str)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_nothing_is_lost_where_a_window_chooses_a_later_slot_first(policy: Any, limit: int) -> None:
    window = Window.after("20m")
    job = view("09:00", MINUTELY, window=window, recovery=policy, overlap="allow", misfire_grace="1s")
    chosen = [decided(window, f"09:{minute:02d}") for minute in range(1, 60)]
    assert chosen != sorted(chosen)
    whole, parts = due(job, at("09:45")), resumed(job, at("09:45"), limit)
    slots = [at(f"09:{minute:02d}") for minute in range(1, 46)]
    assert sorted(birth.scheduled_time for birth in whole.births) == slots
    assert sorted(birth.scheduled_time for birth in parts) == slots


class Walked(Every):
    """Counts how often it is asked, and has enough of it at some point."""

    asked: ClassVar[int] = 0
    most: ClassVar[int] = 5_000

    @classmethod
    def from_start(cls, start: datetime) -> Walked:
        cls.asked = 0
        return cls("1s", start=start)

    def next(self, after: datetime) -> datetime | None:
        self._count()
        return super().next(after)

    def previous(self, before: datetime) -> datetime | None:
        self._count()
        return super().previous(before)

    @classmethod
    def _count(cls) -> None:
        cls.asked += 1
        assert cls.asked <= cls.most, f"asked for more than {cls.most} slots, where 500 runs may be born"


YEAR_AGO = at("10:00") - A_YEAR


def a_year_down(**policies: Any) -> JobView:
    return JobView("job", Walked.from_start(YEAR_AGO), effective(parse_settings(policies)), YEAR_AGO)


@pytest.mark.parametrize("policy", [*EVERY_POLICY, Bounded(400), Bounded(max_age="30d")], ids=str)
def test_a_year_of_missed_seconds_is_planned_at_once(policy: Any) -> None:
    job = a_year_down(recovery=policy, overlap="allow", misfire_grace="2s")
    begun = process_time()
    plan = due(job, at("10:00:00.5"))
    assert process_time() - begun < 5  # walking the slots would take half a minute
    if policy == "all" or policy == Bounded(max_age="30d") or policy == Bounded(max_age="2h"):
        assert plan.more
    else:
        assert not plan.more
        accounted = sum(birth.count for birth in plan.births)
        assert accounted == A_YEAR // timedelta(seconds=1)


def test_a_year_of_paused_seconds_is_recorded_at_once() -> None:
    job = replace(a_year_down(), state=JobState.PAUSED)
    first, span = due(job, at("10:00")).births
    assert first.count + span.count == A_YEAR // timedelta(seconds=1)


def test_a_large_bound_does_not_make_every_pass_as_large() -> None:
    plan = due(a_year_down(recovery=Bounded(100_000)), at("10:00"))
    assert plan.more


def test_a_slot_that_was_moved_before_a_year_of_downtime_does_not_make_the_year_longer() -> None:
    first = YEAR_AGO + timedelta(seconds=1)
    job = replace(a_year_down(), moved_slot=first, moved_to=first + timedelta(minutes=5))
    plan = due(job, at("10:00"))
    assert sum(birth.count for birth in plan.births) == A_YEAR // timedelta(seconds=1)
