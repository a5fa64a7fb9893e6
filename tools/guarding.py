"""Runs a program for as long as this one lives: under a guard, a small process that outlives its owner, so that the
program and its folder are gone within a moment even where the owner was killed with SIGKILL.

(PR_SET_PDEATHSIG would fire when the *thread* that started the program ends, and a torture run restarts servers from
threads.) The guard is this file, run by itself: nothing but the standard library is imported.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

LOOKS_EVERY_SECONDS = 0.02
KILLS_AFTER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Account:
    """Whom servers run as: None leaves it as it is. PostgreSQL refuses to run as root."""

    user: int | None = None
    group: int | None = None
    extra_groups: tuple[int, ...] | None = None


def account() -> Account:
    if os.geteuid() != 0:
        return Account()
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid, ())


def log_file(folder: Path) -> Path:
    return folder / "server.log"


def guarded(folder: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a command under a guard, in a session of its own so that Ctrl-C reaches only us."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    with log_file(folder).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - this file, with programs that a developer chose
            [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), str(folder), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**kept, "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
        )


def guard(owner: int, folder: Path, command: Sequence[str]) -> int:
    """Runs the command, passes signals on to it, and ends it and removes `folder` if the process `owner` dies first."""
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, remember)
    runner = account()
    child = subprocess.Popen(  # noqa: S603 - what `guarded` was given
        command, user=runner.user, group=runner.group, extra_groups=runner.extra_groups
    )
    while os.getppid() == owner and child.poll() is None:
        while asked:
            child.send_signal(asked.pop(0))
        time.sleep(LOOKS_EVERY_SECONDS)
    if os.getppid() != owner:
        _end(child)
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if child.returncode == 0 else 1


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGQUIT)
    try:
        child.wait(KILLS_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    raise SystemExit(guard(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
