"""Liveness locks on one machine: an flock per incarnation of a node, in a folder beside the catalog's file.

A lock ends with its process, however the process ends. So a free lock proves that a node is gone, but only on the file
that the node itself created and locked. A missing file proves nothing, nor does another file in its place: an operator
may have removed or replaced it while the process lives, which creates it again at its next heartbeat. So a process
writes the file's inode into the file once it holds the lock; a copy has another inode.

A catalog in memory belongs to one process, and its nodes live as long as that process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from horae.store.sqlite.modes import create_folder, open_beside

_left: list[int] = []
"""Descriptors of locks that are kept until the process ends."""


class _LockFile(NamedTuple):
    is_locked: bool
    is_signed: bool


class FileLocks:
    """The liveness locks that this process holds, and checks of the locks of other processes."""

    def __init__(self, path: str) -> None:
        self._file = Path(path)
        self._folder = None if path == ":memory:" else Path(f"{path}-nodes")
        self._held: dict[str, int] = {}

    def take(self, node: str) -> bool:
        if node in self._held:
            return True
        if self._folder is None:
            self._held[node] = -1
            return True
        create_folder(self._folder, self._file)
        descriptor = open_beside(self._folder / node, self._file)
        if not _lock(descriptor):
            os.close(descriptor)
            return False
        _sign(descriptor)
        self._held[node] = descriptor
        return True

    def release(self, node: str, *, left: bool = True) -> None:
        """Gives a lock back. Removes the file of a node that has `left`; otherwise the file stays as the proof that the
        node is gone."""
        descriptor = self._held.pop(node, -1)
        if descriptor >= 0 and self._folder is not None:
            if left:
                with suppress(OSError):
                    (self._folder / node).unlink()
            os.close(descriptor)
            with suppress(OSError):
                self._folder.rmdir()

    def renew(self) -> None:
        """Creates the files of held locks again where they were removed or replaced."""
        for node, descriptor in self._held.items():
            if self._folder is None:
                continue
            if _is_at(descriptor, self._folder / node):
                _sign(descriptor)
                continue
            try:
                create_folder(self._folder, self._file)
                made = open_beside(self._folder / node, self._file)
            except OSError:
                # The heartbeat goes on, and other nodes judge this one by it.
                continue
            if _lock(made):
                _sign(made)
                self._held[node] = made
                os.close(descriptor)
            else:
                # Another process is checking the lock; the next heartbeat tries again.
                os.close(made)

    def leave(self, node: str) -> None:
        """Keeps a lock until the process ends: `close` does not free it."""
        descriptor = self._held.pop(node, -1)
        if descriptor >= 0:
            _left.append(descriptor)

    def prove_gone(self, nodes: Iterable[str]) -> None:
        """Creates a free lock for each of these nodes, which proves that they do not work on this file."""
        if self._folder is not None:
            for node in nodes:
                create_folder(self._folder, self._file)
                made = open_beside(self._folder / node, self._file)
                _sign(made)
                os.close(made)

    def is_free(self, node: str) -> bool:
        """Whether the lock proves that the node is gone."""
        if node in self._held:
            return False
        if self._folder is None:
            return True
        found = self._look(self._folder / node)
        return found is not None and found.is_signed and not found.is_locked

    def is_held(self, node: str) -> bool:
        """Whether some process has the lock."""
        if node in self._held or self._folder is None:
            return node in self._held
        found = self._look(self._folder / node)
        return found is not None and found.is_locked

    def _look(self, path: Path) -> _LockFile | None:
        descriptor = _found(path)
        if descriptor is None:
            return None
        try:
            return _LockFile(is_locked=not _lock(descriptor), is_signed=_is_signed(descriptor))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        for node in list(self._held):
            self.release(node, left=False)


def _found(path: Path) -> int | None:
    """A descriptor of the file, for reading only where it cannot be written; None where it cannot be opened."""
    for flags in (os.O_RDWR, os.O_RDONLY):
        with suppress(OSError):
            return os.open(path, flags | os.O_CLOEXEC)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_signed(descriptor: int) -> bool:
    """Whether the file is the one that a process locked, not another in its place."""
    return os.pread(descriptor, 32, 0) == b"%d\n" % os.fstat(descriptor).st_ino


def _sign(descriptor: int) -> None:
    """Writes a locked file's inode into it. Where the disk is full the file proves nothing, and other nodes judge by
    the heartbeat."""
    with suppress(OSError):
        if not _is_signed(descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.fstat(descriptor).st_ino, 0)
