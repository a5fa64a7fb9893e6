"""Handlers that lie beside the job file that names them.

An operator named the file on the command line, so the code in its folder is as trusted as the file, provided that no
other user can write either. Only handlers that the file names are imported. Definitions from HTTP, SQL or the view
never reach this module: for those, `modules` in [scheduler] says what may be imported.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from horae.app.process.import_paths import Function, handler_finder
from horae.errors import TaskNotFound, shown

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_CODE = (".py", ".pyc", ".pyd", ".so")
MOST_LOOKED_AT = 50_000
"""Files and folders that are checked at most."""


def handler_beside(file: Path, path: str) -> Function | None:
    """Finds what a job file's `python = "module.function"` names in the file's folder; None if the folder has no such
    module.

    Raises TaskNotFound if the module must not be used, or has no such function.
    """
    folder = file.resolve().parent
    module_name = path.partition(":")[0] if ":" in path else path.rpartition(".")[0]
    root = module_name.partition(".")[0]
    if not all(part.isidentifier() for part in module_name.split(".")):
        return None
    code = _module_file(folder, root)
    if code is None:
        _check_near(file, path, folder, module_name)
        return None
    try:
        writable = writable_by_others(file)
    except OSError as error:
        writable = f"it cannot be looked at: {error.strerror or error}"
    if writable is not None:
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: {writable}",
            hint=f'Change that, or allow it: modules = ["{root}"] under [scheduler].',
        )
    if not code.resolve().is_relative_to(folder):
        link = code if code.is_symlink() else code.parent
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: "
            f"{link.name} there is a link to {link.resolve()}, outside of it",
            hint=f"Put the code itself into {folder}, or install the module and allow it: "
            f'modules = ["{root}"] under [scheduler].',
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    _check_origin(path, root, folder)
    find = handler_finder([root])
    assert find is not None
    found = find(path)
    # Checked again: another folder on sys.path may have a module of that name and come first.
    _check_origin(path, root, folder)
    return found


def writable_by_others(file: Path) -> str | None:
    """Who else can change the code beside a job file, in words; None if no other user can.

    Only root and the user of this process may. Checks everything that could be imported from the folder, the targets of
    links, and the folders above, since a user who can rename one of them can replace the code. Raises OSError.
    """
    own = {0, os.geteuid()}
    target = file.resolve()
    seen: set[Path] = set()
    for path in _concerned(target):
        above = not path.is_relative_to(target.parent)
        for each in (path, *path.parents) if above else (path,):
            if each in seen:
                continue
            seen.add(each)
            status = each.stat()
            # In a sticky folder a user cannot rename the files of others.
            is_sticky = bool(status.st_mode & stat.S_ISVTX) and each in target.parent.parents
            if status.st_uid not in own:
                return f"{each} belongs to another user"
            if status.st_mode & _OTHERS and not is_sticky:
                return f"{each} can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
            if len(seen) > MOST_LOOKED_AT:
                return f"more than {MOST_LOOKED_AT} files lie there"
    return None


def _concerned(target: Path) -> Iterator[Path]:
    """The job file, its folder, the folders above, and everything that could be imported from the folder, links
    resolved."""
    folder = target.parent
    yield target
    yield folder
    yield folder.parent
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *(each for each in files if each.endswith(_CODE) and not each.startswith("."))):
            yield (Path(place) / name).resolve()


def _module_file(folder: Path, root: str) -> Path | None:
    """The file that an import of the module `root` would run, or None if the folder does not have it."""
    candidates = (folder / root / "__init__.py", folder / f"{root}.py")
    return next((each for each in candidates if each.is_file()), None)


def _check_near(file: Path, path: str, folder: Path, module_name: str) -> None:
    """Raises TaskNotFound, with the remedy, if the module is near but one thing keeps it from being found."""
    root, *inner = module_name.split(".")
    places = [folder.joinpath(root, *inner[:depth]) for depth in range(1, len(inner) + 1)]
    if any(each.with_suffix(".py").is_file() or (each / "__init__.py").is_file() for each in places):
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: the folder {root} there has no __init__.py",
            hint=f"Put an empty file __init__.py into {folder / root}.",
        )
    if file.is_symlink() and _module_file(file.parent.resolve(), root) is not None:
        raise TaskNotFound(
            f"{shown(path)} is not imported from {file.parent.resolve()}: {file.name} there is a link to a file in "
            f"{folder}, and the module is looked for beside that file",
            hint=f"Put the module into {folder}, or the job file itself beside the module.",
        )


def _check_origin(path: str, root: str, folder: Path) -> None:
    """Raises TaskNotFound if a module of that name is already imported from another folder."""
    loaded = sys.modules.get(root)
    origin = getattr(loaded, "__file__", None)
    if loaded is not None and not (isinstance(origin, str) and Path(origin).resolve().is_relative_to(folder)):
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: another module is called {root} here",
            hint="Give the module beside the job file another name.",
        )
