"""A Horae that has nothing to do, as a contender of `bench.engine`: only what a user's program imports is imported."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.engine_child import serve
from horae import Cron, Horae


def resident_mb() -> float:
    """Memory of this process that is in use, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("the system does not say how much memory a process uses")


async def idle(url: str, spawned: float, seconds: float, code: int = 0) -> dict[str, Any]:
    """Seconds from the process' beginning to a working engine; then its memory, and its share of a core while idle.

    `code`: so many jobs are defined in the program itself; otherwise they are in the catalog already.
    """
    app = Horae(url)
    app.task("stamp")(nothing)
    for number in range(code):
        app.job(f"job-{number}", Cron("0 0 1 1 *"))(nothing)
    async with app:
        started = time.time() - spawned
        await asyncio.sleep(3.0)
        spent, begun = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        share = (time.process_time() - spent) / (time.monotonic() - begun)
        return {"startup_seconds": started, "rss_mb": resident_mb(), "core_share": share}


async def nothing() -> None:
    """The task."""


if __name__ == "__main__":
    raise SystemExit(serve({"idle": idle}))
