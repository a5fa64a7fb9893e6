"""Turns a definition into its table in jobs.toml, in which only values that differ from the defaults are given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from horae.core.change.update_policy import Update
from horae.core.job.definition import JobSpec, TaskSpec, only_task_name
from horae.core.job.policies import NO_RETRY, Bounded, Queue, Retry
from horae.core.run.lifecycle import JobState
from horae.core.schedule.bounds import bound_text
from horae.core.schedule.custom import Custom
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.shape import NONE
from horae.core.time.duration import format_duration
from horae.core.window.constraint import Constraints
from horae.core.window.distribution import UNIFORM, Distribution
from horae.core.window.window import Window
from horae.errors import InvalidDefinition, shown
from horae.formats.toml.keys import FILE_JOB, KINDS_OF_WORK, SETTINGS, TASK, UNLIMITED
from horae.formats.toml.text import Octal

_KEYS_OF_WORK = {kind: key for key, kind in KINDS_OF_WORK.items()}
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


def job_table(spec: JobSpec, *, state: JobState | str | None = None) -> dict[str, Any]:
    """The table from which `read_job_table` makes `spec`: text, numbers, booleans, lists and tables; times as text.
    `state` replaces that of the definition. Raises InvalidDefinition where no table can express the definition."""
    return {name: _plain(value) for name, value in definition_values(spec, state=state).items()}


def definition_values(spec: JobSpec, *, state: JobState | str | None = None) -> dict[str, Any]:
    """The same with times as datetimes, and file modes as `Octal`."""
    wanted = spec.state if state is None else JobState(state)
    said: dict[str, Any] = {
        "description": spec.description or None,
        "tags": list(spec.tags) or None,
        "owner": spec.owner,
        "run_as": spec.run_as,
        "depends_on": list(spec.depends_on) or None,
        "state": str(wanted) if wanted is not JobState.ENABLED else None,
        "class": spec.job_class,
        "partition": None if spec.partition is None else dict(spec.partition),
        "payload": _payload(spec),
        "namespace": None if spec.namespace == "default" else spec.namespace,
        **_schedule(spec.schedule),
        **_work(spec),
        **settings_table(spec.settings),
    }
    return {name: said[name] for name in (*FILE_JOB.keys, "namespace") if said.get(name) is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return bound_text(value)
    if isinstance(value, Octal):
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _payload(spec: JobSpec) -> Any:
    if spec.payload is None:
        return None
    try:
        again = json.loads(json.dumps(spec.payload, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"Job {shown(spec.name)}: its payload is not JSON: {error}") from error
    if again != spec.payload:
        raise InvalidDefinition(f"Job {shown(spec.name)}: its payload as JSON reads back to something else")
    return again


# ---- schedules -------------------------------------------------------------------------------------------------------


def _schedule(schedule: Schedule | None) -> dict[str, Any]:
    if schedule is None:
        return {"schedule": NONE}
    if not isinstance(schedule, Union):
        return _part(schedule)
    parts = [_part(each) for each in schedule.parts]
    zoned = [part for part in parts if "cron" in part or "iso8601" in part]
    zones = {part.get("timezone") for part in zoned}
    if len(zoned) < len(parts) or len(zones) != 1 or zones == {None}:
        return {"schedules": parts}
    # A zone that all of them share is written once.
    said = [{name: value for name, value in part.items() if name != "timezone"} for part in parts]
    return {"schedules": said, "timezone": zones.pop()}


def _part(schedule: Schedule) -> dict[str, Any]:
    match schedule:
        case Cron():
            said: dict[str, Any] = {
                "cron": schedule.expr,
                "timezone": _unless(schedule.tz, "UTC"),
                "dialect": _unless(schedule.dialect, "extended"),
                "gap": _unless(schedule.gap, "skip"),
                "fold": _unless(schedule.fold, "auto"),
                "start": schedule.start,
                "end": schedule.end,
            }
        case Every():
            interval = format_duration(timedelta(0, schedule.seconds))
            said = {"every": interval, "start": schedule.start, "end": schedule.end, "anchor": schedule.anchor}
        case Iso8601():
            said = {"iso8601": schedule.text, "timezone": _unless(schedule.tz, "UTC"), "anchor": schedule.anchor}
        case Once():
            said = {"at": schedule.at, "drop": schedule.drop or None}
        case Custom():
            said = {"custom": schedule.path}
        case _:
            raise InvalidDefinition(f"A job file has no words for the schedule {shown(str(schedule))}")
    return {name: value for name, value in said.items() if value is not None}


def _unless(value: str, usual: str) -> str | None:
    return None if value == usual else value


# ---- work ------------------------------------------------------------------------------------------------------------


def _work(spec: JobSpec) -> dict[str, Any]:
    if len(spec.tasks) == 1:
        only = spec.tasks[0]
        if not only.settings and only.name == only_task_name(spec.name, only.kind, only.handler):
            return _task_work(only)
    if not spec.tasks:
        raise InvalidDefinition(f"Job {shown(spec.name)} has no task", hint="Give it at least one.")
    return {"tasks": [_task(task) for task in spec.tasks]}


def _task(task: TaskSpec) -> dict[str, Any]:
    said = {"name": task.name, **_task_work(task), **settings_table(task.settings)}
    return {name: said[name] for name in TASK.keys if name in said}


def _task_work(task: TaskSpec) -> dict[str, Any]:
    if not task.handler and task.kind != "PYTHON":
        raise InvalidDefinition(f"Task {shown(task.name)} has nothing to do: its text is empty")
    said: dict[str, Any] = {_KEYS_OF_WORK[task.kind]: task.handler, **task.options}
    if "umask" in said:
        said["umask"] = Octal(said["umask"])
    if "secrets" in said:
        said["secrets"] = [_secret(each) for each in said["secrets"]]
    if "arguments" in said:
        said["arguments"] = list(said["arguments"])
        try:
            json.dumps(said["arguments"], allow_nan=False)
        except ValueError as error:
            raise InvalidDefinition(f"Task {shown(task.name)}: its arguments are not JSON: {error}") from error
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in said.items()}


def _secret(secret: Mapping[str, str]) -> Any:
    said = {"name": secret["name"]}
    if secret["variable"] != re.sub(r"\W", "_", secret["name"]).upper():
        said["variable"] = secret["variable"]
    if secret["as"] != "env":
        said["as"] = secret["as"]
    return said if len(said) > 1 else secret["name"]


# ---- settings --------------------------------------------------------------------------------------------------------


def settings_table(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one level of the cascade, in the order of `SETTINGS`."""
    return {name: _setting(name, settings[name]) for name in SETTINGS if name in settings}


