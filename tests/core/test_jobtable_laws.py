"""What is printed reads back to the same, and the schema is about the same shapes as the reader."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from tests.formats.drawn import JSON, NAMES, SETTINGS, jobs, some
from tests.tier import examples

from horae.core.job.definition import JobSpec, parse_settings
from horae.core.job.dependencies import find_cycle
from horae.core.run.lifecycle import JobState
from horae.core.schedule.custom import Custom
from horae.core.shape import ShapeFault
from horae.formats.toml.job_file import (
    JOB_FILE_SCHEMA,
    JobFile,
    job_file_toml,
    job_table,
    job_toml,
    read_job_file,
    read_job_table,
)
from horae.formats.toml.keys import FILE, JOB

VALIDATOR = Draft202012Validator(dict(JOB_FILE_SCHEMA))
JOB_VALIDATOR = Draft202012Validator(JOB.schema())


def has_work(spec: JobSpec) -> bool:
    """Whether a job file has words for it: work without text is refused there."""
    return bool(spec.tasks) and all(task.handler or task.kind == "PYTHON" for task in spec.tasks)


SAYABLE = jobs().filter(has_work)


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(SAYABLE)
def test_a_printed_job_reads_back_to_the_same_definition(spec: JobSpec) -> None:
    table = job_table(spec)
    again = read_job_table(spec.name, table)
    assert again == spec
    # Equal schedules may be written differently; what is stored is what is written.
    assert again.to_dict() == spec.to_dict()
    assert json.loads(json.dumps(table)) == table
    JOB_VALIDATOR.validate(table)
    if spec.name not in spec.depends_on:
        text = job_toml(spec)
        (again,) = read_job_file(text, file="jobs.toml").jobs
        assert again.to_dict() == spec.to_dict()
        assert job_toml(again) == text


@settings(derandomize=True, deadline=None, max_examples=examples(30))
@given(
    NAMES,
    some(SETTINGS),
    st.dictionaries(NAMES, st.integers(1, 99), max_size=2),
    st.lists(SAYABLE, max_size=3, unique_by=lambda spec: spec.name),
)
def test_a_printed_file_reads_back_to_the_same_file(
    namespace: str, defaults: dict[str, Any], pools: dict[str, int], specs: list[JobSpec]
) -> None:
    mine = tuple(JobSpec.from_dict({**spec.to_dict(), "namespace": namespace}) for spec in specs)
    assume(find_cycle({spec.name: spec.depends_on for spec in mine}) is None)
    stated = frozenset(spec.name for spec in mine if spec.state is not JobState.ENABLED)
    file = JobFile(namespace, parse_settings(defaults), pools, mine, stated)
    text = job_file_toml(file)
    again = read_job_file(text, file="jobs.toml")
    assert again == file
    assert job_file_toml(again) == text


def test_the_present_state_may_be_other_than_the_definition_s() -> None:
    spec = read_job_table("a", {"every": "1h", "sql": "SELECT 1"})
    assert job_table(spec, state="PAUSED")["state"] == "PAUSED"
    assert read_job_file(job_toml(spec, state=JobState.DISABLED), file="x").jobs[0].state is JobState.DISABLED


def test_a_schedule_of_one_s_own_is_named_by_its_path() -> None:
    spec = read_job_table("a", {"custom": "shop.times:Holidays", "sql": "SELECT 1"})
    assert spec.schedule == Custom("shop.times:Holidays")
    assert job_table(spec) == {"custom": "shop.times:Holidays", "sql": "SELECT 1"}


# ---- the schema ------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON has it: times are text there."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


ODD = JSON | st.sampled_from(
    ["none", "unlimited", 0, 1, -1, 3.0, True, [], {}, [{}], "1h", "2026-12-24T18:00:00Z", "queue", date(2026, 1, 1)]
)


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A job's table with one thing changed, added or taken away, somewhere in it."""
    table = json.loads(json.dumps(job_table(draw(SAYABLE))))
    inside: Any = table
    while True:
        keys: list[Any] = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        deeper = [key for key in keys if isinstance(inside[key], dict | list) and inside[key]]
        if not deeper or draw(st.booleans()):
            break
        inside = inside[draw(st.sampled_from(deeper))]
    if isinstance(inside, dict) and draw(st.booleans()):
        inside[draw(st.sampled_from(sorted(JOB.keys)) | NAMES)] = draw(ODD)
    elif keys:
        key = draw(st.sampled_from(keys))
        if draw(st.booleans()):
            inside[key] = draw(ODD)
        else:
            del inside[key]
    return dict(table)


def has_date(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_date, value.values() if isinstance(value, dict) else value))
    return isinstance(value, date | time)


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(spoiled())
def test_what_the_reader_refuses_for_its_shape_the_schema_refuses_and_nothing_else(table: dict[str, Any]) -> None:
    # JSON has no dates: in its words one is text, which the schema rightly takes where text is meant.
    assume(not has_date(table))
    try:
        JOB.refuse(table, ())
        refused = None
    except ShapeFault as fault:
        refused = fault
    is_valid = JOB_VALIDATOR.is_valid(plain(table))
    if refused is None or not refused.of_shape:
        # What core refuses first may hide a fault of shape behind it.
        assert is_valid or refused is not None
    else:
        assert not is_valid, refused.reason


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(dict(JOB_FILE_SCHEMA))
    assert set(JOB_FILE_SCHEMA["properties"]) == set(FILE.keys)


def test_the_schema_describes_every_key() -> None:
    found: list[tuple[str, str]] = []

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for name, each in schema.get("properties", {}).items():
                found.append((name, each.get("description", "")))
            for each in schema.values():
                walk(each)
        elif isinstance(schema, list):
            for each in schema:
                walk(each)

    walk(dict(JOB_FILE_SCHEMA))
    assert len(found) > 100
    assert [name for name, about in found if not about] == []


def test_the_schema_refuses_a_file_with_an_unknown_section() -> None:
    assert VALIDATOR.is_valid({"jobs": {"a": {"every": "1h", "sql": "SELECT 1"}}, "pools": {"x": 1}})
    assert not VALIDATOR.is_valid({"job": {}})
    assert not VALIDATOR.is_valid({"jobs": {"a": {"every": "1h"}}})
