"""The targets of `horae serve`: apps as `module:app`, job files, krontabs, SQL files, and folders of them.

`LoadedTargets.reload` reads files again, but not modules: Python has no sound way to import code a second time, so
new code needs a new process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from horae.app.horae import Horae
from horae.app.process.import_paths import EXIT_ON_IMPORT_HINT, why_not_imported
from horae.app.process.job_files import FileJobs
from horae.config import Configuration
from horae.core.shape import did_you_mean
from horae.errors import HoraeError, InvalidDefinition, InvalidFile, InvalidInput, shown

ENDINGS = (".toml", ".kron")
"""Suffixes of the job files that are read from a folder. A SQL file is read only if it is named itself."""
NO_JOBS = ("horae.toml", "pyproject.toml")
"""TOML files that often lie beside job files and define no jobs."""
FORMS = "A target is module:app, a file such as jobs.toml, jobs.kron or jobs.sql, or a folder of the first two."


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload: job names by change. `gone` are jobs that are in no file any more; they stay in the
    catalog.

    If there is an `error`, nothing has changed.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    error: HoraeError | None = None


class LoadedTargets:
    """An app with everything that the targets define."""

    def __init__(self, app: Horae, places: Sequence[Path]) -> None:
        self.app = app
        self._places = tuple(places)
        self._own = tuple(each.file for each in app.files.values())

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that jobs were read from."""
        return tuple(each.file for each in self.app.files.values())

    def read(self) -> tuple[FileJobs, ...]:
        """Reads every file again, including those that the app's code names. Raises the error of the first faulty
        file."""
        targets = {path.absolute(): path for path in files_of(self._places)}
        paths = {path.absolute(): path for path in self._own} | targets
        read = (replace(self.app.read_jobs_of(path), is_target=at in targets) for at, path in paths.items())
        return tuple(read)

    async def reload(self) -> ReloadResult:
        """Reads all files again and applies their definitions, all of them or none."""
        before = {spec.name for each in self.app.files.values() for spec in each.specs}
        try:
            # In a thread: reading ten thousand jobs would block the event loop that runs them.
            found = await asyncio.to_thread(self.read)
            defined = await self.app.replace_files(found)
        except HoraeError as error:
            return ReloadResult(error=error)
        by_change: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
        for each in defined:
            by_change[each.change].append(each.name)
        now = {each.name for each in defined}
        return ReloadResult(
            tuple(by_change["created"]),
            tuple(by_change["changed"]),
            tuple(by_change["unchanged"]),
            tuple(sorted(before - now)),
        )


def load_targets(
    targets: Sequence[str],
    *,
    store: str | None = None,
    node: str | None = None,
    slots: int | None = None,
    grace_period: float | None = None,
    configuration: Configuration | None = None,
) -> LoadedTargets:
    """Loads the app that the targets name, or creates one, and adds the jobs of the files. Opens nothing.

    The keyword arguments override what the app's code says. Raises InvalidInput if a target is not one, and the errors
    of the file readers.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does: programs are started where their code lies, and so do job files' handlers.
        sys.path.insert(0, here)
    apps = [target for target in targets if not _is_place(target)]
    places = [Path(target) for target in targets if _is_place(target)]
    if len(apps) > 1:
        raise InvalidInput(
            f"Two apps are to be run: {shown(apps[0])} and {shown(apps[1])}",
            hint="One process runs one app; start another process for the other.",
        )
    app = _app(apps[0]) if apps else _plain(store, configuration)
    app.adjust(store=store, node=node, slots=slots, grace_period=grace_period, configuration=configuration)
    loaded = LoadedTargets(app, places)
    for place in places:
        if place.is_dir() and not files_of([place]):
            raise InvalidFile(f"{place}: there are no job files in it", hint="They end in .toml or .kron.")
    present = set(app.files)
    for found in loaded.read():
        if found.file.absolute() not in present:
            app.add_file(found)
    return loaded


def files_of(places: Iterable[Path]) -> list[Path]:
    """The files of these places: a file as itself, a folder as the job files in it, in the order of names.

    Raises InvalidFile for a file that is known not to define jobs.
    """
    found: dict[Path, Path] = {}
    for place in places:
        if place.is_dir():
            listed = sorted(each for each in place.iterdir() if _is_job_file(each))
        elif place.name in NO_JOBS:
            raise InvalidFile(f"{place}: is not a job file", hint="Name the file that has the jobs, such as jobs.toml.")
        else:
            listed = [place]
        found |= {each.resolve(): each for each in listed}
    return list(found.values())


def _is_job_file(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name in NO_JOBS
    return path.suffix in ENDINGS and not hidden and path.is_file()


def _is_place(target: str) -> bool:
    return target.endswith((*ENDINGS, ".sql")) or Path(target).is_dir()


def _plain(store: str | None, configuration: Configuration | None) -> Horae:
    settings = None if configuration is None else {"configuration": configuration}
    return Horae(settings=settings) if store is None else Horae(store, settings=settings)


# ---- apps ------------------------------------------------------------------------------------------------------------


def _app(target: str) -> Horae:
    module_name, colon, name = target.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise InvalidInput(f"{shown(target)} is not a target", hint=_hint(target))
    found: Any = _module(module_name, target)
    for part in name.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [each for each in vars(found) if not each.startswith("_")])
            apps = [each for each, value in vars(found).items() if isinstance(value, Horae)]
            hint = f"There is: {', '.join(f'{module_name}:{each}' for each in apps)}." if apps else near
            raise InvalidInput(f"Target {shown(target)}: there is no {part} in {module_name}", hint=hint or FORMS)
        found = getattr(found, part)
    if callable(found) and not isinstance(found, Horae):
        found = _made(found, target)
    if not isinstance(found, Horae):
        raise InvalidInput(
            f"Target {shown(target)} is {shown(found)}, and not an app", hint="Name one: app = Horae(…) in that module."
        )
    return found


def _hint(target: str) -> str:
    exists = "It is there, but ends in neither .toml, .kron nor .sql. " if Path(target).exists() else ""
    return exists + FORMS


def _module(name: str, target: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"It is looked for here, in {Path.cwd()}, and among what is installed."
            raise InvalidInput(f"Target {shown(target)}: there is no module {error.name}", hint=hint) from error
        raise _unimportable(target, error) from error
    except HoraeError:
        # The error is about a definition in that module and already says so.
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unimportable(target, error) from error


def _unimportable(target: str, error: BaseException) -> InvalidDefinition:
    return InvalidDefinition(
        f"Target {shown(target)} cannot be imported: {why_not_imported(error)}",
        hint=EXIT_ON_IMPORT_HINT
        if isinstance(error, SystemExit)
        else "Run python -c 'import …' for the whole traceback.",
    )


def _made(factory: Any, target: str) -> Any:
    """Calls the factory that a target names, and returns what it returns."""
    try:
        return factory()
    except HoraeError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InvalidInput(
            f"Target {shown(target)}, called to make the app, failed: {why_not_imported(error)}",
            hint="It is called without arguments, and returns a Horae.",
        ) from error
