"""One node as a real process, for tests that kill it: `python -m tests.work.node URL [CONFIGURATION]`."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.store.catalogs import Place
from tests.work import secret_tasks
from tests.work.world import make

from horae.events import EngineStarted

READY = "ready"
ROOT = Path(__file__).parents[2]


def main(url: str, configuration: str | None = None) -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    target = url.removeprefix("sqlite:///")
    place = Place("sqlite" if target != url else "postgres", target)
    app = make(place, configuration, settings={"tee": True}, grace_period="2s", max_concurrent_jobs=3)
    secret_tasks.define(app)
    app.events.listen(lambda _: print(READY, flush=True), EngineStarted)
    app.run()


@contextmanager
def node(
    place: Place, configuration: str | None = None, *, said: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """The process, once it runs jobs where what it says can be read here; killed at the end."""
    command = [sys.executable, "-u", "-m", "tests.work.node", place.url, *([configuration] if configuration else [])]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=said, stderr=subprocess.DEVNULL if said == subprocess.PIPE else said, text=True
    )
    try:
        if process.stdout is not None:
            while (line := process.stdout.readline()).strip() != READY:
                assert line, "the node has ended"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
