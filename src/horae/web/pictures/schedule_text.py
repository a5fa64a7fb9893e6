"""A schedule in every notation: Python, job file, SQL, command line."""

from __future__ import annotations

import shlex
from datetime import timedelta

from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Schedule
from horae.core.time.duration import format_duration
from horae.formats.sql.printer import job_text
from horae.formats.toml.job_file import job_toml

NAME = "mine"
_USUAL = {"tz": "UTC", "dialect": "extended", "gap": "skip", "fold": "auto"}


def ways(schedule: Schedule, text: str) -> tuple[tuple[str, str], ...]:
    """Returns the notations of a schedule, each with its name. `text` is what the user typed."""
    spec = JobSpec(name=NAME, schedule=schedule, tasks=(TaskSpec(NAME, NAME),))
    found = [("Python", python_text(schedule)), ("jobs.toml", job_toml(spec).strip()), ("SQL", job_text(spec))]
    return (*found, ("Command line", command_text(schedule, text)))


def python_text(schedule: Schedule) -> str:
    """Returns the Python expression for a schedule, without arguments that have their defaults."""
    if isinstance(schedule, Every):
        return f'Every("{format_duration(timedelta(seconds=schedule.seconds))}")'
    options = "".join(f', {name}="{value}"' for name, value in _set_options(schedule))
    if isinstance(schedule, Cron):
        return f'Cron("{schedule.expr}"{options})'
    return f'Iso8601("{schedule.text}"{options})' if isinstance(schedule, Iso8601) else repr(schedule)


def command_text(schedule: Schedule, text: str) -> str:
    words = ["horae", "next", " ".join(text.split())]
    for name, value in _set_options(schedule):
        words += [f"--{name}", value]
    return shlex.join(words)


def _set_options(schedule: Schedule) -> list[tuple[str, str]]:
    """Returns the options that differ from their defaults."""
    if isinstance(schedule, Cron):
        given = [("tz", schedule.tz), ("dialect", schedule.dialect), ("gap", schedule.gap), ("fold", schedule.fold)]
    else:
        given = [("tz", schedule.timezone)]
    return [(name, value) for name, value in given if value != _USUAL[name]]
