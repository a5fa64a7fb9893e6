"""Kills what is left of a command whose launcher was killed, by the mark in the environment of its processes.

A launcher leaves nothing behind. But a command that runs as the same user can kill its launcher. The kernel then kills
the command itself, and this module finds what else it started, unless that has replaced its environment and left its
session.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from horae.external.sandbox import MARK

_LONGEST = 5.0
"""Seconds that a sweep may take."""


def sweep(mark: str, session: int | None) -> int:
    """Kills every process with the mark or in the command's session, until none is left; returns how many. Takes some
    seconds at most."""
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
            continue  # it has ended, or belongs to another user
    return found


def _variables(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return []
