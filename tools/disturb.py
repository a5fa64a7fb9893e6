"""Runs a command beside busy loops on every core while random processes of it stand still for 10 to 500 ms.

A test that depends on how fast the machine is fails here sooner than on a user's machine:

    python -m tools.disturb [--seed N] [--loops N] -- make test

The exit code is the command's. A process whose environment has HORAE_UNDISTURBED is never stopped: a test that itself
stops and continues a process gives it that variable, since a signal does not say who sent it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

UNDISTURBED = "HORAE_UNDISTURBED"
SHORTEST_SECONDS, LONGEST_SECONDS = 0.010, 0.500
PAUSE_SECONDS = 0.030
"""Between one stop and the next."""
_BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""
"""Ends with us, also where we are killed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.disturb", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of what is stopped and how long")
    parser.add_argument("--loops", type=int, default=os.cpu_count() or 1, help="busy loops; one a core unless given")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    given = parser.parse_args(arguments)
    command = [*given.command[1:]] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("name a command after --")
    return disturbed(command, loops=given.loops, seed=given.seed)


def disturbed(command: Sequence[str], *, loops: int, seed: int) -> int:
    """Runs `command` to its end and returns its exit code; says how often a process was stopped."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(loops)]
    spared = {os.getpid(), *(each.pid for each in busy)}
    stops = 0
    try:
        running = subprocess.Popen(command)
        chance = random.Random(seed)
        while running.poll() is None:
            candidates = [pid for pid in descendants(os.getpid()) if pid not in spared and may_be_stopped(pid)]
            if candidates:
                stops += stop_for(chance.choice(candidates), chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))
            time.sleep(PAUSE_SECONDS)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    print(f"disturb: {stops} stops, {loops} busy loops, seed {seed}; the command ended with {running.returncode}")
    return running.returncode


def stop_for(pid: int, seconds: float) -> bool:
    """Lets a process stand still; False where it had ended."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    try:
        time.sleep(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return True


def may_be_stopped(pid: int) -> bool:
    """Whether a process runs, and did not ask to be left alone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return state in "RSD" and f"{UNDISTURBED}=".encode() not in environment


def descendants(ancestor: int) -> list[int]:
    """Every process below this one, in order of their ids."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    left = [ancestor]
    while left:
        inner = children.get(left.pop(), [])
        found += inner
        left += inner
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
