"""A change that counts from before now: whether a node was there, and what becomes of the times that nobody served."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.change.late_change import PROMPT, is_attended, left_unserved
from horae.core.job.definition import Settings
from horae.core.run.due import due
from horae.core.run.job_view import JobView
from horae.core.run.lifecycle import RunState
from horae.core.schedule.schedules import Cron

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def job(**settings: object) -> JobView:
    return JobView("a", Cron("* * * * *"), Settings(**settings), START)  # type: ignore[arg-type]  # each by its name


@pytest.mark.parametrize(
    ("now", "attended"),
    [
        (START, True),
        (START + MINUTE, True),
        (START + MINUTE + PROMPT, True),
        (START + MINUTE + PROMPT + timedelta(milliseconds=1), False),
        (START + 2 * MINUTE, False),
    ],
)
def test_a_job_was_attended_where_its_oldest_due_time_came_a_moment_ago(now: datetime, attended: bool) -> None:
    assert is_attended(job(), now) is attended


@pytest.mark.parametrize("recovery", ["last", "all", "none", "compressed"])
def test_of_an_unserved_job_every_due_time_is_missed_whatever_its_grace_and_recovery(recovery: str) -> None:
    now = START + 3 * MINUTE + timedelta(seconds=1)
    view = left_unserved(job(recovery=recovery, misfire_grace=timedelta(hours=1)))
    plan = due(view, now)
    assert [birth.state for birth in plan.births] == [RunState.MISSED] * 3
    assert plan.planned_until == START + 3 * MINUTE
