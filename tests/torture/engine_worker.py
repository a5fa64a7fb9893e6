"""One node as a real process: `python -m tests.torture.engine_worker URL LOG`, until SIGTERM.

It uses nothing but the public API. Exit status 0: drained and stopped; UNREACHABLE: the store was away while it
started, as a supervisor would see it; anything else is a fault.

The environment: HORAE_TORTURE_SETTINGS are settings of the engine as JSON; HORAE_TORTURE_GRACE is the grace period;
HORAE_TORTURE_JOBS names another function that defines the jobs, `module:function`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module

from tests.torture import engine_jobs

from horae import Horae
from horae.errors import StoreError
from horae.events import EngineStarted

UNREACHABLE = 75
ORPHANED = 4
BRISK = {"heartbeat": "1s", "reap_every": "1s", "sweep_every": "2s", "tee": False}
"""Rhythms for a torture of seconds instead of hours."""
READY = "ready"


def end_with_parent(parent: int) -> None:
    """Whoever watched over this torture is gone, and nobody else would end it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(ORPHANED)


def make_app(url: str) -> Horae:
    settings = os.environ.get("HORAE_TORTURE_SETTINGS")
    return Horae(
        url,
        max_concurrent_jobs=int(os.environ.get("HORAE_TORTURE_SLOTS", "60")),
        grace_period=os.environ.get("HORAE_TORTURE_GRACE", "2s"),
        defaults={"misfire_grace": "2s", "cancel_grace": "1s"},
        settings=BRISK if settings is None else json.loads(settings),
    )


def main(url: str, log: str) -> int:
    os.environ[engine_jobs.STORE] = url
    os.environ[engine_jobs.LOG] = log
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    app = make_app(url)
    module, _, name = os.environ.get("HORAE_TORTURE_JOBS", "tests.torture.engine_jobs:define_jobs").partition(":")
    getattr(import_module(module), name)(app)
    started: list[EngineStarted] = []

    def announce(event: EngineStarted) -> None:
        started.append(event)
        print(READY, flush=True)

    app.events.listen(announce, EngineStarted)
    try:
        app.run()
    except StoreError as error:
        if started:
            raise
        print(f"not started: {type(error).__name__}: {error}", flush=True)
        return UNREACHABLE
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:3]))
