"""A schedule in every language it can be written in: Python, a job file, SQL, the command line."""

from __future__ import annotations

import shlex
from datetime import timedelta

from horae.core.duration import format_duration
from horae.core.interval import Every, Iso8601
from horae.core.job import JobSpec, TaskSpec
from horae.core.jobtable import job_toml
from horae.core.schedule import Cron, Schedule
from horae.ddl.printer import job_text

NAME = "mine"
_USUAL = {"tz": "UTC", "dialect": "extended", "gap": "skip", "fold": "auto"}


def ways(schedule: Schedule, text: str) -> tuple[tuple[str, str], ...]:
    """How to write it, each way with its name; `text` is what was typed."""
    spec = JobSpec(name=NAME, schedule=schedule, tasks=(TaskSpec(NAME, NAME),))
    found = [("Python", python_text(schedule)), ("jobs.toml", job_toml(spec).strip()), ("SQL", job_text(spec))]
    return (*found, ("Command line", command_text(schedule, text)))


def python_text(schedule: Schedule) -> str:
    """The expression that makes it, without what it would have anyhow."""
    if isinstance(schedule, Every):
        return f'Every("{format_duration(timedelta(seconds=schedule.seconds))}")'
    options = "".join(f', {name}="{value}"' for name, value in _said(schedule))
    if isinstance(schedule, Cron):
        return f'Cron("{schedule.expr}"{options})'
    return f'Iso8601("{schedule.text}"{options})' if isinstance(schedule, Iso8601) else repr(schedule)


def command_text(schedule: Schedule, text: str) -> str:
    words = ["horae", "next", " ".join(text.split())]
    for name, value in _said(schedule):
        words += [f"--{name}", value]
    return shlex.join(words)


def _said(schedule: Schedule) -> list[tuple[str, str]]:
    """What it says otherwise than it would without a word."""
    if isinstance(schedule, Cron):
        given = [("tz", schedule.tz), ("dialect", schedule.dialect), ("gap", schedule.gap), ("fold", schedule.fold)]
    else:
        given = [("tz", schedule.timezone)]
    return [(name, value) for name, value in given if value != _USUAL[name]]
