"""Job files: jobs.toml and one job's table -> definitions, and definitions -> the text that reads back to them.

    namespace = "shop"                 whose jobs these are
    [defaults]                         settings of all jobs of the file, under what each says itself
    [pools]                            name = limit
    [jobs.nightly-report]              one job: when, what, and its settings
    [[jobs.etl.tasks]]                 one task of a job that has several

What is at fault is told with the file, the line and the path of the key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from horae.core.dependency import find_cycle
from horae.core.ids import checked_name
from horae.core.job import JobSpec
from horae.core.jobkeys import DEFAULTS, FILE, FILE_JOB, JOB, JOB_FILE_SCHEMA
from horae.core.jobprint import job_table, sayings, settings_table
from horae.core.jobread import job_of, pause_of, settings_of
from horae.core.lifecycle import JobState
from horae.core.pause import Pause
from horae.core.shape import Fault, Path, checked, path_text
from horae.core.tomllines import TomlLines
from horae.core.tomltext import document
from horae.errors import InvalidJobFile

__all__ = [
    "JOB_FILE_SCHEMA",
    "JobFile",
    "check_job_file",
    "job_file_toml",
    "job_table",
    "job_toml",
    "read_job_file",
    "read_job_table",
    "read_job_values",
]
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_TOO_DEEP = "is nested too deeply"
_MOST_DOTS = 32
"""Of one key. The reader of the standard library takes memory by their square."""
_TEXT = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""Strings and comments, also those that do not end: every letter is looked at once."""
_BETWEEN = re.compile(r"[=,{}\[\]]")


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a job file says. `jobs` are as they are written there; `specs` have the file's defaults under them."""

    namespace: str = "default"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    jobs: tuple[JobSpec, ...] = ()
    stated: frozenset[str] = frozenset()
    """The jobs whose tables say their state."""
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    """How long jobs are paused and why, where the tables say it."""

    def specs(self) -> tuple[JobSpec, ...]:
        """The jobs as they are to be defined."""
        if not self.defaults:
            return self.jobs
        return tuple(replace(job, settings={**self.defaults, **job.settings}) for job in self.jobs)


def read_job_file(text: str, *, file: str, namespace: str = "default", timezone: str | None = None) -> JobFile:
    """The jobs of a file, named `file` in errors; `namespace` and `timezone` are for one that names none. Raises
    InvalidJobFile for the first fault in it."""
    found, faults = check_job_file(text, file=file, namespace=namespace, timezone=timezone)
    if found is None:
        if len(faults) > 1:
            faults[0].add_note(f"{len(faults) - 1} more in this file; the next: {faults[1].message}")
        raise faults[0]
    return found


def check_job_file(
    text: str, *, file: str, namespace: str = "default", timezone: str | None = None
) -> tuple[JobFile | None, tuple[InvalidJobFile, ...]]:
    """The jobs of a file, or everything that is at fault in it, in the order of lines: one thing a job."""
    too_deep = _too_deep(text, file)
    if too_deep is not None:
        return None, (too_deep,)
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        return None, (_not_toml(error, text, file),)
    except RecursionError:
        return None, (InvalidJobFile(_TOO_DEEP, file=file, line=0, path=""),)
    faults: list[Fault] = []
    found = _file(data, namespace, faults, timezone)
    if not faults:
        return found, ()
    lines = TomlLines(text)
    told = [_told(fault, file, lines) for fault in faults]
    return None, tuple(sorted(told, key=lambda each: each.line))


def read_job_values(
    data: Mapping[str, Any], *, file: str = "definitions", namespace: str = "default", timezone: str | None = None
) -> JobFile:
    """The jobs of a job file's structure in plain values, as JSON has it. Raises InvalidJobFile for the first fault,
    with its path."""
    faults: list[Fault] = []
    try:
        found = _file(data, namespace, faults, timezone)
    except RecursionError:
        raise InvalidJobFile(_TOO_DEEP, file=file, line=0, path="") from None
    if faults:
        told = _told(faults[0], file, None)
        if len(faults) > 1:
            told.add_note(f"{len(faults) - 1} more in it; the next: {_told(faults[1], file, None).message}")
        raise told
    return found


def read_job_table(
    name: str, table: Mapping[str, Any], *, namespace: str = "default", file: str = "definition"
) -> JobSpec:
    """The definition that one job's table stands for, as plain values. `namespace` is for a table that names none.
    Raises InvalidJobFile, with the path in the table; `file` is what its message begins with."""
    try:
        checked((), checked_name, name)
        JOB.refuse(table, ())
        return job_of(name, table, (), namespace)
    except Fault as fault:
        raise _told(fault, file, None) from fault.__cause__
    except RecursionError:
        raise InvalidJobFile(_TOO_DEEP, file=file, line=0, path="") from None


