"""`python -m bench.external`: what it costs to start an external command, beside ways that contain less of it.

Each contender starts `/bin/true` and waits for its end; the figure is the best of many rounds. `--json` prints the
figures for machines, `--rounds` sets their number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

from bench.timing import race, table
from horae.core.program.policy import ExternalPolicy, Sandbox
from horae.external import sandbox
from horae.external.command import CommandWork, run_command

PROGRAM = "/bin/true"
BARE = "subprocess, nothing contained"
SHELL = "/bin/sh with ulimit: limits only"
PYTHON = "an empty Python, as the launcher begins"
LAUNCHER = "Horae: launcher"
NAMESPACES = "Horae: launcher and bubblewrap"
LONGEST = 0.1
"""Seconds that a start may take on a machine with nothing else to do."""


def contenders() -> dict[str, Callable[[], int]]:
    found = {
        BARE: _bare([PROGRAM]),
        SHELL: _bare(
            ["/bin/sh", "-c", 'ulimit -t 60; ulimit -v 2097152; ulimit -n 256; ulimit -c 0; exec "$@"', "sh", PROGRAM]
        ),
        PYTHON: _bare([sys.executable, "-I", "-S", "-c", "pass"]),
        LAUNCHER: _horae(Sandbox.NONE),
    }
    if shutil.which("bwrap", path=sandbox.BUBBLEWRAP_PLACES) is not None:
        found[NAMESPACES] = _horae(Sandbox.NAMESPACES)
    return found


def _bare(command: list[str]) -> Callable[[], int]:
    def run() -> int:
        subprocess.run(command, check=True, env={}, stdin=subprocess.DEVNULL)
        return 1

    return run


def _horae(boxed: Sandbox) -> Callable[[], int]:
    policy = ExternalPolicy(enabled=True, commands=(PROGRAM,), sandbox=boxed)
    work = CommandWork(PROGRAM, "bench", "occ_1", 1)

    async def once() -> int:
        result = await run_command(work, policy, output=lambda _: None)
        assert result.succeeded, result.message
        return 1

    return lambda: asyncio.run(once())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.external", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = race(contenders(), given.rounds)
    if given.json:
        print(json.dumps(found))
    else:
        print(table(["start of a command", "best"], [[name, f"{1000 * each:.1f} ms"] for name, each in found.items()]))
        if NAMESPACES not in found:
            print("\nbubblewrap is not installed here, so starts with namespaces were not measured")
    return 1 if found[LAUNCHER] > LONGEST else 0


if __name__ == "__main__":
    raise SystemExit(main())
