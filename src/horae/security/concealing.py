"""What a process keeps to itself: the master key taken out of its environment, its memory closed to its user's others.

The environment that a process was started with can be read by every process of the same user, for as long as it lives,
and is handed to whatever it starts. So can its memory, unless the process says that it must not be (PR_SET_DUMPABLE).
Root reads both. What the interpreter has copied meanwhile cannot be found: the closed memory is what guards that.
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
"""Of the words after the name in /proc/self/stat; the ends follow."""
_PASSWORD = re.compile(r"\w://[^/?#\s:]*:([^/?#\s]+)@|://[^#\s]*[?&]password=([^&#\s]+)")
_guard = Lock()
_taken: dict[str, str] = {}


def take(variable: str) -> str | None:
    """The value of a variable of this process' environment, which nobody finds there from now on: neither this process,
    nor those it starts, nor who reads /proc. Asked again, it answers the same; one set anew wins. None: never set."""
    with _guard:
        value = os.environ.pop(variable, None)
        if value is not None:
            _taken[variable] = value
            # The interpreter keeps what it was started with once more.
            posix.environ.pop(os.fsencode(variable), None)
            _wipe(os.fsencode(variable))
        return _taken.get(variable)


def passwords_in(arguments: Iterable[str]) -> list[str]:
    """The passwords in the addresses of databases among them, as they are written there."""
    return [found for each in arguments for pair in _PASSWORD.findall(each) for found in pair if found]


def blacken_arguments() -> None:
    """Overwrites passwords where the system shows everybody the arguments that this process was started with; those
    that the interpreter has copied stay. Other processes may have had them too: a shell, `sudo`, the user's history."""
    for password in passwords_in(sys.argv):
        _overwrite(_ARGUMENTS_START, os.fsencode(password))


def was_taken(variable: str) -> bool:
    return variable in _taken


def forget() -> None:
    """Nothing was taken: for tests, which share a process."""
    _taken.clear()


def conceal() -> bool:
    """Closes this process' memory, environment and descriptors to all but root, and keeps it from writing core files;
    whether they are closed now. Threads and forks are closed with it; what it starts is not."""
    return _prctl(_SET_DUMPABLE, 0) == 0 and is_concealed()


def reveal() -> None:
    """The other way round."""
    _prctl(_SET_DUMPABLE, 1)


def is_concealed() -> bool:
    return _prctl(_GET_DUMPABLE) == 0


def _prctl(option: int, value: int = 0) -> int:
    """What the system answers; -1 where it has no such thing."""
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
    """Where the system finds what it shows of this process' arguments or environment; none where it shows nothing."""
    try:
        words = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(words[which]), int(words[which + 1])
    except (OSError, IndexError, ValueError):
        return
    if 0 < start < end:
        yield start, end


def _wipe(name: bytes) -> None:
    """Overwrites a variable where the system shows it as /proc/self/environ: no longer any part of the environment that
    the C library goes by, so nobody else writes there."""
    for start, end in _region(_ENVIRONMENT_START):
        at = start
        for entry in ctypes.string_at(start, end - start).split(b"\0"):
            if entry.startswith(name + b"="):
                ctypes.memset(at, 0, len(entry))
            at += len(entry) + 1
