"""The report of a run: what happened, to which task, in which try, how long it took and who stopped whom."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.core.test_occurrence import at

from horae.core.report.report import AttemptRow, RunReportRow, TaskRow, build_report
from horae.core.run.lifecycle import AttemptState, RunState, TaskState

RUN = RunReportRow(
    "occ_1",
    "etl",
    RunState.FAILED,
    at("10:00"),
    chosen_time=at("10:03"),
    started_at=at("10:03:00.250"),
    completed_at=at("10:05:30.250"),
    version=7,
    mode="parallel",
    reason="task load failed",
)
FIRST = AttemptRow(
    "attempt_1", 1, AttemptState.FAILED, at("10:03:01"), at("10:03:31"), "connection refused", "Traceback: …"
)
SECOND = AttemptRow("attempt_2", 2, AttemptState.LOST, at("10:04:01"))
THIRD = AttemptRow("attempt_3", 3, AttemptState.TIMEOUT, at("10:04:30"), at("10:05:30"), "took too long")
TASKS = (
    TaskRow(
        "run_extract", "extract", TaskState.SUCCESS, attempts=(replace(FIRST, state=AttemptState.SUCCESS, error=None),)
    ),
    TaskRow(
        "run_load",
        "load",
        TaskState.TIMEOUT,
        attempts=(THIRD, FIRST, SECOND),
        reason="took too long (after 2 attempts)",
    ),
    TaskRow("run_index", "index", TaskState.CANCELLED, attempts=(FIRST,), cancelled_by="load"),
    TaskRow("run_clean", "clean", TaskState.FAILED, failure="continue"),
    TaskRow("run_last", "last", TaskState.SKIPPED),
)


def test_lag_counts_from_the_chosen_time_and_duration_from_the_start() -> None:
    report = build_report(RUN, TASKS)
    assert report.lag == timedelta(milliseconds=250)
    assert report.duration == timedelta(minutes=2, seconds=30)
    assert report.outcome is RunState.FAILED


def test_without_a_chosen_time_lag_counts_from_the_nominal_one() -> None:
    assert build_report(replace(RUN, chosen_time=None), ()).lag == timedelta(minutes=3, milliseconds=250)


def test_a_run_moved_or_windowed_to_an_earlier_time_is_measured_from_there() -> None:
    early = replace(RUN, chosen_time=at("09:50"), started_at=at("09:50:02"))
    assert build_report(early, ()).lag == timedelta(seconds=2)


@pytest.mark.parametrize("state", [RunState.SKIPPED, RunState.MISSED, RunState.PENDING, RunState.CANCELLED])
def test_a_run_that_never_started_has_neither_lag_nor_duration(state: RunState) -> None:
    row = RunReportRow("occ_1", "etl", state, at("10:00"), completed_at=at("10:01"))
    report = build_report(row, ())
    assert (report.lag, report.duration) == (None, None)


def test_a_run_that_has_not_ended_has_a_lag_but_no_duration() -> None:
    report = build_report(replace(RUN, state=RunState.RUNNING, completed_at=None), TASKS)
    assert report.lag == timedelta(milliseconds=250)
    assert report.duration is None


def test_tasks_keep_their_order_and_attempts_are_put_in_theirs() -> None:
    report = build_report(RUN, TASKS)
    assert [task.name for task in report.tasks] == ["extract", "load", "index", "clean", "last"]
    assert report.tasks[1].attempts == (FIRST, SECOND, THIRD)
    assert [replace(task, attempts=()) for task in report.tasks] == [replace(task, attempts=()) for task in TASKS]


def test_failed_tasks_are_those_that_failed_or_timed_out() -> None:
    assert build_report(RUN, TASKS).failed_tasks == ("load", "clean")


def test_the_report_as_plain_values_is_json_and_leaves_nothing_out() -> None:
    recovered = replace(RUN, is_recovery=True, covers_from=at("06:00"), covers_to=at("10:00"), cancelled_by="local")
    replayed = replace(recovered, replay_of="occ_0", replay_reason="it is back", origin="REPLAY")
    data = json.loads(json.dumps(build_report(replayed, TASKS).to_dict()))
    tasks = data.pop("tasks")
    assert data.pop("summary") == build_report(replayed, TASKS).summary
    assert data == {
        "run_id": "occ_1",
        "job": "etl",
        "version": 7,
        "origin": "REPLAY",
        "outcome": "FAILED",
        "reason": "task load failed",
        "mode": "parallel",
        "failure": "fail_fast",
        "is_recovery": True,
        "replay_of": "occ_0",
        "replay_reason": "it is back",
        "cancelled_by": "local",
        "scheduled_time": "2026-01-05T10:00:00Z",
        "chosen_time": "2026-01-05T10:03:00Z",
        "started_at": "2026-01-05T10:03:00.250Z",
        "completed_at": "2026-01-05T10:05:30.250Z",
        "covers_from": "2026-01-05T06:00:00Z",
        "covers_to": "2026-01-05T10:00:00Z",
        "lag_seconds": 0.25,
        "duration_seconds": 150.0,
        "working_seconds": 90.0,
    }
    assert [(task["name"], task["state"], task["cancelled_by"]) for task in tasks] == [
        ("extract", "SUCCESS", None),
        ("load", "TIMEOUT", None),
        ("index", "CANCELLED", "load"),
        ("clean", "FAILED", None),
        ("last", "SKIPPED", None),
    ]
    assert tasks[3]["failure"] == "continue"
    assert tasks[1]["reason"] == "took too long (after 2 attempts)"
    assert (tasks[1]["started_at"], tasks[1]["ended_at"]) == ("2026-01-05T10:03:01Z", "2026-01-05T10:05:30Z")
    assert (tasks[1]["duration_seconds"], tasks[1]["working_seconds"]) == (149.0, 90.0)
    assert (tasks[4]["duration_seconds"], tasks[4]["working_seconds"]) == (None, None)
    assert tasks[1]["attempts"][0] == {
        "attempt_id": "attempt_1",
        "number": 1,
        "state": "FAILED",
        "started_at": "2026-01-05T10:03:01Z",
        "ended_at": "2026-01-05T10:03:31Z",
        "error": "connection refused",
        "traceback": "Traceback: …",
        "duration_seconds": 30.0,
    }
    assert tasks[1]["attempts"][1]["ended_at"] is None


def test_times_keep_all_the_digits_that_the_catalog_has() -> None:
    data = build_report(replace(RUN, chosen_time=at("10:03:00.007"), started_at=at("10:03:00.123456")), ()).to_dict()
    assert (data["chosen_time"], data["started_at"]) == ("2026-01-05T10:03:00.007Z", "2026-01-05T10:03:00.123456Z")
    assert data["lag_seconds"] == 0.116456


def test_working_time_counts_attempts_side_by_side_once_and_waits_not_at_all() -> None:
    first = AttemptRow("a", 1, AttemptState.FAILED, at("10:00"), at("10:01"))
    second = AttemptRow("b", 2, AttemptState.SUCCESS, at("10:05"), at("10:07"))
    beside = AttemptRow("c", 1, AttemptState.SUCCESS, at("10:00:30"), at("10:02"))
    inside = AttemptRow("d", 1, AttemptState.SUCCESS, at("10:05:30"), at("10:06"))
    tasks = [
        TaskRow("run_1", "one", TaskState.SUCCESS, attempts=(first, second)),
        TaskRow("run_2", "two", TaskState.SUCCESS, attempts=(beside,)),
        TaskRow("run_3", "three", TaskState.SUCCESS, attempts=(inside,)),
    ]
    report = build_report(replace(RUN, started_at=at("10:00"), completed_at=at("10:07")), tasks)
    assert (report.duration, report.working) == (timedelta(minutes=7), timedelta(minutes=4))
    assert [each["working_seconds"] for each in report.to_dict()["tasks"]] == [180.0, 90.0, 30.0]
    assert [each["duration_seconds"] for each in report.to_dict()["tasks"]] == [420.0, 90.0, 30.0]


def test_what_is_not_there_yet_is_none_in_plain_values() -> None:
    data = build_report(RunReportRow("occ_1", "etl", RunState.PENDING, at("10:00")), ()).to_dict()
    for name in (
        "started_at",
        "completed_at",
        "chosen_time",
        "lag_seconds",
        "duration_seconds",
        "covers_from",
        "reason",
    ):
        assert data[name] is None
    assert (data["tasks"], data["origin"], data["version"]) == ([], "SCHEDULE", 1)


def test_the_report_in_words_tells_the_whole_story() -> None:
    assert str(build_report(RUN, TASKS)).splitlines() == [
        "etl 2026-01-05T10:00:00Z: FAILED (task load failed)",
        "  extract: SUCCESS",
        "    attempt 1: SUCCESS in 30s",
        "  load: TIMEOUT after 3 attempts",
        "    attempt 1: FAILED in 30s (connection refused)",
        "    attempt 2: LOST",
        "    attempt 3: TIMEOUT in 1m (took too long)",
        "  index: CANCELLED, stopped by load",
        "    attempt 1: FAILED in 30s (connection refused)",
        "  clean: FAILED",
        "  last: SKIPPED",
    ]


def test_a_run_without_tasks_is_one_line() -> None:
    row = RunReportRow("occ_1", "etl", RunState.SKIPPED, at("10:00"), reason="overlap")
    assert str(build_report(row, ())) == "etl 2026-01-05T10:00:00Z: SKIPPED (overlap)"
