"""What is left of a command whose launcher was killed: found by the mark in its environment, and ended.

A launcher leaves nothing. But a command that runs as the same user can kill its launcher; the kernel then kills the
command itself, and this finds what else it started, unless that has made its environment anew and left its session.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from horae.runners.sandbox import MARK

_LONGEST = 5.0


def sweep(mark: str, session: int | None) -> int:
    """Kills every process that carries the mark, or is in the session that the command led; returns how many. Takes
    until none is left, for some seconds at most."""
    limit = time.monotonic() + _LONGEST
    found: set[int] = set()
    while (living := _living(mark, session)) and time.monotonic() < limit:
        found |= living
        for pid in living:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return len(found)


def _living(mark: str, session: int | None) -> set[int]:
    sought = f"{MARK}={mark}".encode()
    found = set()
    for entry in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, its_session = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:4]
            if state in (b"Z", b"X"):
                continue
            if (session is not None and int(its_session) == session) or sought in _variables(entry):
                found.add(int(entry.name))
        except OSError:
            continue  # it has ended, or is none of ours
    return found


def _variables(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return []
