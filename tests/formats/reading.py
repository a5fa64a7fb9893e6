"""Statements read from text, for tests."""

from __future__ import annotations

from typing import Any

from tests.formats.drawn import NOW

from horae.core.job.definition import JobSpec
from horae.formats.sql import parse
from horae.formats.sql.binder import create_definition

UUID = "3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a"
OTHER = "12345678-8a55-4c0e-9b6c-2f7f2c1d4e5a"


def one(text: str) -> Any:
    """The only statement of a text."""
    (statement,) = parse(text)
    return statement


def bound(clauses: str, *, body: str = "AS 'SELECT 1'", schedule: str = "SCHEDULE = EVERY 1h") -> JobSpec:
    """The job that the clauses define, beside a schedule and a body unless those are empty."""
    return create_definition(one(f"CREATE JOB x {schedule} {clauses} {body}"), now=NOW)
