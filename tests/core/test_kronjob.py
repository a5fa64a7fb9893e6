"""Krontab lines as jobs, and jobs as krontab lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import JobState
from horae.core.schedule.interval import Every
from horae.core.schedule.schedules import Cron
from horae.core.window.window import Window
from horae.errors import InvalidDefinition
from horae.formats.krontab.job import job_from_krontab, krontab_from_job
from horae.formats.krontab.parser import KrontabJob, parse_line

PLAIN = "0 3 * * * name=backup command=/usr/bin/backup"
FULL = (
    "0 10 * * MON-FRI @tz(Europe/Paris) @win(around,90m) @dist(skewLate,shape=2.5) @seed(weekly,salt=x)"
    " @policy(concurrency=replace,deadline=2h,suspend=true) @only(between=09:00-11:00) @avoid(dates=2026-12-24)"
    ' name=digest command="/usr/bin/digest --send" user=mail group=staff cwd=out env=A=1 env="B=two words" shell=true'
    ' umask=027 timeout=30m stdout=logs/out stderr=logs/err description="Every morning"'
)


def line(text: str) -> KrontabJob:
    job = parse_line(text)
    assert job is not None
    return job


def test_a_plain_line_is_a_job_with_one_external_task() -> None:
    spec = job_from_krontab(line(PLAIN))
    assert spec == JobSpec(
        "backup",
        Cron("0 3 * * *", fold="both"),
        (TaskSpec("command", "/usr/bin/backup", "EXTERNAL"),),
        {"overlap": "skip", "deadline": 0},
    )
    assert spec.state is JobState.ENABLED


def test_every_field_of_a_line_is_in_its_job() -> None:
    spec = job_from_krontab(line(FULL), namespace="mail")
    (task,) = spec.tasks
    assert (spec.name, spec.namespace, spec.description, spec.state) == (
        "digest",
        "mail",
        "Every morning",
        JobState.PAUSED,
    )
    assert spec.schedule == Cron("0 10 * * MON-FRI", tz="Europe/Paris", fold="both")
    assert (task.name, task.handler, task.kind, dict(task.settings)) == (
        "command",
        "/usr/bin/digest --send",
        "EXTERNAL",
        {},
    )
    assert task.options == {
        "cwd": "out",
        "env": {"A": "1", "B": "two words"},
        "group": "staff",
        "shell": True,
        "stderr": "logs/err",
        "stdout": "logs/out",
        "umask": 0o027,
        "user": "mail",
    }
    settings = spec.effective(task="command")
    assert (settings.overlap, settings.deadline, settings.task_timeout, settings.execution_timeout) == (
        "replace",
        timedelta(hours=2),
        timedelta(minutes=30),
        None,
    )
    assert settings.window == line(FULL).window
    assert settings.window is not None
    assert settings.window.length == timedelta(minutes=90)


@pytest.mark.parametrize(("concurrency", "overlap"), [("forbid", "skip"), ("allow", "allow"), ("replace", "replace")])
def test_concurrency_is_overlap(concurrency: str, overlap: str) -> None:
    job = line(f"@daily @policy(concurrency={concurrency}) name=a command=b")
    assert job_from_krontab(job).effective().overlap == overlap


def test_a_line_without_a_deadline_has_to_start_in_the_second_chosen_for_it() -> None:
    assert job_from_krontab(line(PLAIN)).effective().deadline == timedelta(0)


def test_a_line_without_a_timeout_has_the_one_that_all_jobs_have() -> None:
    settings = job_from_krontab(line(PLAIN)).effective()
    assert (settings.task_timeout, settings.execution_timeout) == (None, None)


@pytest.mark.parametrize("modifier", ["@win(before,0s)", "@seed(daily)", "@avoid(hours=3)", "@only(hours=3)"])
def test_a_window_of_no_length_is_kept_if_it_says_anything(modifier: str) -> None:
    job = line(f"0 3 * * * {modifier} name=a command=b")
    assert job_from_krontab(job).effective().window == job.window


@pytest.mark.parametrize("text", [PLAIN, FULL, "@hourly name=a command=b umask=0 env=A="])
def test_a_job_made_from_a_line_prints_as_that_line(text: str) -> None:
    spec = job_from_krontab(line(text), namespace="mail")
    again = krontab_from_job(spec)
    assert again == line(text)
    assert line(str(again)) == again
    assert krontab_from_job(JobSpec.from_dict(spec.to_dict())) == again


def test_variables_come_back_in_the_order_of_their_names() -> None:
    job = line("@daily name=a command=b env=Z=1 env=A=2")
    assert krontab_from_job(job_from_krontab(job)) == replace(job, env=(("A", "2"), ("Z", "1")))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schedule": Every("1h")}, "schedule"),
        ({"schedule": None}, "schedule"),
        ({"tasks": ()}, "tasks"),
        ({"tasks": (TaskSpec("command", "x", "SQL"),)}, "tasks"),
        ({"tasks": (TaskSpec("other", "x", "EXTERNAL"),)}, "tasks"),
        ({"tasks": (TaskSpec("command", "x", "EXTERNAL", {"failure": "continue"}),)}, "tasks"),
        ({"tasks": (TaskSpec("command", "x", "EXTERNAL", options={"secrets": [{"name": "a"}]}),)}, "tasks"),
        ({"settings": {}}, "overlap"),
        ({"settings": {"overlap": "queue", "deadline": 0}}, "overlap"),
        ({"settings": {"overlap": "skip"}}, "settings"),
        ({"settings": {"overlap": "skip", "deadline": 0, "task_timeout": "1h"}}, "settings"),
        ({"settings": {"overlap": "skip", "deadline": 0, "recovery": "all"}}, "settings"),
        ({"settings": {"overlap": "skip", "deadline": 0, "window": Window.after(0)}}, "settings"),
        ({"payload": 1}, "payload"),
        ({"tags": ("a",)}, "tags"),
        ({"state": JobState.DISABLED}, "state"),
        ({"depends_on": ("a",)}, "depends_on"),
        ({"run_as": "a"}, "run_as"),
    ],
)
def test_a_job_that_a_line_cannot_define_is_refused_with_what_it_cannot_say(change: dict[str, Any], named: str) -> None:
    spec = replace(job_from_krontab(line(PLAIN)), **change)
    with pytest.raises(InvalidDefinition, match=f'"backup" cannot be written as a krontab line: .*{named}'):
        krontab_from_job(spec)
