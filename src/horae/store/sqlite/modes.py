"""Modes of a catalog's files: for their owner only, unless the configuration shares them with a group.

SQLite gives the log and its index the mode of the catalog's file. Files that Horae creates beside it get that mode too,
so that every process creates the same ones, whatever its configuration and umask are.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

PRIVATE = 0o600
_RIGHTS = 0o666


def create_file(path: Path, mode: int = PRIVATE) -> None:
    """Creates an empty file with exactly this mode, whatever the umask is. Does nothing where the file exists."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def create_folder(path: Path, beside: Path) -> None:
    """Creates a folder that every user may enter who may read the file `beside`. Does nothing where it exists."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return
    rights, group = _of(beside)
    _share(path, rights | (rights & 0o444) >> 2, group)


def open_beside(path: Path, beside: Path) -> int:
    """Opens a file for reading and writing, and returns its descriptor. Creates a missing file with the mode and group
    of the file `beside`."""
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
    # A process cannot give a file to a group that its user is not in. Then the setgid bit of the parent folder decides.
    with suppress(OSError):
        os.chown(made, -1, group)
    with suppress(OSError):
        os.chmod(made, rights)  # noqa: PTH101 - a descriptor, too
