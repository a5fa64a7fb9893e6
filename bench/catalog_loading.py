"""Loading definitions through `define`, and the same number of jobs into APScheduler's store of the same kind."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.catalog_common import (
    DEFINE_BATCH,
    Result,
    Scale,
    define_all,
    measured_postgres,
    minutely,
    opened,
    place_for,
    progress,
)
from bench.timing import table

TARGET_SECONDS = 20.0
TARGET_COUNT = 100_000
TARGET_RATIO = 0.25
"""Of the peer's time for as many jobs: twenty seconds where the peer took 76 s."""
PEER_SHARE = 10
"""The peer adds one job at a time, at a constant pace, so it is asked for a tenth."""


async def loading(scale: Scale) -> Result:
    rows, data, short = [], {}, []
    count = scale.definitions
    # The target is for a hundred thousand; a quick run loads a tenth and may take a tenth.
    most = TARGET_SECONDS * count / TARGET_COUNT
    specs = [minutely(f"job-{number}", number) for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder, measured_postgres() as server:
        for kind in ("sqlite", "postgres"):
            progress(f"loading {count:,} definitions into {kind}")
            async with opened(kind, place_for(kind, Path(folder), server, "loading")) as measured:
                seconds = await define_all(measured.store, specs)
            progress(f"loading {count // PEER_SHARE:,} jobs into APScheduler on {kind}")
            peer = _apscheduler(kind, place_for(kind, Path(folder), server, "peer"), count // PEER_SHARE) * PEER_SHARE
            rows.append([kind, f"{seconds:.1f} s", f"{peer:.0f} s", f"{seconds / peer:.2f}"])
            data[kind] = {"definitions": count, "seconds": seconds, "apscheduler_seconds": peer}
            # A slow moment slows the peer as well: missed is what both the clock and the ratio say.
            if seconds > most and seconds / peer > TARGET_RATIO:
                short.append(f"loading {count:,} definitions into {kind}: {seconds:.1f} s, target {most:.0f} s")
    heading = [f"{count:,} definitions, {DEFINE_BATCH:,} at a time", "Horae", "APScheduler 3.11", "of its time"]
    return Result(table(heading, rows), data, short)


def _apscheduler(kind: str, place: str, count: int) -> float:
    """Seconds; its store has no way to add many at once."""
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    # As it is shut down it still tries to run what came due meanwhile, and tells of each job that it could not.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    url = f"sqlite:///{place}" if kind == "sqlite" else place.replace("postgresql://", "postgresql+psycopg://", 1)
    scheduler: Any = BackgroundScheduler(jobstores={"default": SQLAlchemyJobStore(url=url)}, timezone="UTC")
    scheduler.start(paused=True)
    begun = perf_counter()
    try:
        for number in range(count):
            scheduler.add_job("time:time", "cron", id=f"job-{number}", minute="*")
        return perf_counter() - begun
    finally:
        scheduler.shutdown()
