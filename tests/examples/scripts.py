"""Runs an example as a reader would: a process of its own, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name: str, *arguments: str, folder: Path, seconds: float = 60) -> str:
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
