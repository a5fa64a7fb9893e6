"""Runs our command line as a process of its own, as a shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    errors: str


def horae(
    *arguments: str,
    stdin: str = "",
    environment: dict[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "horae"),
) -> Done:
    """`horae ARGUMENTS…` with nothing on a terminal, so without colour. `program` is what Python is to run."""
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", "TZ": "UTC", **(environment or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr)
