"""Reads one job's table into its definition.

The table has been checked against its shape. What core refuses is raised with the path of its key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from horae.core.job.definition import JobSpec, TaskSpec, only_task_name, parse_settings
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import Pause
from horae.core.schedule.custom import Custom
from horae.core.schedule.interval import Every, Iso8601
from horae.core.schedule.schedules import Cron, Once, Schedule, Union
from horae.core.shape import NONE, Path, ShapeFault, checked
from horae.core.time.instant import aware
from horae.core.time.zone import UNSPECIFIED, zone
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import InvalidDefinition, InvalidTime, shown
from horae.formats.toml.keys import (
    FILE_JOB,
    KINDS_OF_SCHEDULE,
    KINDS_OF_WORK,
    OPTIONS,
    PAUSE_KEYS,
    SETTINGS,
    TASK,
    UNLIMITED,
    ZONED,
)
from horae.formats.toml.table_shape import OptionalShape, TableShape

_FIELDS = ("description", "tags", "owner", "run_as", "depends_on", "state", "partition")


def job_of(name: str, table: Mapping[str, Any], path: Path, namespace: str, timezone: str | None = None) -> JobSpec:
    """The definition of a table that `FILE_JOB` or `JOB` has accepted. `timezone` is for a schedule that names none."""
    settings = settings_of(table, path, FILE_JOB)
    schedule = _schedule(table, path, settings.get("window"), timezone)
    given = {each: table[each] for each in _FIELDS if each in table}
    return checked(  # type: ignore[no-any-return]  # a JobSpec
        path,
        JobSpec,
        name,
        schedule,
        _tasks(name, table, path),
        settings,
        _json(table, "payload", path),
        job_class=table.get("class"),
        namespace=table.get("namespace", namespace),
        **given,
    )


def read_pause(table: Mapping[str, Any], path: Path, timezone: str | None) -> Pause | None:
    """The pause that the table sets; None where it sets none. Raises Fault where the state is not PAUSED."""
    named = next((name for name in PAUSE_KEYS if name in table), None)
    if named is None:
        return None
    if table.get("state") != JobState.PAUSED:
        raise ShapeFault((*path, named), 'says something of a pause, and state is not "PAUSED"', of_shape=False)
    until = None
    if "paused_until" in table:
        until = _instant(table["paused_until"], (*path, "paused_until"), table.get("timezone", timezone))
    return Pause(until, table.get("pause_note"))


# ---- settings --------------------------------------------------------------------------------------------------------


def settings_of(table: Mapping[str, Any], path: Path, shape: TableShape, *, of_task: bool = False) -> dict[str, Any]:
    """The settings in a table of this shape, as core takes them."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name in SETTINGS and name in shape.keys:
            there = (*path, name)
            found |= checked(there, parse_settings, {name: _setting(name, value, there)}, of_task=of_task)
    return found


def _setting(name: str, value: Any, path: Path) -> Any:
    """One setting as core takes it."""
    if value == NONE and isinstance(SETTINGS[name].shape, OptionalShape):
        return None
    if not isinstance(value, Mapping):
        return value
    match name:
        case "retry":
            most = value["max_retries"]
            return {**value, "max_retries": None if most == UNLIMITED else most}
        case "recovery":
            return value["bounded"]
        case "pool":
            return value["name"]
        case "window":
            return _window(value, path)
    return value


def _window(given: Mapping[str, Any], path: Path) -> Window:
    drawn = given.get("distribution")
    values = dict(given)
    if isinstance(drawn, Mapping):
        parameters = {name: value for name, value in drawn.items() if name != "name"}
        values["distribution"] = Distribution(drawn["name"], parameters).to_dict()
        checked((*path, "distribution"), Window.from_dict, {**values, "only": None, "avoid": None})
    return checked(path, Window.from_dict, values)  # type: ignore[no-any-return]  # a Window


# ---- schedules -------------------------------------------------------------------------------------------------------


def _schedule(table: Mapping[str, Any], path: Path, window: Window | None, otherwise: str | None) -> Schedule | None:
    if "schedule" in table:
        return None
    named = table.get("timezone")
    if "schedules" in table:
        schedule = _union(table["schedules"], named, path, otherwise)
    else:
        schedule = _part(table, path, named or otherwise)
        if named is not None and not any(each in table for each in ZONED):
            _check_read(table, path)
    limited = named is not None and window is not None and bool(window.constraints.rules())
    if limited and zone(schedule.timezone) is not zone(str(named)):
        raise ShapeFault(
            (*path, "timezone"),
            f"the window's only and avoid would be read in {schedule.timezone}, not in {named}",
            'every and at have no zone: use iso8601 = "PT1H" or a cron, which go by its clocks.',
            of_shape=False,
        )
    return schedule


