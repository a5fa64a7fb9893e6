"""What docs/jobs.md says of a report: every name that it lists is there, as an attribute and in `to_dict()`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae.core.report.report import AttemptRow, RunReportRow, TaskRow, build_report
from horae.core.run.lifecycle import AttemptState, RunState, TaskState

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
TABLE = PAGE.partition("| in a report | is |\n|---|---|\n")[2].partition("\n\n")[0]
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ATTEMPT = AttemptRow("attempt_1", 1, AttemptState.FAILED, NOON, NOON + timedelta(seconds=2), "ValueError: x", "Trace")
TASK = TaskRow("run_1", "load", TaskState.FAILED, attempts=(ATTEMPT,), reason="ValueError: x", result=3)
RUN = RunReportRow(
    "occ_1",
    "etl",
    RunState.FAILED,
    NOON,
    started_at=NOON,
    completed_at=NOON + timedelta(seconds=3),
    reason="ValueError: x",
    replay_reason="again",
)
REPORT = build_report(RUN, (TASK,))


def rows() -> list[tuple[str, str]]:
    """Each name of the table, with whose it is: "" for the report's own."""
    found: list[tuple[str, str]] = []
    for line in TABLE.splitlines():
        first = line.split("|")[1]
        of = re.search(r" of an? (\w+) $", first)
        found += [(name, "" if of is None else of.group(1)) for name in re.findall(r"`(\w+)`", first)]
    return found


@pytest.mark.parametrize(("name", "of"), rows(), ids=lambda value: value or "report")
def test_every_name_that_the_page_lists_is_an_attribute_and_a_key(name: str, of: str) -> None:
    told = REPORT.to_dict()
    places: dict[str, tuple[Any, dict[str, Any]]] = {
        "": (REPORT, told),
        "task": (TASK, told["tasks"][0]),
        "attempt": (ATTEMPT, told["tasks"][0]["attempts"][0]),
    }
    holder, plain = places[of]
    value = getattr(holder, name)
    if name in ("tasks", "attempts"):
        assert len(value) == len(plain[name]) == 1
    else:
        assert value == plain[name]
        assert value is not None


def test_the_page_lists_what_a_hook_is_likely_to_ask_for() -> None:
    assert {"reason", "replay_reason", "lag_seconds", "duration_seconds", "working_seconds", "summary"} <= {
        name for name, of in rows() if not of
    }
    assert {of for _, of in rows()} == {"", "task", "attempt"}


def test_every_attribute_that_the_page_writes_out_is_there() -> None:
    of_report = set(re.findall(r"report\.(\w+)", PAGE))
    assert {name for name in of_report if not hasattr(REPORT, name)} == set()
    (rest,) = re.findall(r"`report\.run` has the rest of the run: (.*?)\. ", PAGE)
    names = re.findall(r"`(\w+)`", rest)
    assert {name for name in names if not hasattr(RUN, name)} == set()
    assert "scheduled_time" in names


def test_a_report_cannot_be_written_to() -> None:
    with pytest.raises((AttributeError, TypeError)):
        REPORT.reason = "another"  # type: ignore[misc]  # that is what must not go
