"""How a process that only reads opens a catalog's file, also where nothing can be written.

Even a reader of a file in WAL mode makes files beside it. Where the folder takes none, a catalog that was closed
cleanly is read as a file that never changes. SQLite then asks for no lock, so whether it is still that file is asked
here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from horae.errors import StoreRefused, StoreUnavailable, shown

_UNDER_WAY = ("-wal", "-journal")
"""Beside the file while somebody has it open, and after somebody was killed: what is in them belongs to it."""


class Rest(NamedTuple):
    """A file as it was when it was found at rest."""

    device: int
    number: int
    size: int
    modified_ns: int


def resting(path: str) -> Rest | None:
    """The file, if it is a whole one in a folder that takes no new files; None where SQLite opens it as any other."""
    if path == ":memory:":
        return None
    file = Path(path).resolve()
    try:
        found = file.stat()
    except OSError:
        return None
    if _takes_files(file.parent) or any(os.path.lexists(f"{file}{ending}") for ending in _UNDER_WAY):
        return None
    return Rest(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def moved(path: str, rest: Rest | None) -> bool:
    """Whether the file that was found at rest is not that file any more."""
    return rest is not None and resting(path) != rest


def check(path: str, rest: Rest | None) -> None:
    """After reading: whether what was read is of one moment."""
    if moved(path, rest):
        raise StoreUnavailable(
            f"Somebody began to write {shown(path)} while it was read as a file at rest", hint="Ask again."
        )


def place(path: str, rest: Rest | None) -> str:
    """What SQLite is given to open it for whatever its rights allow. Absolute, so that no file's name is a URI."""
    if path == ":memory:":
        return path
    return str(Path(path).absolute()) if rest is None else reading(path, rest)


def reading(path: str, rest: Rest | None) -> str:
    """What SQLite is given to open it for reading only."""
    return f"{Path(path).absolute().as_uri()}?{'mode=ro' if rest is None else 'immutable=1'}"


def unclosed(path: str) -> StoreRefused | None:
    """Why SQLite cannot open a file that can be read, where that is for what lies beside it."""
    file = Path(path).resolve()
    if not os.access(file, os.R_OK, effective_ids=True) or _takes_files(file.parent) or resting(path) is not None:
        return None
    return StoreRefused(
        f"Cannot read {shown(path)}: it was not closed, and its folder cannot be written",
        hint="Let this user read its -wal and its -shm too, or open it once where its folder can be written.",
    )


def _takes_files(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=True)
