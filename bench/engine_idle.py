"""Many schedules and nothing due: how long a process takes to start, how much memory and processor it uses."""

from __future__ import annotations

import time
from typing import Any

from bench.catalog_common import Result, progress
from bench.engine_child import ask
from bench.engine_common import KINDS, SHOWN, EngineScale, places
from bench.engine_lag import filled
from bench.timing import table

SCHEDULES = 100_000
RESIDENT = "bench.engine_resident"
MOST_MB, MOST_SECONDS, MOST_SHARE = 150.0, 5.0, 0.005


async def idle(scale: EngineScale) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    with places() as where:
        for kind in KINDS:
            progress(f"idle on {kind}: 100 and {SCHEDULES:,} schedules")
            few, many = (_asked(filled(where, kind, 100, size), scale) for size in (100, SCHEDULES))
            data[kind] = {"few": few, "many": many}
            rows.append([f"{SHOWN[kind]}: 100 schedules", *_cells(few)])
            rows.append([f"{SHOWN[kind]}: {SCHEDULES:,} schedules", *_cells(many)])
            short += _short(kind, many)
            count = scale.definitions
            title = f"{SHOWN[kind]}: {count:,} schedules that are defined in the program too"
            url = where.url(kind)
            # The first start writes them, the second finds them as they were.
            for seconds in (0.1, scale.idle_seconds):
                progress(title)
                data[kind]["code"] = _asked(url, scale, seconds, count)
            rows.append([title, *_cells(data[kind]["code"])])
    heading = ["nothing due", "start-up", "memory", "of a core"]
    return Result(table(heading, rows), data, short)


def _asked(url: str, scale: EngineScale, seconds: float | None = None, code: int = 0) -> dict[str, float]:
    wait = scale.idle_seconds if seconds is None else seconds
    return ask(RESIDENT, "idle", url=url, spawned=time.time(), seconds=wait, code=code)


def _cells(found: dict[str, float]) -> list[str]:
    return [f"{found['startup_seconds']:.1f} s", f"{found['rss_mb']:.0f} MB", f"{found['core_share']:.2%}"]


def _short(kind: str, found: dict[str, float]) -> list[str]:
    limits = {"startup_seconds": MOST_SECONDS, "rss_mb": MOST_MB, "core_share": MOST_SHARE}
    return [
        f"idle with {SCHEDULES:,} schedules on {kind}: {name} {found[name]:.3g}, at most {limit:g}"
        for name, limit in limits.items()
        if found[name] > limit
    ]
