"""Rhythms: how close slots lie, and how long runs are taken to last by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron, Once, Schedule
from horae.core.schedule.slot_distance import assumed_seconds, shortest_gap

NOW = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        (Every("10s"), 5),
        (Every("10s", start=NOW, end=NOW + timedelta(seconds=5)), 60),
        (Cron("* * * * *"), 30),
        (Cron("0,1 4 * * *"), 30),
        (Cron("0 * * * *"), 60),
        (Once(NOW), 60),
        (Cron("0 * * * *") | Every("1h", start=NOW + timedelta(seconds=30)), 15),
        (None, 60),
    ],
)
def test_runs_are_taken_to_last_half_the_shortest_gap_at_most(schedule: Schedule | None, seconds: float) -> None:
    assert assumed_seconds(schedule, NOW, 60.0) == seconds


def test_a_schedule_of_one_slot_has_no_gap() -> None:
    assert shortest_gap(Once(NOW), NOW) is None
    assert shortest_gap(Every("1h"), NOW) == timedelta(hours=1)
