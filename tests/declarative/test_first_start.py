"""The first start: a task that nobody has seen runs at once if this very minute matches, and for nothing before."""

from __future__ import annotations

import pytest
from tests.declarative.stage import Stage, play


def called(cron: str, start: str, span: str) -> list[str]:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize(stage.task("a", cron))
        await stage.sim.advance(span)
        return stage.times("a")

    return play(body, start)


@pytest.mark.parametrize("second", ["00", "01", "30", "59"])
def test_a_new_task_runs_at_once_if_this_very_minute_matches(second: str) -> None:
    assert called("0 10 * * *", f"2026-01-01 10:00:{second}", "1h") == [f"10:00:{second}"]


@pytest.mark.parametrize("start", ["2026-01-01 09:59:59", "2026-01-01 10:01:00", "2026-01-01 10:01:30"])
def test_a_new_task_does_not_run_at_once_if_this_minute_does_not_match(start: str) -> None:
    assert called("0 10 * * *", start, "0s") == []


def test_a_new_task_is_not_owed_the_minutes_before_its_first_start() -> None:
    assert called("0,58,59 * * * *", "2026-01-01 10:01:00", "56m") == []


def test_a_new_task_that_ran_at_once_goes_on_with_its_next_occurrence() -> None:
    assert called("0,15 * * * *", "2026-01-01 10:00:30", "1h") == ["10:00:30", "10:15:00", "11:00:00"]


def test_occurrences_begin_where_a_minute_begins() -> None:
    assert called("* * * * *", "2026-01-01 10:00:59", "3m") == ["10:00:59", "10:01:00", "10:02:00", "10:03:00"]


def test_seconds_within_a_minute_never_start_a_second_run() -> None:
    assert called("0 10 * * *", "2026-01-01 10:00:00", "59s") == ["10:00:00"]


def test_every_minute_of_a_day_is_covered() -> None:
    assert len(called("* * * * *", "2026-01-01 00:00:00", "23h59m")) == 24 * 60


def test_an_empty_list_of_registrations_is_a_scheduler_without_work() -> None:
    async def body(stage: Stage) -> list[str]:
        await stage.initialize()
        await stage.sim.advance("1h")
        await stage.scheduler.stop()
        return stage.names()

    assert play(body) == [
        "SchedulerInitializationStarted",
        "SchedulerInitializationCompleted",
        "SchedulerStopRequested",
        "SchedulerStopped",
    ]


def test_a_scheduler_whose_last_task_has_left_polls_no_more() -> None:
    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        await stage.initialize(stage.task("a", "* * * * *"))
        since = len(stage.heard)
        await stage.restart()
        await stage.sim.advance("1h")
        return stage.names(since=since), stage.times("a")

    names, times = play(body)
    assert [name for name in names if name.startswith("Polling")] == ["PollingStopRequested", "PollingStopped"]
    assert times == ["10:00:30"]


def test_polling_stops_when_the_last_task_is_dropped() -> None:
    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        await stage.initialize(stage.task("a", "* * * * *"), stage.task("b", "0 * * * *"))
        await stage.scheduler.app.drop("declarative:a")
        assert "PollingStopped" not in stage.names()
        await stage.scheduler.app.drop("declarative:b")
        dropped = stage.names()
        await stage.sim.advance("1h")
        await stage.scheduler.stop()
        return dropped, [name for name in stage.names() if name.startswith("Polling")]

    dropped, names = play(body)
    assert dropped[-1] == "PollingStopped"
    assert names == ["PollingStarted", "PollingStopped"]


def test_a_task_added_later_has_a_first_start_of_its_own() -> None:
    async def body(stage: Stage) -> tuple[list[str], list[str]]:
        old, new = stage.task("old", "0 * * * *"), stage.task("new", "0,30 * * * *")
        await stage.initialize(old)
        await stage.sim.advance("10m")
        await stage.restart(old, new, down="2h")
        await stage.sim.advance("20m")
        return stage.times("old"), stage.times("new")

    assert play(body) == (["10:00:30", "12:10:30"], ["12:30:00"])
