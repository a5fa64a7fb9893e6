"""Runs an example as a reader would: a process of its own, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name: str, *arguments: str, folder: Path, seconds: float = 300) -> str:
    """What `python examples/NAME ARGUMENTS…` printed; it must end well, and leave nothing behind."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir()), "an example tidies up"
    return done.stdout


def played_in_time(name: str, is_held_up: Callable[[str], bool], *, folder: Path) -> str:
    """What an example printed whose course depends, within a second, on what else the machine does: it is played again
    where it was held up."""
    said = ""
    for _ in range(10):
        said = played(name, folder=folder)
        if not is_held_up(said):
            break
    return said


def played_long_enough(name: str, shows: Callable[[str], bool], *, folder: Path) -> str:
    """What an example printed that goes on for some seconds: for so many that it shows what it is there to show, which
    takes the longer the more else the machine has to do."""
    said = ""
    for seconds in (2.5, 5, 10, 20, 40):
        said = played(name, "--seconds", str(seconds), folder=folder)
        if shows(said):
            return said
    raise AssertionError(f"{name} did not come to it:\n{said}")