def _union(parts: list[Mapping[str, Any]], named: str | None, path: Path, otherwise: str | None) -> Schedule:
    made = []
    used = named is None
    for index, part in enumerate(parts):
        there = (*path, "schedules", index)
        made.append(_part(part, there, part.get("timezone", named or otherwise)))
        goes_by_clocks = any(each in part for each in ZONED)
        if "timezone" in part and not goes_by_clocks:
            _check_read(part, there)
        used = used or ("timezone" not in part and (goes_by_clocks or _reads_naive(part)))
    if not used:
        raise ShapeFault((*path, "timezone"), "has no effect: no schedule here goes by it", of_shape=False)
    union = Union(tuple(made))
    return union if len(union.parts) > 1 else union.parts[0]


def _check_read(table: Mapping[str, Any], path: Path) -> None:
    if not _reads_naive(table):
        raise ShapeFault(
            (*path, "timezone"),
            "has no effect: this schedule goes by no clocks",
            'iso8601 = "PT1H" or a cron goes by those of a zone.',
            of_shape=False,
        )


_TIMES = ("at", "start", "end", "anchor")


def _reads_naive(table: Mapping[str, Any]) -> bool:
    return any(_moment(table[name], (name,)).tzinfo is None for name in _TIMES if name in table)


def _part(table: Mapping[str, Any], path: Path, named: str | None) -> Schedule:
    kind = next(each for each in KINDS_OF_SCHEDULE if each in table)
    value = table[kind]
    times = {name: _instant(table[name], (*path, name), named) for name in _TIMES if name in table}
    bounds = {name: at for name, at in times.items() if name in ("start", "end")}
    anchor = times.get("anchor")
    there = (*path, kind)
    match kind:
        case "cron":
            given = {name: table[name] for name in ("dialect", "gap", "fold") if name in table}
            made = checked(there, Cron, value, named or UNSPECIFIED, **given)
        case "every":
            made = checked(there, Every, value, anchor=anchor)
        case "iso8601":
            made = checked(there, Iso8601, value, named or UNSPECIFIED, anchor)
        case "at":
            made = checked(there, Once, times["at"], table.get("drop", False))
        case _:
            made = checked(there, Custom, value)
    if bounds:
        made = checked((*path, list(bounds)[-1]), replace, made, **bounds)
    return made  # type: ignore[no-any-return]  # a Schedule


def _moment(value: Any, path: Path) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value.upper())
    except ValueError:
        raise ShapeFault(path, f"{shown(value)} is not a date and time", of_shape=False) from None


def _instant(value: Any, path: Path, named: str | None) -> datetime:
    """The instant of a time. A time without an offset is read on the clocks of the zone `named`."""
    at = _moment(value, path)
    name = str(path[-1])
    if at.tzinfo is not None:
        return checked(path, aware, at, name)  # type: ignore[no-any-return]  # a datetime
    if named is None:
        raise ShapeFault(
            path,
            f"{shown(at)} has no time zone",
            'Add Z or an offset to it, or timezone = "…" beside it.',
            of_shape=False,
        )
    try:
        return zone(named).first_shown(at, name).replace(microsecond=at.microsecond)
    except InvalidTime as error:
        raise ShapeFault(path, error.message, error.hint, of_shape=False) from error


# ---- work ------------------------------------------------------------------------------------------------------------


def _tasks(job: str, table: Mapping[str, Any], path: Path) -> tuple[TaskSpec, ...]:
    if "tasks" not in table:
        kind, handler = _work(table)
        return (_task(only_task_name(job, kind, handler), table, path, {}),)
    found: dict[str, TaskSpec] = {}
    for index, each in enumerate(table["tasks"]):
        there = (*path, "tasks", index)
        if each["name"] in found:
            raise ShapeFault((*there, "name"), f"there are two tasks called {shown(each['name'])}", of_shape=False)
        found[each["name"]] = _task(each["name"], each, there, settings_of(each, there, TASK, of_task=True))
    return tuple(found.values())


def _task(name: str, table: Mapping[str, Any], path: Path, settings: Mapping[str, Any]) -> TaskSpec:
    kind, handler = _work(table)
    options = {each: table[each] for each in OPTIONS if each in table and each != "arguments_json"}
    arguments = _json(table, "arguments", path)
    if arguments is not None:
        options["arguments"] = arguments
    if "secrets" in options:
        options["secrets"] = [{"name": each} if isinstance(each, str) else each for each in options["secrets"]]
    for each in options:
        # One by one first, so that the error names the right key.
        checked((*path, each), TaskSpec, name, handler, kind, {}, {each: options[each]})
    return checked(path, TaskSpec, name, handler, kind, settings, options)  # type: ignore[no-any-return]  # a TaskSpec


def _work(table: Mapping[str, Any]) -> tuple[str, str]:
    key = next(each for each in KINDS_OF_WORK if each in table)
    return KINDS_OF_WORK[key], table[key]


def _json(table: Mapping[str, Any], name: str, path: Path) -> Any:
    """A value that is given as it is, or as JSON text under `<name>_json`."""
    as_text = f"{name}_json"
    if as_text not in table:
        return table.get(name)
    if name in table:
        raise ShapeFault((*path, as_text), f"there is a {name} already", "Keep one of them.", of_shape=False)
    return checked((*path, as_text), _from_json, table[as_text])


def _from_json(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise InvalidDefinition(f"is not JSON: {word} is no number there")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"is not JSON: {error}") from error
