"""Definitions as a `DesiredState` state, read from any source: an app, files, folders, `module:app` or plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.app.process.import_paths import schedule_finder
from horae.app.process.job_files import FileJobs, check_unique_names, read_file, read_jobs_of
from horae.core.job.definition import JobSpec
from horae.core.schedule.custom import Custom, load_custom_schedules
from horae.core.schedule.schedules import Union
from horae.errors import HoraeError, InvalidInput, shown
from horae.formats.toml.line_numbers import TomlLines
from horae.services.plan.desired_state import DesiredState as DesiredState
from horae.services.plan.desired_state import parse_desired_state

if TYPE_CHECKING:
    from horae.app.definitions import Definitions

_HINT = "Give a file, a folder, module:app, an app, JobSpecs, or the structure of jobs.toml as a mapping."


def wanted_by(app: Definitions, modules: Sequence[str] = ()) -> DesiredState:
    """The definitions of an app's code and of its files.

    The code does not state the state of jobs that already exist. Custom schedules are imported from `modules`, and from
    modules that are imported already.
    """
    files = app.files.values()
    specs = app.specs()
    namespaces = {namespace for each in files for namespace in each.namespaces}
    if len(specs) > sum(len(each.specs) for each in files) or not files:
        namespaces.add(app.namespace)
    stated = frozenset[str]().union(*(each.stated for each in files))
    find = schedule_finder(modules)
    specs = [
        replace(spec, schedule=load_custom_schedules(spec.schedule, find))
        if isinstance(spec.schedule, Custom | Union)
        else spec
        for spec in specs
    ]
    pauses = {name: pause for each in files for name, pause in each.pauses.items()}
    return DesiredState(tuple(specs), app.pools, frozenset(namespaces), stated, app.defaults, pauses)


def wanted_at(targets: Sequence[str]) -> DesiredState:
    """The definitions of targets, which are named as for `horae serve`. Raises the errors of `load_targets`."""
    # Imported here because of a cycle: `targets` imports `Horae`, whose operations use this module.
    from horae.app.process.targets import load_targets

    app = load_targets(targets).app
    return wanted_by(app, app.tuning.modules)


def places_at(targets: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """Where targets define these jobs, by job name: the file, with the line if it is a job file.

    Returns nothing if the targets cannot be read.
    """
    from horae.app.process.targets import load_targets

    found: dict[str, str] = {}
    try:
        for each in load_targets(targets).app.files.values():
            own = [spec.name for spec in each.specs if spec.name in names]
            lines = TomlLines(read_file(each.file)) if own and each.file.suffix not in (".kron", ".sql") else None
            for name in own:
                line = 0 if lines is None else lines.line(("jobs", name))
                found[name] = f"{each.file}:{line}" if line else str(each.file)
    except HoraeError:
        return {}
    return found


def read_wanted(
    definitions: Any, *, namespace: str, defaults: Mapping[str, Any], timezone: str | None = None
) -> DesiredState:
    """Reads any form of definitions for an app with this namespace, these defaults and this zone.

    Raises InvalidInput if the value is no form of definitions, and the errors of the file readers.
    """
    from horae.app.definitions import Definitions

    if isinstance(definitions, DesiredState):
        return definitions
    if isinstance(definitions, Definitions):
        return wanted_by(definitions)
    if isinstance(definitions, str | Path):
        return _at_place(definitions, namespace, defaults, timezone)
    if isinstance(definitions, Sequence) and definitions and all(isinstance(each, str | Path) for each in definitions):
        return _of_files([Path(each) for each in definitions], namespace, defaults, timezone)
    if isinstance(definitions, Mapping | JobSpec | Sequence) and not isinstance(definitions, bytes):
        return parse_desired_state(definitions, namespace=namespace, defaults=defaults, timezone=timezone)
    raise InvalidInput(f"{shown(definitions)} are no definitions", hint=_HINT)


def _at_place(place: str | Path, namespace: str, defaults: Mapping[str, Any], timezone: str | None) -> DesiredState:
    if isinstance(place, str) and ":" in place and not Path(place).exists():
        return wanted_at([place])
    return _of_files([Path(place)], namespace, defaults, timezone)


def _of_files(
    places: Sequence[Path], namespace: str, defaults: Mapping[str, Any], timezone: str | None
) -> DesiredState:
    from horae.app.process.targets import files_of

    found: list[FileJobs] = [read_jobs_of(path, namespace, timezone) for path in files_of(places)]
    check_unique_names(found, ())
    return DesiredState(
        tuple(spec for each in found for spec in each.specs),
        {name: limit for each in found for name, limit in each.pools.items()},
        frozenset[str]().union(*(each.namespaces for each in found)),
        frozenset[str]().union(*(each.stated for each in found)),
        defaults,
        {name: pause for each in found for name, pause in each.pauses.items()},
    )
