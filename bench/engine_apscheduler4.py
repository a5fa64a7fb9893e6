"""APScheduler 4.0a6 as a contender of `bench.engine`: AsyncScheduler with its SQLAlchemy data store.

It has the name of its forerunner, so it lives in a folder of its own (`bench.engine_peers`). Settings are its defaults,
with 100 jobs at once; `asyncpg` on PostgreSQL, a plain engine in threads on SQLite. It keeps a job's result for a time
and no history; what limits it are several transactions for each job, one job after the other.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from apscheduler import AsyncScheduler, JobReleased
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.date import DateTrigger

from bench.engine_child import serve

AT_ONCE = 100
PATIENCE = 600.0


async def nothing() -> None:
    """The job."""


async def throughput(url: str, jobs: int) -> dict[str, Any]:
    """Runs a second of schedules that are all due when the scheduler begins."""
    store = SQLAlchemyDataStore(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    done, left = asyncio.Event(), jobs
    last = 0.0

    def released(event: Any) -> None:
        nonlocal left, last
        left -= 1
        if left == 0:
            last = time.time()
            done.set()

    async with AsyncScheduler(store, max_concurrent_jobs=AT_ONCE) as scheduler:
        scheduler.subscribe(released, {JobReleased})
        await scheduler.configure_task("nothing", func=nothing, max_running_jobs=AT_ONCE)
        due = datetime.now(UTC)
        for number in range(jobs):
            await scheduler.add_schedule("nothing", DateTrigger(due), id=f"job-{number}")
        begun = time.time()
        await scheduler.start_in_background()
        await asyncio.wait_for(done.wait(), PATIENCE)
        await scheduler.stop()
    return {"per_second": jobs / (last - begun)}


if __name__ == "__main__":
    raise SystemExit(serve({"throughput": throughput}))
