"""The trace checker knows the finer rules: other expressions, sleeping tasks, clock changes, the moment of a crash."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.declarative.trace_checker import Wrong
from tests.declarative.trace_story import changed, found, with_added, without

CHANGING = (
    "10:00:00 init task=hourly",
    "10:00:00 active",
    "10:00:00 start task",
    "10:00:00 success task",
    "10:05:00 stop",
    "10:05:00 stopped",
    "11:10:00 init task=twenty",
    "11:10:00 active",
    "11:10:00 start task",  # for 10:20
    "11:10:00 success task",
    "11:12:00 stop",
    "11:12:00 stopped",
    "11:13:00 end",
)


def test_minutes_of_a_new_expression_since_the_last_start_are_owed() -> None:
    assert found(CHANGING) == set()
    assert found(without("11:10:00 start task", "11:10:00 success task", lines=CHANGING)) == {(Wrong.UNMET, "task")}


def test_minutes_that_an_old_expression_missed_are_not_owed_under_a_new_one() -> None:
    lines = changed("11:10:00 init task=twenty", "11:10:00 init task=evening", CHANGING)
    assert found(lines) == {(Wrong.NOT_OWED, "task")}
    assert found(without("11:10:00 start task", "11:10:00 success task", lines=lines)) == set()


BUSY = (
    "10:00:00 init task=hourly",
    "10:00:00 active",
    "10:00:00 start task",
    "11:10:00 stop",
    "11:30:00 success task",
    "11:30:00 stopped",
    "11:40:00 init task=evening",
    "11:40:00 active",
    "11:40:00 start task",  # for 11:00, which came while the scheduler was active
    "11:40:00 success task",
    "11:45:00 end",
)


def test_a_minute_that_came_during_a_run_is_owed_under_a_new_expression_too() -> None:
    assert found(BUSY) == set()
    assert found(without("11:40:00 start task", "11:40:00 success task", lines=BUSY)) == {(Wrong.UNMET, "task")}
    again = with_added("11:40:00 success task", "11:40:01 start task", "11:40:01 success task", lines=BUSY)
    assert (Wrong.NOT_OWED, "task") in found(again)


ASLEEP = (
    "10:00:00 init task=hourly half",
    "10:00:00 active",
    "10:00:00 start task",
    "10:00:00 start half",
    "10:00:00 success half",
    "10:04:00 crash",
    "10:05:00 init half",
    "10:05:00 active",
    "10:30:00 start half",
    "10:30:00 success half",
    "10:40:00 stop",
    "10:40:00 stopped",
    "10:50:00 init task=hourly half",
    "10:50:00 active",
    "10:50:00 start task",  # the restart
    "10:50:00 success task",
    "10:55:00 end",
)


def test_a_run_that_was_cut_off_is_restarted_when_its_task_is_registered_again() -> None:
    assert found(ASLEEP) == set()
    assert found(without("10:50:00 start task", "10:50:00 success task", lines=ASLEEP)) == {(Wrong.UNMET, "task")}
    early = with_added("10:05:00 active", "10:05:00 start task", "10:05:00 success task", lines=ASLEEP)
    assert (Wrong.NOT_REGISTERED, "task") in found(early)


FOLD = (
    "2026-10-24T12:00:00 init night",
    "2026-10-24T12:00:00 active",
    "2026-10-25T00:30:00 start night",
    "2026-10-25T00:30:00 success night",
    "2026-10-25T01:30:00 start night",
    "2026-10-25T01:30:00 success night",
    "2026-10-25T12:00:00 end",
)


def test_a_minute_that_comes_twice_is_owed_twice_and_not_three_times() -> None:
    zone = "Europe/Brussels"
    assert found(FOLD, zone) == set()
    for first in ("2026-10-25T00:30:00", "2026-10-25T01:30:00"):
        assert found(without(f"{first} start night", f"{first} success night", lines=FOLD), zone) == {
            (Wrong.UNMET, "night")
        }
    third = with_added(FOLD[5], "2026-10-25T02:30:00 start night", "2026-10-25T02:30:00 failure night", lines=FOLD)
    assert (Wrong.NOT_OWED, "night") in found(third, zone)


def test_a_half_hour_that_comes_twice_is_owed_twice() -> None:
    zone = "Australia/Lord_Howe"
    lines = (
        "2026-04-04T12:00:00 init island",
        "2026-04-04T12:00:00 active",
        "2026-04-04T14:45:00 start island",
        "2026-04-04T14:45:00 success island",
        "2026-04-04T15:15:00 start island",
        "2026-04-04T15:15:00 success island",
        "2026-04-04T16:00:00 end",
    )
    assert found(lines, zone) == set()
    assert found((*lines[:4], lines[6]), zone) == {(Wrong.UNMET, "island")}


GAP = (
    "2026-03-28T12:00:00 init night",
    "2026-03-28T12:00:00 active",
    "2026-03-29T12:00:00 stop",
    "2026-03-29T12:00:00 stopped",
    "2026-03-29T12:00:00 end",
)


@pytest.mark.parametrize("time", ["00:30:00", "01:00:00", "01:30:00"])
def test_a_minute_that_does_not_come_is_not_owed(time: str) -> None:
    zone = "Europe/Brussels"
    assert found(GAP, zone) == set()
    started = (*GAP[:2], f"2026-03-29T{time} start night", f"2026-03-29T{time} success night", *GAP[2:])
    assert found(started, zone) == {(Wrong.NOT_OWED, "night")}


FAILING = (
    "10:00:00 init impatient",
    "10:00:00 active",
    "10:00:00 start impatient",
    "10:00:05 failure impatient",
    "10:00:06 start impatient",
    "10:00:06 failure impatient",
    "10:00:06 stop",
    "10:00:06 stopped",
    "10:20:00 init impatient",
    "10:20:00 active",
    "10:20:00 start impatient",
    "10:20:00 success impatient",
    "10:30:00 end",
)


def test_a_delay_of_nothing_is_a_second_and_a_retry_missed_while_stopped_comes_at_once() -> None:
    assert found(FAILING) == set()
    at_once = changed("10:00:06 start impatient", "10:00:05 start impatient", FAILING)
    assert found(at_once) == {(Wrong.EARLY_RETRY, "impatient")}
    never = without("10:20:00 start impatient", "10:20:00 success impatient", lines=FAILING)
    assert found(never) == {(Wrong.UNMET, "impatient")}
    late = changed("10:20:00 start impatient", "10:21:01 start impatient", without(FAILING[11], lines=FAILING))
    assert found(late) == {(Wrong.UNMET, "impatient")}


def test_what_ended_at_the_moment_of_a_crash_may_be_run_again_at_once_and_need_not_be() -> None:
    lines = (
        "10:00:00 init task=hourly",
        "10:00:00 active",
        "10:00:00 start task",
        "10:00:00 success task",
        "10:00:00 crash",
        "10:01:00 init task=hourly",
        "10:01:00 active",
        "10:10:00 end",
    )
    assert found(lines) == set()
    assert found(with_added(lines[6], "10:01:00 start task", "10:01:00 success task", lines=lines)) == set()
    late = with_added(lines[6], "10:03:00 start task", "10:03:00 failure task", lines=lines)
    assert (Wrong.NOT_OWED, "task") in found(late)


@pytest.mark.parametrize("name", ["trace.py", "trace_cron.py", "trace_checker.py"])
def test_the_checker_shares_nothing_with_what_it_checks(name: str) -> None:
    tree = ast.parse(Path(__file__).with_name(name).read_text())
    imported = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    imported |= {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    assert not [each for each in imported if each.split(".")[0] == "horae"]
    assert "tests.declarative.trace_recorder" not in imported
