"""Modes of a catalog's files: for their owner alone, unless somebody says that a group shares them.

SQLite gives the log and its index the mode of the file that they belong to. What is made beside it here goes by that
file, too, so that every process that opens the catalog makes the same, whatever its configuration and its umask say.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

PRIVATE = 0o600
_RIGHTS = 0o666


def create_file(path: Path, mode: int = PRIVATE) -> None:
    """Makes an empty file with this very mode, where there is none. The umask takes nothing away from it."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def create_folder(path: Path, beside: Path) -> None:
    """Makes a folder that those may enter who may read the file that it lies beside, where there is none."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    rights, group = _of(beside)
    _share(path, rights | (rights & 0o444) >> 2, group)


def open_beside(path: Path, beside: Path) -> int:
    """A descriptor of a file that has the rights of the one that it belongs to; it is made where there is none."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, PRIVATE)
    rights, group = _of(beside)
    _share(descriptor, rights, group)
    return descriptor


def _of(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return PRIVATE, -1
    return S_IMODE(found.st_mode) & _RIGHTS, found.st_gid


def _share(made: Path | int, rights: int, group: int) -> None:
    # A group that its owner is not in cannot be given: then the folder above decides, by its setgid bit.
    with suppress(OSError):
        os.chown(made, -1, group)
    with suppress(OSError):
        os.chmod(made, rights)  # noqa: PTH101 - a descriptor, too
