"""What differs, in words: whatever differs is told so that both sides look different."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from horae.core.change.diff import DefinitionChange, diff_definitions
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.job.policies import Retry
from horae.core.schedule.schedules import Cron
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.services.plan.differences import LONGEST, PartDifference, describe_changes
from horae.services.plan.terminal_words import harmless

NIGHTLY = Cron("0 2 * * *")
JOB = JobSpec("job", NIGHTLY, (TaskSpec("load", "SELECT 1", "SQL"),))
LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.text("ab\n\x1b", max_size=4) | st.text("x", min_size=70)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("kl", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def told(old: JobSpec, new: JobSpec) -> list[str]:
    return [each.text for each in describe_changes(diff_definitions(old, new))]


def windowed(sigma: str) -> JobSpec:
    drawn = Distribution("normal", {"sigma": sigma})
    return replace(JOB, settings={"window": Window.around("90m", distribution=drawn)})


def test_the_parts_of_a_value_that_differ_are_told_by_their_paths() -> None:
    assert told(windowed("10m"), windowed("20m")) == ["settings.window.distribution.sigma: 10m -> 20m"]
    plain = replace(JOB, settings={"window": Window.around("90m")})
    assert told(plain, windowed("10m"))[0].startswith("settings.window.distribution: uniform -> ")
    before, after = (replace(JOB, payload={"b": 1, "a": {"c": value, "d": 2}}) for value in (1, 9))
    assert told(before, after) == ["payload.a.c: 1 -> 9"]


def test_what_the_text_of_a_schedule_does_not_show_is_told_beside_it() -> None:
    ends = replace(JOB, schedule=Cron("0 2 * * *", end=datetime(2027, 1, 1, tzinfo=UTC)))
    assert told(JOB, ends) == ["schedule.end: none -> 2027-01-01T00:00:00Z"]
    later = replace(JOB, schedule=Cron("0 3 * * *", tz="Europe/Berlin", gap="shift"))
    assert told(JOB, later) == [
        "schedule: cron 0 2 * * * -> cron 0 3 * * * Europe/Berlin",
        "schedule.gap: skip -> shift",
    ]
    assert told(JOB, replace(JOB, schedule=None)) == ["schedule: cron 0 2 * * * -> none"]


def test_none_and_nobody_have_words() -> None:
    off, on = (replace(JOB, settings={"retry": each}) for each in (None, Retry(3, "5s")))
    assert told(off, on) == ['settings.retry: none -> {"interval": "5s", "max_retries": 3}']
    assert told(on, off)[0].endswith("} -> none")
    assert told(JOB, replace(JOB, owner="ann")) == ["owner: local -> ann"]


def test_a_task_that_comes_goes_or_is_renamed_takes_one_line() -> None:
    more = TaskSpec("fetch", "shop:fetch", settings={"retry": Retry(3, "5s")})
    both = replace(JOB, tasks=(more, *JOB.tasks))
    assert told(JOB, both) == ["tasks.fetch: new, PYTHON shop:fetch"]
    assert told(both, JOB) == ["tasks.fetch: gone"]
    assert told(both, replace(JOB, tasks=both.tasks[::-1])) == ["tasks: fetch, load -> load, fetch"]
    assert told(JOB, replace(JOB, tasks=(TaskSpec("read", "SELECT 1", "SQL"),))) == ["tasks.read: renamed, was load"]
    other = replace(JOB, tasks=(TaskSpec("read", "SELECT 2", "SQL"),))
    assert told(JOB, other) == ["tasks.load: gone", "tasks.read: new, SQL"]


def test_of_a_long_text_the_lines_that_differ_are_told() -> None:
    lines = [f"line {number}" for number in range(200)]
    changed = [*lines[:100], "another", *lines[101:]]
    (found,) = describe_changes([DefinitionChange("tasks.a.handler", "\n".join(lines), "\n".join(changed))])
    assert found.lines() == ["  line 99", "- line 100", "+ another", "  line 101"]
    assert (found.before, found.after) == ("\n".join(lines), "\n".join(changed))
    (flat,) = describe_changes([DefinitionChange("tasks.a.handler", "x" * 500 + "a", "x" * 500 + "b")])
    assert flat.lines() == [f"- …{'x' * 20}a", f"+ …{'x' * 20}b"]
    assert flat.short == f"tasks.a.handler: …{'x' * 20}a -> …{'x' * 20}b"
    (new,) = describe_changes([DefinitionChange("description", None, "\n".join(lines))])
    assert new.lines()[-1] == "… 188 more lines"


def look(each: PartDifference) -> tuple[Any, Any]:
    lines = [harmless(line) for line in each.lines()]
    return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]


@given(VALUES, VALUES)
def test_two_values_that_differ_never_look_the_same(before: Any, after: Any) -> None:
    found = describe_changes([DefinitionChange("payload", before, after)])
    if before == after:
        return
    assert found
    for each in found:
        if each.is_long:
            was, will = look(each)
            assert was != will
        else:
            was, will = (harmless(text or "none") for text in (each.said_before, each.said_after))
            assert was != will
            assert len(each.text) < 2 * LONGEST + len(each.path) + 10
        assert "\n" not in each.short
