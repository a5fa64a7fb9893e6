"""The trace checker's own cron: examples that a person can follow on a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.declarative.trace_cron import Calendar


def listed(expression: str, zone: str, first: str, days: float) -> list[str]:
    begin = datetime.fromisoformat(first).replace(tzinfo=UTC)
    calendar = Calendar(zone, begin, begin + timedelta(days=days) - timedelta(minutes=1))
    return [f"{at:%d %H:%M}" for at in calendar.all(expression)]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 * * *", ["01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14"]),
        ("0 0 * * 1", ["05", "12"]),
        ("0 0 * * 0,6", ["03", "04", "10", "11"]),
        ("0 0 3-5,14 * *", ["03", "04", "05", "14"]),
        ("0 0 1,6 * 1", ["01", "05", "06", "12"]),
        ("0 0 * 2 *", []),
        ("0 0 14 1 4-5", ["01", "02", "08", "09", "14"]),
    ],
)
def test_days_of_the_month_and_of_the_week_are_either_or_where_both_are_given(expression: str, days: list[str]) -> None:
    assert [each[:2] for each in listed(expression, "UTC", "2026-01-01", 14)] == days  # a Thursday


def test_minutes_and_hours_are_those_of_the_wall_clock() -> None:
    assert listed("15,40-41 9 * * *", "Asia/Kathmandu", "2026-01-01", 1) == ["01 03:30", "01 03:55", "01 03:56"]


def test_a_minute_that_is_left_out_is_not_listed() -> None:
    assert listed("30 2 * * *", "Europe/Brussels", "2026-03-28", 3) == ["28 01:30", "30 00:30"]


def test_a_minute_that_is_repeated_is_listed_twice() -> None:
    assert listed("30 2 * * *", "Europe/Brussels", "2026-10-24", 3) == ["24 00:30", "25 00:30", "25 01:30", "26 01:30"]


def test_searches_exclude_where_they_begin_and_include_where_they_end() -> None:
    at = datetime(2026, 1, 1, 10, tzinfo=UTC)
    hour = timedelta(hours=1)
    calendar = Calendar("UTC", at, at + 5 * hour)
    assert calendar.first("0 * * * *", at, at + 2 * hour) == at + hour
    assert calendar.last("0 * * * *", at, at + 2 * hour) == at + 2 * hour
    assert calendar.count("0 * * * *", at, at + 2 * hour) == 2
    assert calendar.first("0 * * * *", at, at + hour / 2) is None
    assert calendar.last("0 * * * *", at, at + hour / 2) is None


def test_clock_changes_are_counted() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    assert Calendar("Europe/Brussels", begin, begin + timedelta(days=360)).clock_changes() == 2
    assert Calendar("Asia/Kathmandu", begin, begin + timedelta(days=100)).clock_changes() == 0