def _setting(name: str, value: Any) -> Any:
    match value:
        case None:
            return NONE
        case timedelta():
            return format_duration(value)
        case Retry():
            return _retry(value)
        case Queue():
            return "queue" if value.limit is None else {"queue": value.limit}
        case Bounded():
            return {"bounded": {name: each for name, each in value.to_dict().items() if each is not None}}
        case Window():
            return _window(value)
        case Update():
            return value.to_dict()
        case "none" if name == "pool":
            return {"name": value}
    return value


def _retry(retry: Retry) -> Any:
    if retry == NO_RETRY:
        return NONE
    said = retry.to_dict()
    return {name: UNLIMITED if each is None else each for name, each in said.items()}


def _window(window: Window) -> dict[str, Any]:
    said = window.to_dict()
    if window.distribution != UNIFORM:
        said["distribution"] = _distribution(window.distribution)
    return said | _constraints(window.constraints)


def _distribution(distribution: Distribution) -> Any:
    parameters = {name: _number(text) for name, text in distribution.items()}
    return {"name": distribution.name, **parameters} if parameters else distribution.name


def _number(text: str) -> Any:
    """A parameter as a number where it reads back to the same text."""
    if _NUMBER.fullmatch(text):
        number: int | float = float(text) if "." in text else int(text)
        if repr(number) == text:
            return number
    return text


def _constraints(constraints: Constraints) -> dict[str, Any]:
    """Sets of clauses by side; a single set needs no list."""
    said = constraints.to_dict()
    return {side: sets[0] if len(sets) == 1 else sets for side, sets in said.items()}
