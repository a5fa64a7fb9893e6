"""Definitions: settings that cascade from scheduler to job to task, and specs that survive being stored."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tier import examples

from horae import Bounded, Constraints, Cron, Distribution, Every, Iso8601, Once, Queue, Retry, Schedule, Window
from horae.core.job import ids
from horae.core.job.definition import (
    DEFAULTS,
    TASK_SETTINGS,
    JobSpec,
    Settings,
    TaskSpec,
    effective,
    parse_settings,
    settings_from_dict,
)
from horae.core.job.policies import NO_RETRY
from horae.core.run.lifecycle import JobState
from horae.errors import InvalidDefinition, InvalidDuration, InvalidInput, InvalidName, InvalidPolicy, InvalidSchedule

HOURLY = Cron("0 * * * *")
law = settings(derandomize=True, deadline=None, max_examples=examples(60))


def test_where_nobody_says_anything_the_defaults_hold() -> None:
    assert effective() == DEFAULTS == Settings()
    assert DEFAULTS.overlap == "skip"
    assert DEFAULTS.recovery == "last"
    assert DEFAULTS.misfire_grace == timedelta(seconds=60)
    assert DEFAULTS.deadline is None
    assert DEFAULTS.retry == NO_RETRY
    assert DEFAULTS.failure == "fail_fast"
    assert DEFAULTS.mode == "sequential"
    assert DEFAULTS.execution_timeout is None
    assert DEFAULTS.task_timeout is None
    assert DEFAULTS.delivery == "at_least_once"
    assert DEFAULTS.max_lost == 3
    assert DEFAULTS.isolation == "auto"
    assert DEFAULTS.on_completion == "preserve"


def test_the_nearest_level_wins_and_the_others_shine_through() -> None:
    scheduler = parse_settings({"failure": "continue", "task_timeout": "5m", "overlap": "allow"})
    job = JobSpec(
        "report",
        HOURLY,
        (TaskSpec("plain"), TaskSpec("own", settings={"failure": "fail_fast", "isolation": "process"})),
        {"task_timeout": "10m"},
    )
    assert job.effective().task_timeout == timedelta(minutes=10)
    assert job.effective().failure == "fail_fast"
    whole = job.effective(scheduler)
    assert (whole.failure, whole.task_timeout, whole.overlap) == ("continue", timedelta(minutes=10), "allow")
    assert job.effective(scheduler, "plain") == whole
    own = job.effective(scheduler, "own")
    assert (own.failure, own.task_timeout, own.overlap) == ("fail_fast", timedelta(minutes=10), "allow")
    assert own.isolation == "process"


def test_the_etl_job_lets_task_3_retry_harder_and_task_10_clean_up() -> None:
    usual = Retry(3, "30s")
    tasks = [TaskSpec(f"task {number}") for number in range(1, 11)]
    tasks[2] = TaskSpec("task 3", settings={"retry": Retry(10, "1m", factor=2.0)})
    tasks[9] = TaskSpec("task 10", settings={"failure": "continue"})
    job = JobSpec("etl", HOURLY, tuple(tasks), {"mode": "parallel", "failure": "fail_fast", "retry": usual})
    for number in range(1, 11):
        found = job.effective(task=f"task {number}")
        assert found.mode == "parallel"
        assert found.retry == (Retry(10, "1m", factor=2.0) if number == 3 else usual)
        assert found.failure == ("continue" if number == 10 else "fail_fast")


def test_each_level_stores_only_what_it_sets() -> None:
    task = TaskSpec("load", settings={"failure": "continue"})
    job = JobSpec("etl", HOURLY, (task,), {"retry": {"max_retries": 3, "interval": "30s"}})
    assert job.to_dict() == {
        "name": "etl",
        "schedule": {"kind": "cron", "expr": "0 * * * *", "tz": "UTC"},
        "settings": {"retry": {"max_retries": 3, "interval": "30s"}},
        "tasks": [{"name": "load", "handler": "", "kind": "PYTHON", "settings": {"failure": "continue"}}],
    }
    assert JobSpec("bare", None).to_dict() == {"name": "bare"}


def test_a_level_that_repeats_the_default_has_still_set_it() -> None:
    scheduler = parse_settings({"overlap": "allow"})
    job = JobSpec("a", HOURLY, settings={"overlap": "skip"})
    assert job.to_dict()["settings"] == {"overlap": "skip"}
    assert job.effective(scheduler).overlap == "skip"


@pytest.mark.parametrize(
    ("name", "outer"),
    [
        ("deadline", "10s"),
        ("execution_timeout", "2h"),
        ("task_timeout", "5m"),
        ("window", {"mode": "after", "duration": "1h"}),
        ("max_lost", 5),
        ("pool", "database"),
        ("max_concurrent", 2),
    ],
)
def test_none_is_a_value_that_a_nearer_level_can_set(name: str, outer: Any) -> None:
    scheduler = parse_settings({name: outer})
    assert getattr(JobSpec("a", HOURLY).effective(scheduler), name) is not None
    job = JobSpec("a", HOURLY, settings={name: None})
    assert job.settings == {name: None}
    assert getattr(job.effective(scheduler), name) is None
    stored = JobSpec.from_dict(job.to_dict())
    assert getattr(stored.effective(scheduler), name) is None


def test_no_retry_can_be_set_against_a_scheduler_that_retries() -> None:
    scheduler = parse_settings({"retry": Retry(3, "30s")})
    job = JobSpec("a", HOURLY, (TaskSpec("t", settings={"retry": None}),))
    assert job.effective(scheduler).retry == Retry(3, "30s")
    assert job.effective(scheduler, "t").retry == NO_RETRY


@pytest.mark.parametrize(
    "name", ["mode", "failure", "overlap", "recovery", "misfire_grace", "cancel_grace", "delivery"]
)
def test_none_is_refused_where_a_setting_has_no_none(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        parse_settings({name: None})


def test_an_unknown_setting_is_refused_by_its_name_with_the_known_ones() -> None:
    with pytest.raises(InvalidDefinition, match='Unknown job setting "overlaps"') as caught:
        JobSpec("a", HOURLY, settings={"overlaps": "skip"})
    assert "overlap, " in (caught.value.hint or "")
    with pytest.raises(InvalidDefinition, match='Unknown task setting "retries"') as caught:
        TaskSpec("t", settings={"retries": 3})
    assert caught.value.hint == "Known settings: cancel_grace, failure, isolation, retry, task_timeout."


@pytest.mark.parametrize("name", sorted(set(DEFAULTS.to_dict()) - TASK_SETTINGS))
def test_what_belongs_to_the_job_as_a_whole_cannot_be_set_for_a_task(name: str) -> None:
    with pytest.raises(InvalidDefinition, match=f'Unknown task setting "{name}"'):
        TaskSpec("t", settings={name: DEFAULTS.to_dict()[name]})


@pytest.mark.parametrize(
    ("given_settings", "error", "complaint"),
    [
        ({"mode": "both"}, InvalidPolicy, 'mode "both"'),
        ({"failure": "stop"}, InvalidPolicy, 'failure "stop"'),
        ({"overlap": "forbid"}, InvalidPolicy, 'overlap "forbid"'),
        ({"recovery": "bounded"}, InvalidPolicy, "needs bounds"),
        ({"retry": 3}, InvalidPolicy, "retry"),
        ({"misfire_grace": "-1s"}, InvalidDuration, "misfire_grace"),
        ({"execution_timeout": "soon"}, InvalidDuration, "execution_timeout"),
        ({"max_lost": 0}, InvalidPolicy, "max_lost"),
        ({"max_concurrent": True}, InvalidPolicy, "max_concurrent"),
        ({"max_concurrent": 1.5}, InvalidPolicy, "max_concurrent"),
        ({"pool": ""}, InvalidName, "pool"),
        ({"window": {"mode": "after"}}, InvalidInput, "window"),
        ({"on_completion": "keep"}, InvalidPolicy, "on_completion"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_setting(
    given_settings: dict[str, Any], error: type[InvalidInput], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        parse_settings(given_settings)


def test_settings_come_out_in_their_own_types() -> None:
    parsed = parse_settings(
        {
            "overlap": "queue",
            "recovery": {"max_occurrences": 3},
            "deadline": 5,
            "window": {"mode": "before", "duration": 9},
        }
    )
    assert parsed == {
        "overlap": Queue(),
        "recovery": Bounded(3),
        "deadline": timedelta(seconds=5),
        "window": Window.before("9s"),
    }


def test_a_window_keeps_its_meaning_when_its_distribution_was_given_a_number() -> None:
    window = Window.after("1h", Distribution("skewLate", {"shape": 3}))
    assert Window.from_dict(window.to_dict()) == window


def test_a_task_that_the_job_does_not_have_is_asked_for_in_vain() -> None:
    with pytest.raises(InvalidDefinition, match='Job "a" has no task "missing"'):
        JobSpec("a", HOURLY, (TaskSpec("t"),)).effective(task="missing")


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match='Job "a" has two tasks called "t"'):
        JobSpec("a", HOURLY, (TaskSpec("t"), TaskSpec("u"), TaskSpec("t")))


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "x" * 256, "\x00", 5, None])
def test_names_are_checked_wherever_they_stand(name: Any) -> None:
    makers = (
        lambda: JobSpec(name, HOURLY),
        lambda: TaskSpec(name),
        lambda: JobSpec("a", HOURLY, namespace=name),
        lambda: JobSpec("a", HOURLY, tags=(name,)),
        lambda: JobSpec("a", HOURLY, depends_on=(name,)),
    )
    for maker in makers:
        with pytest.raises(InvalidName):
            maker()


def test_a_state_is_one_of_three() -> None:
    assert JobSpec("a", HOURLY, state="PAUSED").state is JobState.PAUSED  # type: ignore[arg-type]  # given all the same, to see what becomes of it
    with pytest.raises(InvalidPolicy, match='state "paused"'):
        JobSpec("a", HOURLY, state="paused")  # type: ignore[arg-type]  # given all the same, to see what becomes of it


def test_repeated_tags_and_dependencies_are_kept_once_in_order() -> None:
    job = JobSpec("a", HOURLY, tags=("x", "y", "x"), depends_on=("c", "b", "c"))
    assert (job.tags, job.depends_on) == (("x", "y"), ("c", "b"))


def test_the_identity_of_a_job_is_its_name_and_nothing_else() -> None:
    assert JobSpec("a", HOURLY).uuid == JobSpec("a", None, description="other").uuid == ids.job_uuid("a")


class Fortnightly:
    """A schedule of a user's own making, with nothing of ours in it."""

    def __init__(self, first: datetime) -> None:
        self.first = first

    def next(self, after: datetime) -> datetime | None:
        return next(iter(self.between(after, after + timedelta(days=15))), None)

    def previous(self, before: datetime) -> datetime | None:
        steps = -((self.first - before) // timedelta(days=14)) - 1
        return self.first + steps * timedelta(days=14) if steps >= 0 else None

    def between(self, start: datetime, end: datetime) -> Any:
        at = self.first
        while at <= end:
            if at > start:
                yield at
            at += timedelta(days=14)


def test_an_object_with_next_previous_and_between_serves_as_a_schedule() -> None:
    first = datetime(2026, 1, 5, 9, tzinfo=UTC)
    job = JobSpec("a", Fortnightly(first))  # type: ignore[arg-type]  # given all the same, to see what becomes of it
    assert isinstance(job.schedule, Schedule)
    assert job.schedule.next(first) == first + timedelta(days=14)
    assert job.schedule.matches(first)
    assert not job.schedule.matches(first + timedelta(days=7))
    assert job.to_dict()["schedule"] == {"kind": "custom", "path": f"{__name__}:Fortnightly"}
    stored = JobSpec.from_dict(job.to_dict())
    assert stored == job
    assert stored.schedule is not None
    with pytest.raises(InvalidSchedule, match="not loaded here"):
        stored.schedule.next(first)


@pytest.mark.parametrize("schedule", ["0 * * * *", 5, object(), Fortnightly])
def test_what_is_no_schedule_is_refused(schedule: Any) -> None:
    with pytest.raises(InvalidSchedule, match="is not a schedule"):
        JobSpec("a", schedule)


def test_unknown_keys_and_a_missing_name_are_refused_by_name() -> None:
    with pytest.raises(InvalidDefinition, match='Unknown key "shedule" in job "a"') as caught:
        JobSpec.from_dict({"name": "a", "shedule": {}})
    assert "schedule" in (caught.value.hint or "")
    with pytest.raises(InvalidDefinition, match='Unknown key "retry" in task "t"'):
        JobSpec.from_dict({"name": "a", "tasks": [{"name": "t", "retry": 1}]})
    with pytest.raises(InvalidDefinition, match="No name"):
        JobSpec.from_dict({"schedule": {"kind": "cron", "expr": "* * * * *"}})


moments = st.integers(0, 4 * 10**9).map(lambda second: datetime.fromtimestamp(second, UTC))
durations = st.integers(0, 10**13).map(lambda micro: timedelta(microseconds=micro))
counts = st.none() | st.integers(1, 1000)
names = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=12)
retries = st.builds(Retry, st.none() | st.integers(0, 20), durations, st.floats(1, 1000), st.none() | durations)
task_settings = st.fixed_dictionaries(
    {},
    optional={
        "failure": st.sampled_from(["fail_fast", "continue", "retry_on_failure"]),
        "retry": retries,
        "task_timeout": st.none() | durations,
        "isolation": st.sampled_from(["auto", "process"]),
    },
)
windows = st.builds(
    Window,
    st.sampled_from(["after", "before", "around", "center"]),
    durations,
    st.sampled_from([Distribution(), Distribution("skewLate", {"shape": "3"})]),
    st.sampled_from(["stable", "daily", "weekly"]),
    st.sampled_from(["", "salt"]),
    st.sampled_from([Constraints(), Constraints({"hours": ["9-17"]}, {"dow": ["SAT", "SUN"]})]),
)
job_settings = st.tuples(
    task_settings,
    st.fixed_dictionaries(
        {},
        optional={
            "mode": st.sampled_from(["sequential", "parallel"]),
            "overlap": st.sampled_from(["skip", "allow", "coalesce", "replace"]) | st.builds(Queue, counts),
            "recovery": st.sampled_from(["last", "all", "none", "compressed"])
            | st.builds(Bounded, st.integers(1, 99), st.none() | durations),
            "misfire_grace": durations,
            "deadline": st.none() | durations,
            "window": st.none() | windows,
            "execution_timeout": st.none() | durations,
            "delivery": st.sampled_from(["at_least_once", "at_most_once"]),
            "max_lost": counts,
            "cancel_grace": durations,
            "pool": st.none() | names,
            "max_concurrent": counts,
            "on_completion": st.sampled_from(["preserve", "drop"]),
        },
    ),
).map(lambda both: both[0] | both[1])
schedules = st.one_of(
    st.none(),
    st.sampled_from([HOURLY, Cron("0 9 * * MON", tz="Europe/Berlin", fold="once"), Iso8601("R5/P1M", anchor=None)]),
    st.builds(Every, st.integers(1, 10**6), start=moments),
    st.builds(Once, moments, st.booleans()),
    st.builds(lambda at: HOURLY | Once(at), moments),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
tasks = st.builds(TaskSpec, names, st.text(letters, max_size=8), st.sampled_from(["PYTHON", "SQL"]), task_settings)
specs = st.builds(
    JobSpec,
    names,
    schedules,
    st.lists(tasks, max_size=3, unique_by=lambda task: task.name).map(tuple),
    job_settings,
    plain,
    st.lists(names, max_size=3).map(tuple),
    st.text(letters, max_size=20),
    st.sampled_from(JobState),
    st.lists(names, max_size=3).map(tuple),
    names,
)


@law
@given(specs)
def test_a_definition_is_read_back_as_it_was_written_even_through_json(spec: JobSpec) -> None:
    written = spec.to_dict()
    assert JobSpec.from_dict(written) == spec
    through_json = JobSpec.from_dict(json.loads(json.dumps(written)))
    assert through_json == spec
    assert through_json.to_dict() == written


@law
@given(specs)
def test_a_definition_survives_pickling(spec: JobSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec


@law
@given(job_settings)
def test_the_snapshot_a_run_keeps_is_read_back_as_it_was_written(given_settings: dict[str, Any]) -> None:
    snapshot = effective(parse_settings(given_settings))
    assert settings_from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot


@law
@given(job_settings, job_settings, task_settings)
def test_every_setting_comes_from_the_nearest_level_that_has_it(
    outer: dict[str, Any], inner: dict[str, Any], own: dict[str, Any]
) -> None:
    job = JobSpec("a", HOURLY, (TaskSpec("t", settings=own),), inner)
    found = job.effective(parse_settings(outer), "t")
    for name in DEFAULTS.to_dict():
        level = next((level for level in (own, inner, outer) if name in level), None)
        wanted = getattr(DEFAULTS, name) if level is None else parse_settings({name: level[name]})[name]
        assert getattr(found, name) == wanted
