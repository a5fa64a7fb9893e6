"""What is printed reads back to the same: definitions and statements, whatever stands in their names and texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.drawn import NOW, STATEMENTS, jobs
from tests.tier import examples

from horae import Cron, Every, Once
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.custom import Custom
from horae.errors import InvalidDefinition
from horae.formats.sql import parse
from horae.formats.sql.binder import create_definition
from horae.formats.sql.printer import job_text, statement_text
from horae.formats.sql.statements import CreateJob

thorough = settings(derandomize=True, deadline=None, max_examples=examples(250))


def read(text: str) -> CreateJob:
    (statement,) = parse(text)
    assert isinstance(statement, CreateJob)
    return statement


@thorough
@given(jobs())
def test_a_printed_definition_binds_to_the_same_definition(spec: JobSpec) -> None:
    text = job_text(spec)
    found = create_definition(read(text), now=NOW)
    assert found == spec
    # Equal schedules may be written differently; what is stored is what is written.
    assert found.to_dict() == spec.to_dict()
    assert job_text(found) == text


@thorough
@given(STATEMENTS)
def test_a_printed_statement_parses_to_the_same_statement(statement: Any) -> None:
    assert parse(statement_text(statement)) == (statement,)


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(st.lists(STATEMENTS, max_size=5), st.sampled_from([";", ";\n", " ; -- next\n", ";;/* ; */;"]))
def test_a_printed_file_parses_to_the_same_statements(statements: list[Any], between: str) -> None:
    text = between.join(map(statement_text, statements))
    assert parse(text) == tuple(statements)


def simple(**more: Any) -> JobSpec:
    given = {
        "settings": {"retry": Retry(3, 60, 2.0), "execution_timeout": 3600},
        "tasks": (TaskSpec("x", "SELECT 1", "SQL"),),
    } | more
    return JobSpec("x", given.pop("schedule", Every(3600)), **given)


PRINTED = [
    (simple(), "CREATE JOB x\n  SCHEDULE = EVERY 1h\n  AS 'SELECT 1'"),
    (
        simple(schedule=Cron("0 2 * * *", tz="Europe/Brussels", fold="once"), state=JobState.PAUSED, tags=("a", "b c")),
        (
            "CREATE JOB x\n  SCHEDULE = CRON '0 2 * * *'\n  TIMEZONE = 'Europe/Brussels'\n  TAGS = (a, \"b c\")\n"
            "  PAUSED\n  AS 'SELECT 1'"
        ),
    ),
    (
        simple(schedule=Once(NOW, drop=True), settings={}),
        (
            "CREATE JOB x\n  SCHEDULE = AT '2026-01-01T00:00:00Z'\n  ON COMPLETION DROP\n"
            "  RETRY = DEFAULT\n  TIMEOUT = DEFAULT\n  AS 'SELECT 1'"
        ),
    ),
    (
        simple(schedule=Cron("0 2 * * *") | Every(60), tasks=(TaskSpec("f", "app.f"),), settings={"retry": None}),
        (
            "CREATE JOB x\n  SCHEDULE = CRON '0 2 * * *' ON FOLD AUTO\n    OR EVERY 1m\n  RETRY = NONE\n"
            "  TIMEOUT = DEFAULT\n  PYTHON app.f"
        ),
    ),
    (
        simple(tasks=(TaskSpec("a", "SELECT 1", "SQL"), TaskSpec("b", "p", "PROCEDURE", {"failure": "continue"}))),
        "CREATE JOB x\n  SCHEDULE = EVERY 1h\n  TASKS (\n    a AS 'SELECT 1',\n    b CALL p FAILURE = CONTINUE\n  )",
    ),
]


@pytest.mark.parametrize(("spec", "text"), PRINTED, ids=range(len(PRINTED)))
def test_a_definition_is_printed_one_clause_a_line(spec: JobSpec, text: str) -> None:
    assert job_text(spec) == text
    assert create_definition(read(text), now=NOW) == spec


def test_the_present_state_and_the_verb_may_be_other_than_the_definition_s() -> None:
    text = job_text(simple(), state="DISABLED", verb="CREATE OR ALTER JOB")
    assert text == "CREATE OR ALTER JOB x\n  SCHEDULE = EVERY 1h\n  DISABLED\n  AS 'SELECT 1'"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"schedule": Custom("shop.times:Holidays")}, 'no words for the schedule "custom shop.times:Holidays"'),
        ({"payload": {1: 2}}, "reads back to something else"),
        ({"payload": {"a": float("nan")}}, "is not JSON"),
        ({"payload": {"a": object}}, "is not JSON"),
        (
            {"tasks": (TaskSpec("p", "p", "PROCEDURE", options={"arguments": [float("inf")]}),)},
            "no words for the value",
        ),
    ],
)
def test_what_sql_cannot_say_is_refused_with_that_reason(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        job_text(simple(**changed))
