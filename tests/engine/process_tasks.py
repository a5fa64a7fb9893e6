"""Tasks that run in a process of their own: importable, since that process has to find them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from horae import Cancelled, Run
from horae.security.concealment import is_concealed


def speak(run: Run) -> dict[str, Any]:
    print("printed")
    logging.getLogger("mine").warning("logged")
    run.log.info("through run.log")
    print("to stderr", file=sys.stderr)
    return {"pid": os.getpid(), "payload": run.payload, "results": dict(run.results), "slot": str(run.scheduled_time)}


def fail() -> None:
    raise ValueError("in the child")


def leave() -> None:
    sys.exit(3)


def is_closed() -> bool:
    return is_concealed()


def vanish() -> None:
    os._exit(7)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(run: Run) -> None:
    file = Path(run.payload["file"])
    begun = file.with_name(f"{file.name}-{os.getpid()}")
    begun.write_text(str(os.getpid()))
    begun.rename(file)  # whoever sees it sees it whole, even if this process is killed meanwhile
    while True:
        time.sleep(1)


def ignore(run: Run) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(run)


def write(run: Run) -> None:
    run.transaction.execute("INSERT INTO sys.effects VALUES (?, ?)", (run.job_name, run.attempt))
    if run.attempt == 1 and (run.payload or {}).get("fail"):
        raise ValueError("after the statement")


def tell(run: Run, text: str) -> None:
    with Path(run.payload["file"]).open("a") as file:
        file.write(f"{text}\n")


def swallow_the_stop(run: Run) -> str:
    """Catches what asks it to stop, and returns."""
    if run.attempt > 1:
        return "again"
    tell(run, "begun")
    try:
        while True:
            time.sleep(1)
    except Cancelled:
        return "half done"


def finish_all_the_same(run: Run) -> str:
    tell(run, "begun")
    try:
        while True:
            time.sleep(1)
    except Cancelled:
        run.done()
        return "whole"


async def swallow_the_stop_later(run: Run) -> str:
    if run.attempt > 1:
        return "again"
    tell(run, "begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "half done"
    return "never"
