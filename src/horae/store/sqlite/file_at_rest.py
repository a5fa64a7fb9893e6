"""Opening a catalog's file that nobody writes to, in a folder that this process cannot write to.

Even a reader of a file in WAL mode creates files beside it. Where the folder allows none, a catalog that was closed
cleanly is opened as immutable. SQLite then takes no lock, so this module checks whether the file was changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from horae.errors import StoreRefused, StoreUnavailable, shown

_UNDER_WAY = ("-wal", "-journal")
"""Endings of files that are beside the catalog while a process has it open, and after a process was killed. They hold a
part of its content."""


class RestingFile(NamedTuple):
    """Identity, size and modification time of a file that was found at rest."""

    device: int
    number: int
    size: int
    modified_ns: int


def resting(path: str) -> RestingFile | None:
    """The file at rest: closed cleanly, in a folder where this process cannot create files. None where SQLite can open
    it as usual."""
    if path == ":memory:":
        return None
    file = Path(path).resolve()
    try:
        found = file.stat()
    except OSError:
        return None
    if _takes_files(file.parent) or any(os.path.lexists(f"{file}{ending}") for ending in _UNDER_WAY):
        return None
    return RestingFile(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def moved(path: str, rest: RestingFile | None) -> bool:
    """Whether a file that was found at rest has changed since, or is no longer at rest."""
    return rest is not None and resting(path) != rest


def check(path: str, rest: RestingFile | None) -> None:
    """Called after reading. Raises StoreUnavailable where the file changed meanwhile, so that what was read may mix two
    states."""
    if moved(path, rest):
        raise StoreUnavailable(
            f"Somebody began to write {shown(path)} while it was read as a file at rest", hint="Ask again."
        )


def open_name(path: str, rest: RestingFile | None) -> str:
    """The name by which SQLite opens the file for reading and writing, as far as its rights allow. It is absolute, so
    that SQLite cannot take a file name for a URI."""
    if path == ":memory:":
        return path
    return str(Path(path).absolute()) if rest is None else reading(path, rest)


def reading(path: str, rest: RestingFile | None) -> str:
    """The URI by which SQLite opens the file for reading only."""
    return f"{Path(path).absolute().as_uri()}?{'mode=ro' if rest is None else 'immutable=1'}"


def unclosed_error(path: str) -> StoreRefused | None:
    """The error for a readable file that SQLite cannot open because of the files beside it; None where that is not the
    reason."""
    file = Path(path).resolve()
    if not os.access(file, os.R_OK, effective_ids=True) or _takes_files(file.parent) or resting(path) is not None:
        return None
    return StoreRefused(
        f"Cannot read {shown(path)}: it was not closed, and its folder cannot be written",
        hint="Let this user read its -wal and its -shm too, or open it once where its folder can be written.",
    )


def _takes_files(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=True)
