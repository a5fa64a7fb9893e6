"""A run's report in sentences: attempts, the waits between them, and which failure stopped whom."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.core.test_occurrence import at

from horae.core.report.report import AttemptRow, RunReportRow, TaskRow, build_report
from horae.core.run.lifecycle import AttemptState, RunState, TaskState

RUN = RunReportRow("occ_1", "etl", RunState.COMPLETED, at("10:00"), started_at=at("10:00"), completed_at=at("10:03"))
ERROR = "ValueError: no such table"


def tried(*states: str, waits: tuple[int, ...] = (), error: str | None = ERROR) -> tuple[AttemptRow, ...]:
    """Attempts of ten seconds each, with so many seconds between them."""
    now: datetime = at("10:00")
    found = []
    for number, state in enumerate(states, 1):
        ended = None if state == "RUNNING" else now + timedelta(seconds=10)
        said = error if state in ("FAILED", "TIMEOUT") else None
        found.append(AttemptRow(f"attempt_{number}", number, AttemptState(state), now, ended, said))
        now += timedelta(seconds=10 + (waits[number - 1] if number <= len(waits) else 0))
    return tuple(found)


def task(name: str, state: str, *attempts: AttemptRow, by: str | None = None, reason: str | None = None) -> TaskRow:
    return TaskRow(f"run_{name}", name, TaskState(state), attempts=attempts, cancelled_by=by, reason=reason)


def told(state: str, *tasks: TaskRow, **more: object) -> str:
    return build_report(replace(RUN, state=RunState(state), **more), tasks).summary  # type: ignore[arg-type]


def test_attempts_waits_and_who_stopped_whom_are_told_in_one_sentence() -> None:
    assert told(
        "FAILED",
        task("extract", "SUCCESS", *tried("FAILED", "FAILED", "SUCCESS", waits=(30, 60))),
        task("transform", "FAILED", *tried("FAILED", error="KeyError: 'id'")),
        task("load", "CANCELLED", *tried("CANCELLED"), by="transform"),
        task("index", "SKIPPED", by="transform"),
        task("clean", "SUCCESS", *tried("SUCCESS")),
        reason="KeyError: 'id'",
    ) == (
        "Failed after 3m, 30s of it at work. "
        "extract failed twice (ValueError: no such table), waited 30s and 1m, succeeded at the third attempt; "
        "transform failed (KeyError: 'id'); "
        "load was cancelled because transform failed; index was skipped because transform failed."
    )


@pytest.mark.parametrize(
    ("state", "more", "sentence"),
    [
        ("SKIPPED", {"reason": "overlap"}, "Was skipped: overlap."),
        ("MISSED", {"reason": "deadline"}, "Was missed: deadline."),
        ("UNSCHEDULABLE", {}, "Could not be scheduled."),
        ("CANCELLED", {"reason": "not today"}, "Was cancelled before it started: not today."),
        ("PENDING", {"completed_at": None}, "Has not started."),
        ("QUEUED", {"completed_at": None}, "Has not started: it stands in line."),
    ],
)
def test_a_run_that_never_started_says_why(state: str, more: dict[str, object], sentence: str) -> None:
    assert told(state, **{"started_at": None, **more}) == sentence


def test_a_run_without_trouble_is_one_short_sentence() -> None:
    one = task("work", "SUCCESS", *tried("SUCCESS"))
    assert told("COMPLETED", one, completed_at=at("10:00:10")) == "Completed after 10s."


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (
            task("work", "FAILED", *tried("FAILED", "TIMEOUT", "FAILED", waits=(5, 5))),
            (
                "work failed twice (ValueError: no such table), timed out (ValueError: no such table), "
                "waited 5s and 5s, was given up after 3 attempts."
            ),
        ),
        (
            task("work", "SUCCESS", *tried("LOST", "SUCCESS", waits=(40,))),
            "work was lost with its node, waited 40s, succeeded at the second attempt.",
        ),
        (
            task("work", "SUCCESS", *tried(*["FAILED"] * 7, "SUCCESS", waits=(10,) * 7)),
            (
                "work failed 7 times (ValueError: no such table), waited 7 times, 1m10s in all, "
                "succeeded at the eighth attempt."
            ),
        ),
        (
            task("work", "CANCELLED", *tried("FAILED", "CANCELLED", waits=(1,)), by="timeout"),
            "work failed (ValueError: no such table), waited 1s, was cancelled (timeout).",
        ),
        (task("work", "FAILED", reason="handler gone"), "work failed (handler gone)."),
    ],
)
def test_what_was_tried_is_told_by_kind_with_the_last_error(one: TaskRow, sentence: str) -> None:
    assert told("FAILED", one).partition(". ")[2] == sentence


def test_a_run_that_goes_on_says_what_it_is_at() -> None:
    again = task("work", "RUNNING", *tried("FAILED", "RUNNING", waits=(30,)))
    assert told("RUNNING", again, completed_at=None) == (
        "Is running. work failed (ValueError: no such table), waited 30s, is at its second attempt."
    )
    parked = task("work", "PENDING", *tried("FAILED"))
    assert told("PENDING", parked, completed_at=None) == (
        "Waits to go on. work failed (ValueError: no such table), waits to be tried again."
    )


def test_a_replay_says_what_of_and_why_beside_its_outcome() -> None:
    summary = told("COMPLETED", replay_of="occ_0", replay_reason="the API is back", completed_at=at("10:00:10"))
    assert summary == "Completed after 10s. It is a replay of occ_0: the API is back."


def test_a_reason_that_is_no_error_stands_with_the_end() -> None:
    assert told("CANCELLED", task("work", "CANCELLED", *tried("CANCELLED"), by="timeout"), reason="timeout") == (
        "Was cancelled after 3m, 10s of it at work: timeout. work was cancelled (timeout)."
    )
