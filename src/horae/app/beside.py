"""Handlers that lie beside the job file that names them.

The operator named the file on the command line, so the code in its folder is as trusted as the file, if nobody else can
write either. Only the handlers that the file names are imported. Definitions that come by HTTP, SQL or the view get
nothing from here: for those `modules` in [scheduler] says what may be imported.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from horae.app.loading import Function, callables
from horae.errors import TaskNotFound, shown

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def handler_beside(file: Path, path: str) -> Function | None:
    """What a job file's `python = "module.function"` names in the folder of the file; None where the folder has no such
    module. Raises TaskNotFound where it has one that is not to be used, or that does not have the function."""
    folder = file.absolute().parent
    module_name = path.partition(":")[0] if ":" in path else path.rpartition(".")[0]
    root = module_name.partition(".")[0]
    found = _source(folder, root) if root.isidentifier() else None
    if found is None:
        return None
    writable = writable_by_others(folder, found)
    if writable is not None:
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: {writable}",
            hint=f'Change that, or allow it: modules = ["{root}"] under [scheduler].',
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    loaded = sys.modules.get(root)
    if loaded is not None and not _is_within(loaded, folder):
        raise TaskNotFound(
            f"{shown(path)} is not imported from {folder}: another module is called {root} here",
            hint="Give the module beside the job file another name.",
        )
    find = callables([root])
    assert find is not None
    return find(path)


def writable_by_others(folder: Path, source: Path) -> str | None:
    """Who else can change the code: a file or folder on the way, in words; None where nobody can.

    Root and the user of this process may. Folders above are looked at too: who can rename them can replace the code.
    """
    own = {0, os.geteuid()}
    inside = [source, *(parent for parent in source.parents if parent.is_relative_to(folder))]
    if source.name == "__init__.py":
        inside += sorted(source.parent.rglob("*.py"))
    for path in dict.fromkeys(each.resolve() for each in (*inside, *folder.resolve().parents)):
        status = path.stat()
        is_sticky_above = bool(status.st_mode & stat.S_ISVTX) and path not in inside
        if status.st_uid not in own:
            return f"{path} belongs to another user"
        if status.st_mode & _OTHERS and not is_sticky_above:
            return f"{path} can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _source(folder: Path, root: str) -> Path | None:
    for path in (folder / root / "__init__.py", folder / f"{root}.py"):
        if path.is_file():
            return path
    return None


def _is_within(module: object, folder: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return isinstance(origin, str) and Path(origin).resolve().is_relative_to(folder.resolve())
