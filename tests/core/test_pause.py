"""The rows of a pause: what becomes of its slots, however often the job is looked at meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.test_occurrence import at

from horae.core.job.definition import effective
from horae.core.run.backlog import Backlog
from horae.core.run.due import DueDecision, NewRunRow, due
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import JobState, RunState
from horae.core.run.pause import PauseRow, rows_of_pause
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Schedule

MINUTELY = Cron("* * * * *")
SCHEDULES: tuple[Schedule, ...] = (MINUTELY, Cron("*/7 6-8,10 * * *"), Every("20s", anchor=at("06:00")))


def slow_rows(slots: list[datetime]) -> list[list[datetime]]:
    """Slot by slot, as people say it: the first alone, all others together."""
    return [group for group in (slots[:1], slots[1:]) if group]


def paused(cursor: datetime, schedule: Schedule = MINUTELY, newest: PauseRow | None = None) -> JobView:
    return JobView("job", schedule, effective({}), cursor, JobState.PAUSED, newest_paused=newest)


def test_the_first_slot_of_a_pause_is_a_row_of_its_own() -> None:
    plan = due(paused(at("10:00")), at("10:01:30"))
    assert plan.births == (NewRunRow(at("10:01"), RunState.SKIPPED, at("10:01"), "paused"),)
    assert (plan.grown, plan.planned_until, plan.wake_at) == (None, at("10:01"), at("10:02"))


def test_the_second_begins_a_span_that_is_known_by_that_slot() -> None:
    plan = due(paused(at("10:01"), newest=PauseRow(at("10:01"), at("10:01"))), at("10:02:30"))
    (span,) = plan.births
    assert (span.scheduled_time, span.covers_from, span.covers_to, span.count) == (
        *(at("10:02"), at("10:01"), at("10:02"), 1),
    )
    assert plan.grown is None


def test_from_the_third_on_the_span_grows_and_nothing_is_born() -> None:
    span = PauseRow(at("10:02"), at("10:05"), at("10:01"), 4)
    plan = due(paused(at("10:05"), newest=span), at("10:07:30"))
    assert plan.births == ()
    assert plan.grown == PauseRow(at("10:02"), at("10:07"), at("10:01"), 6)
    assert (plan.planned_until, plan.wake_at) == (at("10:07"), at("10:08"))


def test_a_row_that_does_not_end_at_the_cursor_is_of_another_pause() -> None:
    for newest in (PauseRow(at("10:01"), at("10:01")), PauseRow(at("10:02"), at("10:05"), at("10:01"), 4)):
        plan = due(paused(at("10:20"), newest=newest), at("10:21:30"))
        assert plan.grown is None
        assert [(birth.scheduled_time, birth.covers_from) for birth in plan.births] == [(at("10:21"), None)]


def test_a_span_grows_up_to_the_end_of_its_pause_and_what_follows_is_planned_in_the_same_pass() -> None:
    span = PauseRow(at("10:02"), at("10:05"), at("10:01"), 4)
    job = replace(paused(at("10:05"), newest=span), paused_until=at("10:06:30"))
    plan = due(job, at("10:07:10"))
    assert (plan.resumed, plan.grown) == (True, PauseRow(at("10:02"), at("10:06"), at("10:01"), 5))
    assert [(birth.scheduled_time, birth.state) for birth in plan.births] == [(at("10:07"), RunState.PENDING)]


def test_no_slot_changes_nothing() -> None:
    span = PauseRow(at("10:02"), at("10:05"), at("10:01"), 4)
    assert rows_of_pause(Backlog(MINUTELY, at("10:05"), at("10:05:59")), span) == (None, ())


def applied(rows: list[PauseRow], plan: DueDecision) -> list[PauseRow]:
    """The rows as a store keeps them."""
    if plan.grown is not None:
        assert plan.grown.slot == rows[-1].slot
        rows = [*rows[:-1], plan.grown]
    born = [
        PauseRow(birth.scheduled_time, birth.covers_to or birth.scheduled_time, birth.covers_from, birth.count)
        for birth in plan.births
    ]
    return [*rows, *born]


@given(st.sampled_from(SCHEDULES), st.lists(st.integers(0, 40 * 60), min_size=1, max_size=8))
def test_however_the_passes_fall_the_rows_of_a_pause_are_the_same(schedule: Schedule, steps: list[int]) -> None:
    now = begin = at("06:00")
    rows: list[PauseRow] = []
    for step in steps:
        now += timedelta(seconds=step)
        cursor = rows[-1].until if rows else begin
        plan = due(paused(cursor, schedule, rows[-1] if rows else None), now)
        rows = applied(rows, plan)
        assert plan.planned_until == (rows[-1].until if rows else begin)
    expected = slow_rows(list(schedule.between(begin, now)))
    assert [(row.slot, row.until, row.length) for row in rows] == [(each[0], each[-1], len(each)) for each in expected]
    assert [row.after for row in rows] == [None, *(each[0] for each in expected[:1])][: len(rows)]


@pytest.mark.parametrize("every", [timedelta(hours=1), timedelta(days=1), timedelta(days=90)])
def test_ninety_days_of_a_paused_minutely_job_are_two_rows_however_often_it_is_planned(every: timedelta) -> None:
    now, rows = at("06:00"), list[PauseRow]()
    for _ in range(timedelta(days=90) // every):
        now += every
        cursor = rows[-1].until if rows else at("06:00")
        rows = applied(rows, due(paused(cursor, newest=rows[-1] if rows else None), now))
    assert [row.length for row in rows] == [1, 129_599]
