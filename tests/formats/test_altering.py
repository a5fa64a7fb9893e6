"""What ALTER JOB makes of a definition that is there: what it names changes, everything else stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from tests.formats.drawn import NOW, jobs
from tests.formats.reading import bound, one
from tests.tier import examples

from horae import Cron, Every, Iso8601, Once, Retry, Window
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import NO_RETRY
from horae.core.run.lifecycle import JobState
from horae.errors import InvalidStatement
from horae.formats.sql.binder import alter_definition
from horae.formats.sql.printer import clause_text
from horae.formats.sql.unbinder import create_statement

BERLIN = Cron("0 2 * * *", tz="Europe/Berlin", gap="shift", fold="both")


def job(**more: Any) -> JobSpec:
    given: dict[str, Any] = {"schedule": BERLIN, "tasks": (TaskSpec("step", "f", settings={"failure": "continue"}),)}
    return JobSpec("x", **given | more)


def change(text: str, present: JobSpec) -> JobSpec:
    return alter_definition(one(f"ALTER JOB x {text}"), present, now=NOW)


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("SET TIMEOUT = 5m", {"settings": {"execution_timeout": "5m"}}),
    ("SET TIMEOUT = 5m SET MODE = PARALLEL", {"settings": {"execution_timeout": "5m", "mode": "parallel"}}),
    ("SET MAX_RETRIES = 5", {"settings": {"retry": Retry(5, "60s", 2.0)}}),
    ("SET RUN AS ops", {"run_as": "ops"}),
    ("SET DESCRIPTION = 'new'", {"description": "new"}),
    ("SET DEPENDS ON a, b", {"depends_on": ("a", "b")}),
    ("SET CLASS = LOCAL_SAFE", {"job_class": "LOCAL_SAFE"}),
    ("SET PARTITION BY ALL_SHARDS", {"partition": {"strategy": "ALL_SHARDS"}}),
    ("SET TAGS = (a)", {"tags": ("a",)}),
    ("SET ON COMPLETION DROP", {"settings": {"on_completion": "drop"}}),
    ("SET STATE = DISABLED", {"state": JobState.DISABLED}),
    ("DISABLE", {"state": JobState.DISABLED}),
    ("SET OWNER = bob", {}),
    # The clocks stay what they were, unless they are changed.
    (
        "SET SCHEDULE = CRON '0 3 * * *'",
        {"schedule": Cron("0 3 * * *", tz="Europe/Berlin", gap="shift", fold="both")},
    ),
    ("SET TIMEZONE = 'Asia/Tokyo'", {"schedule": Cron("0 2 * * *", tz="Asia/Tokyo", gap="shift", fold="both")}),
    ("SET FOLD = ONCE SET GAP = SKIP", {"schedule": Cron("0 2 * * *", tz="Europe/Berlin", fold="once")}),
    ("SET SCHEDULE = AT '2026-07-01 02:00'", {"schedule": Once(datetime(2026, 7, 1, tzinfo=UTC))}),
    ("SET SCHEDULE = EVERY 1h", {"schedule": Every("1h")}),
    ("SET SCHEDULE = ISO8601 'P1D'", {"schedule": Iso8601("P1D", "Europe/Berlin")}),
    ("SET SCHEDULE = NONE", {"schedule": None}),
    # The task stays the one it was.
    ("SET AS 'SELECT 1'", {"tasks": (TaskSpec("step", "SELECT 1", "SQL", {"failure": "continue"}),)}),
    ("SET CALL p", {"tasks": (TaskSpec("step", "p", "PROCEDURE", {"failure": "continue"}),)}),
    ("SET EXEC 'c' SHELL", {"tasks": (TaskSpec("step", "c", "EXTERNAL", {"failure": "continue"}, {"shell": True}),)}),
    (
        "SET TASKS (a AS 'x', b CALL p MAX_RETRIES = 1)",
        {"tasks": (TaskSpec("a", "x", "SQL"), TaskSpec("b", "p", "PROCEDURE", {"retry": Retry(1, "60s", 2.0)}))},
    ),
]


@pytest.mark.parametrize(("text", "changes"), CHANGES, ids=[text for text, _ in CHANGES])
def test_what_is_named_changes_and_the_rest_stays(text: str, changes: dict[str, Any]) -> None:
    assert change(text, job()) == job(**changes)


SETTLED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SET TIMEOUT = DEFAULT", {"execution_timeout": "5m", "pool": "p"}, {"pool": "p"}),
    ("SET WINDOW = NONE", {"window": Window.after("5m")}, {"window": None}),
    ("SET RETRY_BACKOFF = 9s", {"retry": Retry(7, "1s", 3.0, jitter=0.5)}, {"retry": Retry(7, "9s", 3.0, jitter=0.5)}),
    # Retries of nothing are no base: what is left to say are the SQL defaults.
    ("SET MAX_RETRIES = 1", {"retry": NO_RETRY}, {"retry": Retry(1, "60s", 2.0)}),
    ("SET RETRY = DEFAULT", {"retry": NO_RETRY}, {}),
    ("SET ON COMPLETION DEFAULT", {"on_completion": "drop"}, {}),
    ("SET CATCH_UP = NONE", {"recovery": "all"}, {"recovery": "none"}),
]


@pytest.mark.parametrize(("text", "before", "after"), SETTLED, ids=[text for text, _, _ in SETTLED])
def test_a_setting_is_changed_or_left_to_the_scheduler(text: str, before: Any, after: Any) -> None:
    assert change(text, job(settings=before)) == job(settings=after)


def test_a_job_that_runs_once_is_told_itself_what_becomes_of_it() -> None:
    once = job(schedule=Once(NOW))
    dropped = change("SET ON COMPLETION DROP", once)
    assert dropped == job(schedule=Once(NOW, drop=True))
    assert change("SET ON COMPLETION PRESERVE", dropped) == once
    later = change("SET SCHEDULE = AT '2026-02-01'", dropped)
    assert later == job(schedule=Once(datetime(2026, 2, 1, tzinfo=UTC), drop=True))


def test_the_present_state_is_kept_unless_the_statement_has_one() -> None:
    statement = one("ALTER JOB x SET TIMEOUT = 5m")
    assert alter_definition(statement, job(), JobState.PAUSED, now=NOW).state is JobState.PAUSED
    assert alter_definition(statement, job(), "DISABLED", now=NOW).state is JobState.DISABLED
    assert alter_definition(one("ALTER JOB x ENABLE"), job(), JobState.PAUSED, now=NOW).state is JobState.ENABLED


def test_an_anchor_is_not_carried_over_to_another_interval() -> None:
    present = job(schedule=Every("1h", anchor=NOW))
    assert change("SET TIMEOUT = 5m", present).schedule == present.schedule
    assert change("SET SCHEDULE = EVERY 2h", present).schedule == Every("2h")


REFUSED: list[tuple[str, JobSpec, str]] = [
    ("SET AS 'x'", job(tasks=(TaskSpec("a"), TaskSpec("b"))), "job x has 2 tasks"),
    ("SET TIMEZONE = 'Asia/Tokyo'", job(schedule=Every("1h")), "TIMEZONE has nothing to change"),
    ("SET FOLD = ONCE", job(schedule=Iso8601("P1D")), "FOLD has no effect here"),
    ("SET SCHEDULE = AT '2025-01-01'", job(), "is in the past"),
    ("SET TIMEZONE = 'Berlin'", job(), "Unknown time zone"),
]


@pytest.mark.parametrize(("text", "present", "reason"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_cannot_be_changed_so_is_refused_where_it_stands(text: str, present: JobSpec, reason: str) -> None:
    with pytest.raises(InvalidStatement, match=reason) as caught:
        change(text, present)
    assert (caught.value.line, caught.value.column) == (1, 17)


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(jobs(), jobs())
def test_setting_every_clause_of_another_job_makes_it_that_job(present: JobSpec, wanted: JobSpec) -> None:
    cleared = [
        *("SET DEADLINE = DEFAULT", "SET TIMEOUT = DEFAULT", "SET WINDOW = DEFAULT", "SET OVERLAP = DEFAULT"),
        *("SET RECOVERY = DEFAULT", "SET MISFIRE_GRACE = DEFAULT", "SET CANCEL_GRACE = DEFAULT", "SET MODE = DEFAULT"),
        *("SET DELIVERY = DEFAULT", "SET POOL = DEFAULT", "SET MAX_CONCURRENT = DEFAULT", "SET MAX_LOST = DEFAULT"),
        *("SET FAILURE = DEFAULT", "SET TASK_TIMEOUT = DEFAULT", "SET ISOLATION = DEFAULT", "SET RETRY = DEFAULT"),
        *("SET RUN AS NONE", "SET CLASS = NONE", "SET PARTITION BY NONE", "SET PAYLOAD = NULL", "SET TAGS = ()"),
        *('SET NAMESPACE = "default"', "SET DESCRIPTION = ''", "SET DEPENDS ON NONE", "SET SCHEDULE = NONE"),
        *("SET ON COMPLETION DEFAULT", "SET UPDATE_POLICY = DEFAULT"),
    ]
    bare = change(" ".join(cleared), replace(present, name="x", tasks=()))
    assert bare == JobSpec("x", None, state=present.state, owner=present.owner)
    target = replace(wanted, name="x", settings={"retry": NO_RETRY, **wanted.settings})
    clauses = create_statement(replace(target, owner=None), state=target.state, verb="CREATE JOB").clauses
    text = " ".join(f"SET {clause_text(clause)}" for clause in clauses)
    reached = change(
        text, replace(bare, settings={"retry": Retry(3, 60, 2.0)}, state=JobState.ENABLED, owner=target.owner)
    )
    assert reached == target


def test_a_job_made_by_sql_is_altered_by_sql() -> None:
    present = bound("MAX_RETRIES = 2", schedule="SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Brussels'")
    expected = {"retry": Retry(2, "5s", 2.0), "execution_timeout": timedelta(hours=1)}
    assert change("SET RETRY_BACKOFF = 5s", present).settings == expected
    assert change("SET SCHEDULE = CRON '0 3 * * *'", present).schedule == Cron(
        "0 3 * * *", tz="Europe/Brussels", fold="once"
    )