def job_toml(spec: JobSpec, *, state: JobState | str | None = None, pause: Pause | None = None) -> str:
    """A job file that defines this job and no other; `pause` is until when it is paused, and why. Raises as `job_table`
    does."""
    return _text({}, {}, (spec,), spec.namespace, state, {} if pause is None else {spec.name: pause})


def job_file_toml(file: JobFile) -> str:
    """The text of a job file. Raises as `job_table` does."""
    return _text(file.defaults, file.pools, file.jobs, file.namespace, None, file.pauses)


def _text(
    defaults: Mapping[str, Any],
    pools: Mapping[str, int],
    jobs: tuple[JobSpec, ...],
    namespace: str,
    state: JobState | str | None,
    pauses: Mapping[str, Pause] = MappingProxyType({}),
) -> str:
    said: dict[str, Any] = {} if namespace == "default" else {"namespace": namespace}
    if defaults:
        said["defaults"] = settings_table(defaults)
    if pools:
        said["pools"] = dict(pools)
    if jobs:
        said["jobs"] = {}
    for spec in jobs:
        table = sayings(spec, state=state)
        table.pop("namespace", None)
        pause = pauses.get(spec.name)
        said["jobs"][spec.name] = _toml_values(table) | ({} if pause is None else pause.to_dict())
    return document(said)


def _toml_values(table: dict[str, Any]) -> dict[str, Any]:
    """The table with what TOML cannot say, null, in JSON text instead."""
    for name in ("payload", "arguments"):
        if name in table and _has_null(table[name]):
            table = {
                (f"{name}_json" if key == name else key): json.dumps(value, ensure_ascii=False)
                if key == name
                else value
                for key, value in table.items()
            }
    if "tasks" in table:
        table["tasks"] = [_toml_values(task) for task in table["tasks"]]
    return table


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


# ---- reading ---------------------------------------------------------------------------------------------------------


def _file(data: Mapping[str, Any], otherwise: str, faults: list[Fault], timezone: str | None) -> JobFile:
    jobs = data.get("jobs", {})
    listed = isinstance(jobs, Mapping)
    try:
        FILE.refuse({**data, "jobs": {}} if listed else data, ())
        defaults = settings_of(data.get("defaults", {}), ("defaults",), DEFAULTS)
    except Fault as fault:
        faults.append(fault)
        defaults = {}
    else:
        timezone = data.get("defaults", {}).get("timezone", timezone)
    named = data.get("namespace", otherwise)
    namespace = named if isinstance(named, str) else otherwise
    specs = []
    pauses: dict[str, Pause] = {}
    for name, table in jobs.items() if listed else ():
        path: Path = ("jobs", name)
        try:
            checked(path, checked_name, name)
            FILE_JOB.refuse(table, path)
            specs.append(job_of(name, table, path, namespace, timezone))
            pause = pause_of(table, path, timezone)
            if pause is not None:
                pauses[name] = pause
        except Fault as fault:
            faults.append(fault)
        except RecursionError:
            faults.append(Fault(path, _TOO_DEEP))
    cycle = find_cycle({spec.name: spec.depends_on for spec in specs})
    if cycle is not None:
        reason = f"dependencies form a cycle: {' -> '.join(cycle)}"
        hint = "Remove one of these dependencies."
        faults.append(Fault(("jobs", cycle[0], "depends_on"), reason, hint, of_shape=False))
    stated = frozenset(spec.name for spec in specs if "state" in jobs[spec.name])
    return JobFile(namespace, defaults, data.get("pools", {}), tuple(specs), stated, pauses)


def _too_deep(text: str, file: str) -> InvalidJobFile | None:
    """The fault of a text with a key of too many parts, told before anything reads it."""
    bare = _TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS and any(part.count(".") > _MOST_DOTS for part in _BETWEEN.split(line)):
            return InvalidJobFile(_TOO_DEEP, file=file, line=number, path="")
    return None


def _told(fault: Fault, file: str, lines: TomlLines | None) -> InvalidJobFile:
    line = 0 if lines is None else lines.line(fault.path)
    return InvalidJobFile(fault.reason, file=file, line=line, path=path_text(fault.path), hint=fault.hint)


def _not_toml(error: ValueError, text: str, file: str) -> InvalidJobFile:
    place = _PLACE.search(str(error))
    reason = f"is not TOML: {_PLACE.sub('', str(error))}"
    line = 0
    if place is not None:
        line = int(place[1]) if place[1] else text.count("\n") + 1
    return InvalidJobFile(reason, file=file, line=line, path="")
