"""Removes the directory of a command, whatever the command left there and however deep."""

from __future__ import annotations

import errno
import os
import stat

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
"""Errors of a rename to a name that exists."""


def remove_tree(path: bytes | str) -> None:
    """Removes a directory with everything in it, without following links. Does nothing if it does not exist. Raises
    OSError.

    A command may nest directories deeper than recursion or paths can follow, so inner directories are moved up one
    level at a time.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(path, 0o700)  # noqa: PTH101 - the launcher pays for every import
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(top, 0o700)
        moved = 0
        while names := os.listdir(top):  # noqa: PTH208 - by descriptor
            for name in names:
                if not _is_directory(name, top):
                    os.unlink(name, dir_fd=top)
                    continue
                moved = _raise_up(name, top, moved)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)  # noqa: PTH106 - the launcher pays for every import


def _raise_up(name: str, top: int, moved: int) -> int:
    """Empties a directory: deletes its files, and moves its directories to the top under new names."""
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for each in os.listdir(inner):  # noqa: PTH208 - by descriptor
            if not _is_directory(each, inner):
                os.unlink(each, dir_fd=inner)
                continue
            os.chmod(each, 0o700, dir_fd=inner)  # a directory must be writable to be moved
            while True:
                moved += 1
                try:
                    os.rename(each, f"horae-{moved}", src_dir_fd=inner, dst_dir_fd=top)
                    break
                except OSError as error:
                    if error.errno not in _TAKEN:
                        raise
    finally:
        os.close(inner)
    return moved


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
