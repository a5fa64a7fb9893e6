"""Liveness on one machine: an flock per incarnation, in a folder beside the catalog's file.

The lock ends with the process, however it ends, so a lock that can be had is proof, on a file that the process itself
made and locked. A file that is missing is none, nor is another one in its place: somebody may have removed or replaced
it under a process that lives, which makes it again at its next heartbeat. A process therefore writes the file's inode
into it once it has the lock: a copy has another. A catalog in memory belongs to one process, whose nodes live as long
as it does.
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
"""Locks that end with the process and not before."""


class _LockFile(NamedTuple):
    is_locked: bool
    is_signed: bool


class FileLocks:
    """The liveness locks this process holds, and a look at those of others."""

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
        """Gives a lock back. The file of a node that has `left` is removed; of one that has not, it is the proof that
        the node is gone."""
        descriptor = self._held.pop(node, -1)
        if descriptor >= 0 and self._folder is not None:
            if left:
                with suppress(OSError):
                    (self._folder / node).unlink()
            os.close(descriptor)
            with suppress(OSError):
                self._folder.rmdir()

    def renew(self) -> None:
        """Makes the files again that were removed, or replaced, under the locks this process holds."""
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
                # The heartbeat goes on, and others go by that.
                continue
            if _lock(made):
                _sign(made)
                self._held[node] = made
                os.close(descriptor)
            else:
                # Another process looks at it this moment; the next heartbeat tries again.
                os.close(made)

    def leave(self, node: str) -> None:
        """Leaves a lock to end with the process."""
        descriptor = self._held.pop(node, -1)
        if descriptor >= 0:
            _left.append(descriptor)

    def prove_gone(self, nodes: Iterable[str]) -> None:
        """Leaves a lock that nobody holds for each of these nodes: they are known not to work on this file."""
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
    """A descriptor, for reading only where it cannot be written. What cannot be opened proves nothing."""
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
    """Whether the file is the one that a process locked, and not another in its place."""
    return os.pread(descriptor, 32, 0) == b"%d\n" % os.fstat(descriptor).st_ino


def _sign(descriptor: int) -> None:
    """Says in a file that is locked which one it is. Where the disk is full the file proves nothing, and others go by
    the heartbeat."""
    with suppress(OSError):
        if not _is_signed(descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.fstat(descriptor).st_ino, 0)
