"""Liveness on one machine: an flock per incarnation, in a folder beside the catalog's file.

The lock ends with the process, however it ends, so a lock that can be had is proof. A catalog in memory belongs to one
process, whose nodes live as long as it does.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class FileLocks:
    """The liveness locks this process holds, and a look at those of others."""

    def __init__(self, path: str) -> None:
        self._folder = None if path == ":memory:" else Path(f"{path}-nodes")
        self._held: dict[str, int] = {}

    def take(self, node: str) -> bool:
        if node in self._held:
            return True
        if self._folder is None:
            self._held[node] = -1
            return True
        self._folder.mkdir(exist_ok=True)
        descriptor = os.open(self._folder / node, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(descriptor):
            os.close(descriptor)
            return False
        self._held[node] = descriptor
        return True

    def release(self, node: str) -> None:
        descriptor = self._held.pop(node, -1)
        if descriptor >= 0 and self._folder is not None:
            with suppress(OSError):
                (self._folder / node).unlink()
            os.close(descriptor)
            with suppress(OSError):
                self._folder.rmdir()

    def is_free(self, node: str) -> bool:
        if node in self._held:
            return False
        if self._folder is None:
            return True
        try:
            descriptor = os.open(self._folder / node, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            return _lock(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        for node in list(self._held):
            self.release(node)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
