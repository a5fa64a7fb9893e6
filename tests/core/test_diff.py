"""What a change of definition does: which slots come, go and stay under each policy, and which parts differ."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_occurrence import HOURLY, MINUTELY, at, hours
from tests.depth import examples

from horae import Cron, Every, Once, Retry, Schedule
from horae.core.diff import IMMEDIATE, Change, SlotDiff, Update, belongs, diff_definitions, diff_slots
from horae.core.job import JobSpec, TaskSpec
from horae.core.lifecycle import JobState
from horae.errors import InvalidPolicy, InvalidTime

law = settings(derandomize=True, deadline=None, max_examples=examples(200))
EVEN = Cron("0 */2 * * *")
HALVES = Cron("0,30 * * * *")
GRACEFUL = Update("graceful")


def compared(
    old: Schedule | None, new: Schedule | None, now: str, until: str, update: Update = IMMEDIATE
) -> dict[str, list[str]]:
    found = diff_slots(old, new, at(now), at(until), update)
    assert not found.truncated
    sides = {"added": found.added, "removed": found.removed, "kept": found.kept}
    return {name: [f"{slot:%H:%M}" for slot in slots] for name, slots in sides.items()}


def test_immediately_means_from_now_on() -> None:
    assert compared(HOURLY, EVEN, "10:15", "14:00") == {
        "added": [],
        "removed": ["11:00", "13:00"],
        "kept": ["12:00", "14:00"],
    }
    assert compared(EVEN, HALVES, "10:00", "12:00") == {
        "added": ["10:30", "11:00", "11:30"],
        "removed": [],
        "kept": ["12:00"],
    }


def test_gracefully_means_that_the_announced_slot_still_follows_the_old_schedule() -> None:
    assert compared(HOURLY, Cron("30 * * * *"), "10:15", "12:30", GRACEFUL) == {
        "added": ["11:30", "12:30"],
        "removed": ["12:00"],
        "kept": ["11:00"],
    }


def test_the_next_day_still_runs_at_the_old_time() -> None:
    now, until = at("12:00"), at("12:00") + timedelta(days=3)
    found = diff_slots(Cron("0 5 * * *"), Cron("0 3 * * *"), now, until, GRACEFUL)
    assert [f"{slot:%d %H}" for slot in found.kept] == ["06 05"]
    assert [f"{slot:%d %H}" for slot in found.added] == ["07 03", "08 03"]
    assert [f"{slot:%d %H}" for slot in found.removed] == ["07 05", "08 05"]


def test_gracefully_until_a_time_leaves_everything_before_it() -> None:
    update = Update("graceful", until=at("13:15"))
    assert compared(HOURLY, Cron("30 * * * *"), "10:15", "15:00", update) == {
        "added": ["13:30", "14:30"],
        "removed": ["14:00", "15:00"],
        "kept": ["11:00", "12:00", "13:00"],
    }


def test_at_the_given_time_itself_the_new_schedule_speaks() -> None:
    update = Update("graceful", until=at("12:00"))
    assert compared(HOURLY, Cron("0 1-11 * * *"), "10:15", "13:00", update)["removed"] == ["12:00", "13:00"]
    assert compared(Cron("30 * * * *"), HOURLY, "10:15", "12:00", update)["added"] == ["12:00"]


@pytest.mark.parametrize("until", ["09:00", "10:15"])
def test_gracefully_until_a_time_that_is_past_is_immediately(until: str) -> None:
    assert diff_slots(HOURLY, EVEN, at("10:15"), at("14:00"), Update("graceful", until=at(until))) == diff_slots(
        HOURLY, EVEN, at("10:15"), at("14:00")
    )


def test_gracefully_from_a_schedule_that_has_ended_is_immediately() -> None:
    assert compared(Once(at("09:00")), EVEN, "10:15", "12:00", GRACEFUL)["added"] == ["12:00"]
    assert compared(None, EVEN, "10:15", "12:00", GRACEFUL)["added"] == ["12:00"]


def test_within_a_window_only_what_lies_before_the_horizon_is_looked_at() -> None:
    update = Update("windowed", horizon=timedelta(hours=2))
    found = diff_slots(HOURLY, HALVES, at("10:15"), at("20:00"), update)
    assert (found.until, found.switch_at) == (at("12:15"), at("10:15"))
    assert [hours(slot) for slot in found.added] == ["10:30:00", "11:30:00"]
    near = Update("windowed", horizon=timedelta(days=9))
    assert diff_slots(HOURLY, HALVES, at("10:15"), at("12:00"), near).until == at("12:00")


def test_a_job_that_comes_or_goes_has_everything_added_or_removed() -> None:
    assert compared(None, HOURLY, "10:15", "12:00") == {"added": ["11:00", "12:00"], "removed": [], "kept": []}
    assert compared(HOURLY, None, "10:15", "12:00") == {"added": [], "removed": ["11:00", "12:00"], "kept": []}
    assert compared(HOURLY, None, "10:15", "12:00", GRACEFUL) == {"added": [], "removed": ["12:00"], "kept": ["11:00"]}
    assert compared(None, None, "10:15", "12:00") == {"added": [], "removed": [], "kept": []}


def test_a_time_without_zone_is_refused() -> None:
    naive = at("10:00").replace(tzinfo=None)
    for arguments in ((naive, at("11:00")), (at("09:00"), naive)):
        with pytest.raises(InvalidTime):
            diff_slots(HOURLY, EVEN, *arguments)
    with pytest.raises(InvalidTime):
        Update("graceful", until=naive)


@pytest.mark.parametrize(
    "arguments",
    [
        {"policy": "later"},
        {"policy": "immediate", "until": at("10:00")},
        {"policy": "graceful", "horizon": timedelta(days=1)},
        {"policy": "windowed", "horizon": timedelta(0)},
        {"policy": "windowed", "horizon": timedelta(days=1), "until": at("10:00")},
    ],
)
def test_an_update_with_parts_that_do_not_belong_to_it_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy, match="update policy"):
        Update(**arguments)


def in_span(schedule: Schedule | None, start: datetime, end: datetime) -> list[datetime]:
    return [] if schedule is None or end <= start else list(schedule.between(start, end))


schedules = st.sampled_from(
    [None, HOURLY, EVEN, HALVES, Cron("*/7 * * * *"), Every("25m", start=at("00:00")), Once(at("11:30"))]
)
minutes = st.integers(0, 12 * 60).map(lambda minute: at("06:00") + timedelta(minutes=minute))
updates = st.one_of(
    st.just(IMMEDIATE),
    st.just(GRACEFUL),
    st.builds(lambda until: Update("graceful", until=until + timedelta(seconds=1)), minutes),
    st.builds(lambda minute: Update("windowed", horizon=timedelta(minutes=minute)), st.integers(1, 600)),
)


def check_diff(found: SlotDiff, old: Schedule | None, new: Schedule | None, now: datetime, update: Update) -> None:
    added, removed, kept = set(found.added), set(found.removed), set(found.kept)
    assert not added & removed
    assert not kept & (added | removed)
    assert sorted(kept | removed) == in_span(old, now, found.until)
    future = [*in_span(old, now, found.switch_at), *in_span(new, found.switch_at, found.until)]
    assert sorted(kept | added) == future
    for slots in (found.added, found.removed, found.kept):
        assert list(slots) == sorted(slots)
    for slot in added | removed | kept:
        assert belongs(slot, old, new, found.switch_at) == (slot in added | kept)
    if update.policy != "graceful":
        assert found.switch_at == now


@law
@given(schedules, schedules, minutes, minutes, updates)
def test_what_is_kept_and_removed_is_the_old_future_and_what_is_kept_and_added_the_new(
    old: Schedule | None, new: Schedule | None, now: datetime, until: datetime, update: Update
) -> None:
    until = max(now, until)
    found = diff_slots(old, new, now, until, update)
    assert not found.truncated
    check_diff(found, old, new, now, update)
    assert found.until <= until


@law
@given(schedules, minutes, minutes, updates)
def test_no_change_adds_and_removes_nothing(
    schedule: Schedule | None, now: datetime, until: datetime, update: Update
) -> None:
    found = diff_slots(schedule, schedule, now, until, update)
    assert (found.added, found.removed) == ((), ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MINUTELY, None),
        (None, MINUTELY),
        (MINUTELY, HOURLY),
        (HOURLY, MINUTELY),
        (MINUTELY, Every("50s", start=at("00:00"))),
    ],
)
def test_too_many_slots_are_compared_only_as_far_as_both_sides_are_known(
    old: Schedule | None, new: Schedule | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.core.diff.MOST_SLOTS", 100)
    found = diff_slots(old, new, at("06:00"), at("20:00"))
    assert found.truncated
    assert at("06:30") < found.until < at("20:00")
    check_diff(found, old, new, at("06:00"), IMMEDIATE)


def test_as_many_slots_as_can_be_compared_are_compared_without_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.core.diff.MOST_SLOTS", 100)
    assert not diff_slots(MINUTELY, None, at("06:00"), at("07:40")).truncated
    assert diff_slots(MINUTELY, None, at("06:00"), at("07:41")).truncated


@pytest.mark.parametrize(
    ("slot", "old", "new", "expected"),
    [
        ("11:00", HOURLY, EVEN, True),
        ("12:00", HOURLY, EVEN, True),
        ("13:00", HOURLY, EVEN, False),
        ("11:30", HOURLY, HALVES, False),
        ("12:30", HOURLY, HALVES, True),
        ("11:00", HOURLY, None, True),
        ("12:00", HOURLY, None, False),
        ("11:00", None, HOURLY, False),
        ("12:00", None, HOURLY, True),
    ],
)
def test_a_run_that_has_not_started_keeps_its_place_if_the_schedule_that_holds_has_its_slot(
    slot: str, old: Schedule | None, new: Schedule | None, expected: bool
) -> None:
    assert belongs(at(slot), old, new, at("11:30")) is expected


def spec(**changes: Any) -> JobSpec:
    given_parts: dict[str, Any] = {
        "name": "etl",
        "schedule": HOURLY,
        "tasks": (TaskSpec("extract", "app:extract"), TaskSpec("load", "app:load", settings={"failure": "continue"})),
        "settings": {"retry": Retry(3, "30s")},
    }
    return JobSpec(**(given_parts | changes))


def paths(changes: tuple[Change, ...]) -> list[str]:
    return [change.path for change in changes]


EXTRACT, LOAD = spec().tasks


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"schedule": EVEN}, ["schedule"]),
        ({"schedule": None}, ["schedule"]),
        ({"settings": {"retry": Retry(4, "30s")}}, ["settings.retry"]),
        ({"settings": {}}, ["settings.retry"]),
        ({"settings": {"retry": Retry(3, 30), "overlap": "allow"}}, ["settings.overlap"]),
        ({"payload": {"x": 1}}, ["payload"]),
        ({"tags": ("a",)}, ["tags"]),
        ({"description": "words"}, ["description"]),
        ({"state": JobState.PAUSED}, ["state"]),
        ({"depends_on": ("other",)}, ["depends_on"]),
        ({"namespace": "team"}, ["namespace"]),
        ({"tasks": (LOAD, EXTRACT)}, ["tasks"]),
        ({"tasks": (EXTRACT,)}, ["tasks", "tasks.load.handler", "tasks.load.kind", "tasks.load.settings.failure"]),
        ({"tasks": (EXTRACT, LOAD, TaskSpec("more"))}, ["tasks", "tasks.more.handler", "tasks.more.kind"]),
        ({"tasks": (TaskSpec("extract", "app:other"), LOAD)}, ["tasks.extract.handler"]),
        ({"tasks": (TaskSpec("extract", "app:extract", "SQL"), LOAD)}, ["tasks.extract.kind"]),
        ({"tasks": (EXTRACT, TaskSpec("load", "app:load"))}, ["tasks.load.settings.failure"]),
        ({"name": "other"}, ["name"]),
    ],
)
def test_every_part_that_differs_is_named_by_its_path(changes: dict[str, Any], expected: list[str]) -> None:
    there, back = diff_definitions(spec(), spec(**changes)), diff_definitions(spec(**changes), spec())
    assert paths(there) == paths(back) == expected
    assert [(change.before, change.after) for change in there] == [(change.after, change.before) for change in back]


def test_a_change_shows_both_sides() -> None:
    (change,) = diff_definitions(spec(), spec(settings={"retry": Retry(4, "1m")}))
    before, after = {"max_retries": 3, "interval": "30s"}, {"max_retries": 4, "interval": "1m"}
    assert change == Change("settings.retry", before, after)


def test_a_setting_that_is_none_differs_from_one_that_is_not_set() -> None:
    unset, none = spec(settings={}), spec(settings={"execution_timeout": None})
    assert unset != none
    assert (
        paths(diff_definitions(unset, none)) == paths(diff_definitions(none, unset)) == ["settings.execution_timeout"]
    )


def test_a_job_that_did_not_exist_differs_in_all_it_has() -> None:
    everything = paths(diff_definitions(None, spec()))
    assert everything == sorted(everything)
    assert {"name", "schedule", "settings.retry", "tasks", "tasks.extract.handler"} <= set(everything)
    assert paths(diff_definitions(spec(), None)) == everything
    assert diff_definitions(None, None) == ()
