"""Targets: what `horae serve` is told to run. Apps by `module:app`, job files, krontabs, folders of them.

Files are read again by `Loaded.reload`; modules are not: Python has no sound way to import code a second time, so new
code needs a new process.
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
from horae.app.jobfiles import FileJobs
from horae.app.loading import UNGUARDED, why_not_imported
from horae.config import Configuration
from horae.core.shape import did_you_mean
from horae.errors import HoraeError, InvalidDefinition, InvalidFile, InvalidInput, shown

ENDINGS = (".toml", ".kron")
"""Files of a folder that are read. One of SQL may be anything, and is read where it is named."""
NO_JOBS = ("horae.toml", "pyproject.toml")
"""What lies in folders beside job files, and is none."""
FORMS = "A target is module:app, a file such as jobs.toml, jobs.kron or jobs.sql, or a folder of the first two."


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What became of reading files again: names of jobs. `gone` are in no file any more; the catalog still has them.
    With an `error` nothing has changed."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    error: HoraeError | None = None


class Loaded:
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
        """Every file as it is now, those too that the app's code names. Raises what is wrong with the first bad one."""
        targets = {path.absolute(): path for path in files_of(self._places)}
        paths = {path.absolute(): path for path in self._own} | targets
        read = (replace(self.app.read_jobs_of(path), is_target=at in targets) for at, path in paths.items())
        return tuple(read)

    async def reload(self) -> Reloaded:
        """Reads all files again and defines what they say, all of it or nothing."""
        before = {spec.name for each in self.app.files.values() for spec in each.specs}
        try:
            # In a thread: the loop that runs jobs does not wait for ten thousand of them to be read.
            found = await asyncio.to_thread(self.read)
            defined = await self.app.replace_files(found)
        except HoraeError as error:
            return Reloaded(error=error)
        by_change: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": []}
        for each in defined:
            by_change[each.change].append(each.name)
        now = {each.name for each in defined}
        return Reloaded(
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
) -> Loaded:
    """The app that the targets name, or one of its own, with the jobs of the files; nothing is opened yet. What is
    given besides stands over what the app's code says. Raises InvalidInput for a target that is none, and what is wrong
    with a file."""
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does: programs are started where their code lies, also that which job files name.
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
    loaded = Loaded(app, places)
    for place in places:
        if place.is_dir() and not files_of([place]):
            raise InvalidFile(f"{place}: there are no job files in it", hint="They end in .toml or .kron.")
    present = set(app.files)
    for found in loaded.read():
        if found.file.absolute() not in present:
            app.add_file(found)
    return loaded


def files_of(places: Iterable[Path]) -> list[Path]:
    """Files as they are; of folders what lies in them, by name. Raises InvalidFile."""
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
        # It is about a definition in that module, and says so better than we could.
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unimportable(target, error) from error


def _unimportable(target: str, error: BaseException) -> InvalidDefinition:
    return InvalidDefinition(
        f"Target {shown(target)} cannot be imported: {why_not_imported(error)}",
        hint=UNGUARDED if isinstance(error, SystemExit) else "Run python -c 'import …' for the whole traceback.",
    )


def _made(factory: Any, target: str) -> Any:
    """What a function that makes the app makes."""
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
