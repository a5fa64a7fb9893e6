"""Protection of a process' secrets from other processes of the same user.

Every process of the same user can read the environment that a process was started with, as long as it lives, and child
processes inherit it. They can read its memory too, unless the process forbids it (PR_SET_DUMPABLE). Root can read both.
So the master key is removed from the environment. Copies that the interpreter made cannot be found; forbidding access
to the memory protects those.
"""

from __future__ import annotations

import ctypes
import os
import posix
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

_GET_DUMPABLE, _SET_DUMPABLE = 3, 4
_ARGUMENTS_START, _ENVIRONMENT_START = 45, 47
"""Indexes among the words after the name in /proc/self/stat. The word after each is the end of that region."""
_PASSWORD = re.compile(r"\w://[^/?#\s:]*:([^/?#\s]+)@|://[^#\s]*[?&]password=([^&#\s]+)")
_guard = Lock()
_taken: dict[str, str] = {}


def take_variable(variable: str) -> str | None:
    """Returns the value of an environment variable and removes the variable: from this process' environment, from that
    of its child processes, and from /proc. A later call returns the same value, unless the variable was set anew. None
    where it was never set."""
    with _guard:
        value = os.environ.pop(variable, None)
        if value is not None:
            _taken[variable] = value
            # The interpreter keeps a second copy of its first environment.
            posix.environ.pop(os.fsencode(variable), None)
            _wipe(os.fsencode(variable))
        return _taken.get(variable)


def passwords_in(arguments: Iterable[str]) -> list[str]:
    """The passwords in database URLs among the arguments, as they are written there."""
    return [found for each in arguments for pair in _PASSWORD.findall(each) for found in pair if found]


def redact_arguments() -> None:
    """Overwrites passwords in the command line that the system shows to every user. Copies in the interpreter stay, and
    other programs may have copies too: a shell, `sudo`, the shell's history."""
    for password in passwords_in(sys.argv):
        _overwrite(_ARGUMENTS_START, os.fsencode(password))


def was_taken(variable: str) -> bool:
    return variable in _taken


def forget_taken() -> None:
    """Forgets all values that were taken. For tests, which share a process."""
    _taken.clear()


def conceal() -> bool:
    """Denies every user but root access to this process' memory, environment and descriptors, and prevents core files.
    Returns whether that holds now. It holds for threads and forks too, but not for programs that the process starts.
    """
    return _prctl(_SET_DUMPABLE, 0) == 0 and is_concealed()


def reveal() -> None:
    """Undoes `conceal`."""
    _prctl(_SET_DUMPABLE, 1)


def is_concealed() -> bool:
    return _prctl(_GET_DUMPABLE) == 0


def _prctl(option: int, value: int = 0) -> int:
    """The system's answer; -1 where the system has no prctl."""
    if sys.platform != "linux":
        return -1
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0))


def _overwrite(which: int, text: bytes) -> None:
    for start, end in _region(which):
        region = ctypes.string_at(start, end - start)
        at = region.find(text)
        while at >= 0:
            ctypes.memset(start + at, ord("x"), len(text))
            at = region.find(text, at + len(text))


def _region(which: int) -> Iterator[tuple[int, int]]:
    """The address range of the arguments or environment that the system shows. Yields nothing where it shows none."""
    try:
        words = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(words[which]), int(words[which + 1])
    except (OSError, IndexError, ValueError):
        return
    if 0 < start < end:
        yield start, end


def _wipe(name: bytes) -> None:
    """Overwrites a variable in the memory that /proc/self/environ shows. The C library no longer uses that memory, so
    nothing else writes there."""
    for start, end in _region(_ENVIRONMENT_START):
        at = start
        for entry in ctypes.string_at(start, end - start).split(b"\0"):
            if entry.startswith(name + b"="):
                ctypes.memset(at, 0, len(entry))
            at += len(entry) + 1
