"""How contenders run: each in a process of its own, asked by one JSON argument, answering with one JSON line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

Measure = Callable[..., Awaitable[Mapping[str, Any]]]
ROOT = Path(__file__).resolve().parent.parent
LONGEST = 1800.0


def ask(module: str, measure: str, *, packages: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Has `module` measure in a new process; `packages` is a folder whose packages come before those installed.

    Raises RuntimeError with what the process said where it failed.
    """
    paths = [str(each) for each in (packages, ROOT) if each is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps({"measure": measure, "arguments": arguments})],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed at {measure}:\n{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def serve(measures: Mapping[str, Measure]) -> int:
    """A contender's main: measures what it was asked, and prints the figures."""
    given = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(_measured(measures[given["measure"]], given["arguments"]))))
    return 0


async def _measured(measure: Measure, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return await measure(**arguments)
