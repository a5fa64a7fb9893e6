"""What a change of definition does: which parts differ, and which updates can be asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.core.test_occurrence import HOURLY, at

from horae import Cron, Once, Retry, Schedule
from horae.core.change.diff import DefinitionChange, diff_definitions
from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState
from horae.errors import InvalidPolicy, InvalidTime

EVEN = Cron("0 */2 * * *")


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


def test_an_update_until_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidTime):
        Update("graceful", until=at("10:00").replace(tzinfo=None))


NOW = at("10:15")


@pytest.mark.parametrize(
    ("update", "old", "last"),
    [
        (Update(), HOURLY, "10:15"),
        (Update("windowed", horizon="2h"), HOURLY, "10:15"),
        (Update("graceful"), HOURLY, "11:00"),
        (Update("graceful"), EVEN, "12:00"),
        (Update("graceful"), Once(at("09:00")), "10:15"),
        (Update("graceful"), None, "10:15"),
        # At the given time itself the new schedule speaks.
        (Update("graceful", until=at("12:00")), HOURLY, "11:59:59"),
        (Update("graceful", until=at("12:00") + timedelta(milliseconds=1)), HOURLY, "12:00"),
        (Update("graceful", until=at("10:15")), HOURLY, "10:15"),
        (Update("graceful", until=at("09:00")), HOURLY, "10:15"),
    ],
)
def test_the_old_schedule_speaks_up_to_what_was_announced_or_before_the_given_time(
    update: Update, old: Schedule | None, last: str
) -> None:
    assert update.switch_at(old, NOW, NOW) == at(last)


def spec(**changes: Any) -> JobSpec:
    given_parts: dict[str, Any] = {
        "name": "etl",
        "schedule": HOURLY,
        "tasks": (TaskSpec("extract", "app:extract"), TaskSpec("load", "app:load", settings={"failure": "continue"})),
        "settings": {"retry": Retry(3, "30s")},
    }
    return JobSpec(**(given_parts | changes))


def paths(changes: tuple[DefinitionChange, ...]) -> list[str]:
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
    assert change == DefinitionChange("settings.retry", before, after)


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
