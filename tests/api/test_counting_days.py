"""Slots counted by day without walking them, compared with walking them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest

from horae import Cron, Every, Iso8601
from horae.core.schedule.schedules import Schedule
from horae.core.time.zone import zone
from horae.services.year_calendar import bounds_of, clock_changes, count_days, local_day, step_of, year_of

ZONES = ("UTC", "Europe/Brussels", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu", "America/Sao_Paulo")
START = datetime(2017, 12, 31, 20, 0, tzinfo=UTC)
SCHEDULES = (
    "0 0 * * *",
    "*/7 23,0,1,2 * * *",
    "*/20 * * * 1-5",
    "30 2 1 * *",
)


def walked(schedule: Schedule, year: int, after: datetime | None = None) -> Counter[date]:
    """One slot after the other."""
    clocks = zone(schedule.timezone)
    begin, end = bounds_of(year)
    found: Counter[date] = Counter()
    for slot in schedule.between(begin if after is None else max(begin, after), end):
        day = clocks.wall(slot).date()
        if day.year == year:
            found[day] += 1
    return found


@pytest.mark.parametrize("timezone", ZONES)
@pytest.mark.parametrize("expression", SCHEDULES)
def test_crons_are_counted_as_if_they_were_walked(expression: str, timezone: str) -> None:
    schedule = Cron(expression, timezone)
    counted = count_days(schedule, 2018)
    assert counted.days == walked(schedule, 2018)
    assert counted.until is None
    after = datetime(2018, 9, 3, 13, 7, 30, tzinfo=UTC)
    assert count_days(schedule, 2018, after=after).days == walked(schedule, 2018, after)


@pytest.mark.parametrize(
    "schedule",
    [
        Every("7h", start=START),
        Iso8601("R/2018-01-01T00:00:00Z/PT5H"),
        Iso8601("R/2018-01-31T00:00:00Z/P1M", "Europe/Berlin"),
        Cron("0 3 * * *", "Europe/Berlin") | Every("12h", start=START),
    ],
)
def test_other_schedules_are_counted_too(schedule: Schedule) -> None:
    assert count_days(schedule, 2018).days == walked(schedule, 2018)


def test_what_can_only_be_walked_is_counted_up_to_a_bound_and_says_how_far() -> None:
    schedule = Every("1h", start=START) | Every("1h", start=START + timedelta(minutes=30))
    counted = count_days(schedule, 2018, most=100)
    assert counted.until == START + timedelta(minutes=30 * 100)
    assert counted.days.total() == 100 - 8
    assert count_days(schedule, 2018, most=None).until is None


@pytest.mark.parametrize(
    ("timezone", "minutes"), [("UTC", 60), ("Asia/Kathmandu", 15), ("Australia/Lord_Howe", 30), ("Europe/Berlin", 60)]
)
def test_steps_never_straddle_midnight(timezone: str, minutes: int) -> None:
    clocks, (begin, end) = zone(timezone), bounds_of(2026)
    step = step_of(clocks, 2026)
    assert step == timedelta(minutes=minutes)
    at = begin
    while at < end:
        assert local_day(clocks, at) == local_day(clocks, at + step - timedelta(seconds=1))
        at += step


def test_days_on_which_the_clocks_change_are_told_by_what_they_showed_before() -> None:
    assert clock_changes(zone("America/Havana"), 2018) == (date(2018, 3, 11), date(2018, 11, 4))
    assert clock_changes(zone("UTC"), 2026) == ()


def test_a_whole_year_of_a_schedule_has_every_day_in_it() -> None:
    year = year_of(Cron("0 0 29 2 *"), 2028)
    assert (len(year.counts), year.total) == (366, 1)
    assert dict(year.counts)[date(2028, 2, 29)] == 1
