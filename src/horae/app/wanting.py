"""What somebody wants the catalog to say, from wherever it is written: an app, files, `module:app`, plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.app.jobfiles import FileJobs, check_apart, read_file, read_jobs_of
from horae.app.loading import finder
from horae.core.custom import Custom, loaded
from horae.core.job import JobSpec
from horae.core.schedule import Union
from horae.core.tomllines import TomlLines
from horae.core.wanted import Wanted as Wanted
from horae.core.wanted import wanted_of
from horae.errors import HoraeError, InvalidInput, shown

if TYPE_CHECKING:
    from horae.app.definitions import Definitions

_HINT = "Give a file, a folder, module:app, an app, JobSpecs, or the structure of jobs.toml as a mapping."


def wanted_by(app: Definitions, modules: Sequence[str] = ()) -> Wanted:
    """What an app's code says, and its files. The code says nothing of the state of a job that is there already.
    Schedules of users' own are looked for under `modules`, and in what is imported already."""
    files = app.files.values()
    specs = app.specs()
    namespaces = {namespace for each in files for namespace in each.namespaces}
    if len(specs) > sum(len(each.specs) for each in files) or not files:
        namespaces.add(app.namespace)
    stated = frozenset[str]().union(*(each.stated for each in files))
    find = finder(modules)
    specs = [
        replace(spec, schedule=loaded(spec.schedule, find)) if isinstance(spec.schedule, Custom | Union) else spec
        for spec in specs
    ]
    pauses = {name: pause for each in files for name, pause in each.pauses.items()}
    return Wanted(tuple(specs), app.pools, frozenset(namespaces), stated, app.defaults, pauses)


def wanted_at(targets: Sequence[str]) -> Wanted:
    """What targets say, as `horae serve` is given them. Raises what is wrong with them."""
    # Imported here: an app is made of this, and makes apps.
    from horae.app.targets import load_targets

    app = load_targets(targets).app
    return wanted_by(app, app.tuning.modules)


def places_at(targets: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """Where targets define these jobs: the file, and the line of a job file. Nothing where they cannot be read."""
    from horae.app.targets import load_targets

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
) -> Wanted:
    """What a program gives to an app of that namespace, those defaults and that zone. Raises InvalidInput for
    what is none, and what is wrong with a file."""
    from horae.app.definitions import Definitions

    if isinstance(definitions, Wanted):
        return definitions
    if isinstance(definitions, Definitions):
        return wanted_by(definitions)
    if isinstance(definitions, str | Path):
        return _at_place(definitions, namespace, defaults, timezone)
    if isinstance(definitions, Sequence) and definitions and all(isinstance(each, str | Path) for each in definitions):
        return _of_files([Path(each) for each in definitions], namespace, defaults, timezone)
    if isinstance(definitions, Mapping | JobSpec | Sequence) and not isinstance(definitions, bytes):
        return wanted_of(definitions, namespace=namespace, defaults=defaults, timezone=timezone)
    raise InvalidInput(f"{shown(definitions)} are no definitions", hint=_HINT)


def _at_place(place: str | Path, namespace: str, defaults: Mapping[str, Any], timezone: str | None) -> Wanted:
    if isinstance(place, str) and ":" in place and not Path(place).exists():
        return wanted_at([place])
    return _of_files([Path(place)], namespace, defaults, timezone)


def _of_files(places: Sequence[Path], namespace: str, defaults: Mapping[str, Any], timezone: str | None) -> Wanted:
    from horae.app.targets import files_of

    found: list[FileJobs] = [read_jobs_of(path, namespace, timezone) for path in files_of(places)]
    check_apart(found, ())
    return Wanted(
        tuple(spec for each in found for spec in each.specs),
        {name: limit for each in found for name, limit in each.pools.items()},
        frozenset[str]().union(*(each.namespaces for each in found)),
        frozenset[str]().union(*(each.stated for each in found)),
        defaults,
        {name: pause for each in found for name, pause in each.pauses.items()},
    )
