"""The file that keeps heads of the audit trail, one line each: the time, the seal's number, its digest.

The file is proof only while users who can write to the database cannot write to the file. So a file that other users
than its owner can write to is neither written nor read.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from horae.errors import InvalidInput

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_TAIL = 4096
_DIGITS = frozenset("0123456789abcdef")


class SeenHead(NamedTuple):
    """The newest seal at the moment when a node saw it; `time` is in RFC 3339."""

    time: str
    seal: int
    digest: str


def append_heads(path: str, heads: Iterable[SeenHead]) -> None:
    """Appends a line for each head that is not the file's last one already, and waits until they are on the disk.
    Raises InvalidInput where other users can write to the file or its folder, and OSError."""
    _check_folder(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    opened = os.open(path, flags, 0o600)
    try:
        status = os.fstat(opened)
        _check(path, status)
        if status.st_uid not in (0, os.geteuid()):
            raise InvalidInput(f"{path} belongs to another user, who may write it")
        tail = os.pread(opened, _TAIL, max(0, status.st_size - _TAIL)).decode("ascii", "replace")
        last = tail.rstrip("\n").rpartition("\n")[2].split()
        fresh = [each for each in heads if last[1:] != [str(each.seal), each.digest]]
        text = "".join(f"{each.time} {each.seal} {each.digest}\n" for each in fresh).encode()
        if not text:
            return
        whole = text if not tail or tail.endswith("\n") else b"\n" + text
        if os.write(opened, whole) != len(whole):
            # The disk is full. Half a line would look like a changed head.
            os.ftruncate(opened, status.st_size)
            raise OSError(f"{path}: only a part of the line could be written")
        os.fsync(opened)
    finally:
        os.close(opened)


def read_heads(path: str) -> Sequence[str]:
    """The digests in a head file, in order, each once. Raises InvalidInput, which names the line that is invalid."""
    try:
        _check_folder(path)
        with Path(path).open("rb") as opened:
            _check(path, os.fstat(opened.fileno()))
            found = dict.fromkeys(_digest(path, number, line) for number, line in enumerate(opened, 1))
    except OSError as error:
        raise InvalidInput(f"{path}: the heads cannot be read: {error.strerror or error}") from None
    if not found:
        raise InvalidInput(f"{path} has no heads", hint="A node writes it: audit_head_file under [scheduler].")
    return list(found)


def last_head(path: str) -> SeenHead:
    """The head in the file's last line, read without the other lines. Raises OSError, InvalidInput."""
    _check_folder(path)
    with Path(path).open("rb") as opened:
        _check(path, os.fstat(opened.fileno()))
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - _TAIL))
        lines = opened.read().splitlines()
    return _head(f"{path}, the last line", lines[-1] if lines else b"")


def _digest(path: str, number: int, line: bytes) -> str:
    return _head(f"{path}, line {number}", line).digest


def _head(where: str, line: bytes) -> SeenHead:
    with suppress(ValueError):
        time, seal, digest = line.decode("ascii").split()
        if seal.isdecimal() and len(digest) == 64 and _DIGITS.issuperset(digest):
            return SeenHead(time, int(seal), digest)
    raise InvalidInput(f"{where}: is no head", hint="A line has the time, the number of a seal, and its digest.")


def _check(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{path} is no file")
    if status.st_mode & _OTHERS:
        raise InvalidInput(
            f"{path} can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"Look whether its lines are right, and run: chmod go-w {shlex.quote(path)}",
        )


def _check_folder(path: str) -> None:
    """Refuses a folder that other users can write to: they could replace the file in it."""
    folder = Path(path).absolute().parent
    mode = folder.stat().st_mode
    if mode & _OTHERS and not mode & stat.S_ISVTX:
        raise InvalidInput(
            f"{folder}, where {Path(path).name} lies, can be written by other users (mode {stat.S_IMODE(mode):04o})",
            hint=f"Name a file in another folder, or run: chmod go-w {shlex.quote(str(folder))}",
        )
