"""Loading definitions through `define`, and the same number of jobs into APScheduler's store of the same kind."""

from __future__ import annotations

import importlib.util
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
NOT_MEASURED = "not measured: SQLAlchemy, which its job store needs, is not installed"


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
            progress(f"loading {count:,} jobs into APScheduler on {kind}")
            peer_place = place_for(kind, Path(folder), server, "peer")
            peer = _apscheduler(kind, peer_place, count) if importlib.util.find_spec("sqlalchemy") else None
            rows.append([kind, f"{seconds:.1f} s", NOT_MEASURED if peer is None else f"{peer:.1f} s"])
            data[kind] = {"definitions": count, "seconds": seconds, "apscheduler_seconds": peer}
            if seconds > most:
                short.append(f"loading {count:,} definitions into {kind}: {seconds:.1f} s, target {most:.0f} s")
    heading = [f"{count:,} definitions, {DEFINE_BATCH:,} at a time", "Horae", "APScheduler 3.11, one at a time"]
    return Result(table(heading, rows), data, short)


def _apscheduler(kind: str, place: str, count: int) -> float:
    """Seconds; its store has no way to add many at once."""
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

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
