"""The page on SQL: every example is read, and every job in it is one that could be defined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.formats.drawn import NOW

from horae.errors import InvalidStatement
from horae.formats.sql import parse
from horae.formats.sql.binder import create_definition
from horae.formats.sql.printer import job_text, statement_text
from horae.formats.sql.statements import CreateJob

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_read_and_its_jobs_are_bound(text: str) -> None:
    for statement in parse(text):
        assert parse(statement_text(statement)) == (statement,)
        if isinstance(statement, CreateJob):
            assert parse(job_text(create_definition(statement, now=NOW)))


def test_there_are_examples_of_jobs_and_of_people() -> None:
    assert [len(parse(text)) for text in EXAMPLES] == [1, 6, 4, 3, 14]


def test_the_fault_on_the_page_is_the_one_that_is_told() -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse("CREATE JOB x\n  SHEDULE = NONE")
    assert f"```\n{caught.value}\n{caught.value.hint}\n```" in PAGE
