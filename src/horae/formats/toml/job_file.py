"""Reads job files, and one job's table, into definitions, and prints definitions as text that reads back to them.

    namespace = "shop"                 the namespace of the file's jobs
    [defaults]                         settings of all jobs of the file, under those of each job
    [pools]                            name = limit
    [jobs.nightly-report]              one job: its schedule, its work and its settings
    [[jobs.etl.tasks]]                 one task of a job that has several

Every error names the file, the line and the path of the key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from horae.core.job.definition import JobSpec
from horae.core.job.dependencies import find_cycle
from horae.core.job.ids import checked_name
from horae.core.run.lifecycle import JobState
from horae.core.run.pause import Pause
from horae.core.shape import Path, ShapeFault, checked, path_text
from horae.errors import InvalidJobFile
from horae.formats.toml.keys import DEFAULTS, FILE, FILE_JOB, JOB, JOB_FILE_SCHEMA
from horae.formats.toml.line_numbers import TomlLines
from horae.formats.toml.printer import definition_values, job_table, settings_table
from horae.formats.toml.reader import job_of, read_pause, settings_of
from horae.formats.toml.text import toml_document

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
"""How many dots one key may have. The standard library's reader uses memory in proportion to their square."""
_TEXT = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
"""Strings and comments, also unterminated ones. Every character is examined once."""
_BETWEEN = re.compile(r"[=,{}\[\]]")


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a job file. `jobs` are as written in the file; `specs` have the file's defaults under them."""

    namespace: str = "default"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    jobs: tuple[JobSpec, ...] = ()
    stated: frozenset[str] = frozenset()
    """The jobs whose tables set their state."""
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    """The ends and notes of pauses, for jobs whose tables have them."""

    def specs(self) -> tuple[JobSpec, ...]:
        """The jobs as they are to be defined."""
        if not self.defaults:
            return self.jobs
        return tuple(replace(job, settings={**self.defaults, **job.settings}) for job in self.jobs)


def read_job_file(text: str, *, file: str, namespace: str = "default", timezone: str | None = None) -> JobFile:
    """The jobs of a file, which errors call `file`. `namespace` and `timezone` are for a file that names none. Raises
    InvalidJobFile for the first error in it."""
    found, faults = check_job_file(text, file=file, namespace=namespace, timezone=timezone)
    if found is None:
        if len(faults) > 1:
            faults[0].add_note(f"{len(faults) - 1} more in this file; the next: {faults[1].message}")
        raise faults[0]
    return found


def check_job_file(
    text: str, *, file: str, namespace: str = "default", timezone: str | None = None
) -> tuple[JobFile | None, tuple[InvalidJobFile, ...]]:
    """The jobs of a file, or every error in it by line, at most one for each job."""
    too_deep = _too_deep(text, file)
    if too_deep is not None:
        return None, (too_deep,)
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        return None, (_not_toml(error, text, file),)
    except RecursionError:
        return None, (InvalidJobFile(_TOO_DEEP, file=file, line=0, path=""),)
    faults: list[ShapeFault] = []
    found = _file(data, namespace, faults, timezone)
    if not faults:
        return found, ()
    lines = TomlLines(text)
    told = [_job_file_error(fault, file, lines) for fault in faults]
    return None, tuple(sorted(told, key=lambda each: each.line))


def read_job_values(
    data: Mapping[str, Any], *, file: str = "definitions", namespace: str = "default", timezone: str | None = None
) -> JobFile:
    """The jobs of a job file that is given as plain values, as JSON has them. Raises InvalidJobFile for the first
    error, with its path."""
    faults: list[ShapeFault] = []
    try:
        found = _file(data, namespace, faults, timezone)
    except RecursionError:
        raise InvalidJobFile(_TOO_DEEP, file=file, line=0, path="") from None
    if faults:
        told = _job_file_error(faults[0], file, None)
        if len(faults) > 1:
            told.add_note(f"{len(faults) - 1} more in it; the next: {_job_file_error(faults[1], file, None).message}")
        raise told
    return found


def read_job_table(
    name: str, table: Mapping[str, Any], *, namespace: str = "default", file: str = "definition"
) -> JobSpec:
    """The definition that one job's table stands for. `table` has plain values, and `namespace` is for a table that
    names none. Raises InvalidJobFile with the path in the table; its message begins with `file`."""
    try:
        checked((), checked_name, name)
        JOB.refuse(table, ())
        return job_of(name, table, (), namespace)
    except ShapeFault as fault:
        raise _job_file_error(fault, file, None) from fault.__cause__
    except RecursionError:
        raise InvalidJobFile(_TOO_DEEP, file=file, line=0, path="") from None


def job_toml(spec: JobSpec, *, state: JobState | str | None = None, pause: Pause | None = None) -> str:
    """A job file that defines only this job. `pause` is the end and the note of its pause. Raises as `job_table`."""
    return _text({}, {}, (spec,), spec.namespace, state, {} if pause is None else {spec.name: pause})


def job_file_toml(file: JobFile) -> str:
    """The text of a job file. Raises as `job_table`."""
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
        table = definition_values(spec, state=state)
        table.pop("namespace", None)
        pause = pauses.get(spec.name)
        said["jobs"][spec.name] = _toml_values(table) | ({} if pause is None else pause.to_dict())
    return toml_document(said)


def _toml_values(table: dict[str, Any]) -> dict[str, Any]:
    """The table, with values that contain null, which TOML lacks, as JSON text."""
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


def _file(data: Mapping[str, Any], otherwise: str, faults: list[ShapeFault], timezone: str | None) -> JobFile:
    jobs = data.get("jobs", {})
    listed = isinstance(jobs, Mapping)
    try:
        FILE.refuse({**data, "jobs": {}} if listed else data, ())
        defaults = settings_of(data.get("defaults", {}), ("defaults",), DEFAULTS)
    except ShapeFault as fault:
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
            pause = read_pause(table, path, timezone)
            if pause is not None:
                pauses[name] = pause
        except ShapeFault as fault:
            faults.append(fault)
        except RecursionError:
            faults.append(ShapeFault(path, _TOO_DEEP))
    cycle = find_cycle({spec.name: spec.depends_on for spec in specs})
    if cycle is not None:
        reason = f"dependencies form a cycle: {' -> '.join(cycle)}"
        hint = "Remove one of these dependencies."
        faults.append(ShapeFault(("jobs", cycle[0], "depends_on"), reason, hint, of_shape=False))
    stated = frozenset(spec.name for spec in specs if "state" in jobs[spec.name])
    return JobFile(namespace, defaults, data.get("pools", {}), tuple(specs), stated, pauses)


def _too_deep(text: str, file: str) -> InvalidJobFile | None:
    """The error of a text with a key of too many parts, found before the text is parsed."""
    bare = _TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS and any(part.count(".") > _MOST_DOTS for part in _BETWEEN.split(line)):
            return InvalidJobFile(_TOO_DEEP, file=file, line=number, path="")
    return None


def _job_file_error(fault: ShapeFault, file: str, lines: TomlLines | None) -> InvalidJobFile:
    line = 0 if lines is None else lines.line(fault.path)
    return InvalidJobFile(fault.reason, file=file, line=line, path=path_text(fault.path), hint=fault.hint)


def _not_toml(error: ValueError, text: str, file: str) -> InvalidJobFile:
    place = _PLACE.search(str(error))
    reason = f"is not TOML: {_PLACE.sub('', str(error))}"
    line = 0
    if place is not None:
        line = int(place[1]) if place[1] else text.count("\n") + 1
    return InvalidJobFile(reason, file=file, line=line, path="")
