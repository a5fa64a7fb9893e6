"""How deep free values may lie in each other, and what a job that is not there is told as."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.job.definition import DEEPEST, JobSpec, TaskSpec, check_depth, job_not_found
from horae.errors import InvalidDefinition


def nested(depth: int) -> Any:
    found: Any = None
    for level in range(depth):
        found = {"in": found} if level % 2 else [found]
    return found


def test_a_payload_and_arguments_are_taken_to_a_depth_and_not_beyond() -> None:
    assert JobSpec("deep", None, payload=nested(DEEPEST)).payload == nested(DEEPEST)
    with pytest.raises(InvalidDefinition, match=r'payload of job "deep" has .* more than 64 deep'):
        JobSpec("deep", None, payload=nested(DEEPEST + 1))
    with pytest.raises(InvalidDefinition, match=r'options of task "call" .* more than 64 deep'):
        TaskSpec("call", "tidy", "PROCEDURE", options={"arguments": [nested(DEEPEST)]})


def test_what_contains_itself_or_shares_its_parts_is_judged_at_once() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidDefinition, match="64 deep"):
        check_depth(circle, "payload")
    shared: Any = 1
    for _ in range(DEEPEST):
        shared = [shared, shared]
    check_depth(shared, "payload")


def test_a_job_that_is_not_there_is_told_with_where_to_look() -> None:
    error = job_not_found("nightly")
    assert str(error) == 'There is no job "nightly"'
    assert error.hint == "Names are exact; `horae job list` or app.jobs() lists them."
