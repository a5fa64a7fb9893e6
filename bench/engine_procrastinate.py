"""procrastinate as a contender of `bench.engine`: a queue in PostgreSQL that keeps a row and events for each job.

psycopg, 100 jobs at once; the rest are its defaults, among them a poll every 5 s. What limits it: each job is fetched
and finished by a statement and a commit of its own.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.engine_child import serve

AT_ONCE = 100


async def throughput(url: str, jobs: int) -> dict[str, Any]:
    """Runs a second of jobs that were deferred before the worker began."""
    app = App(connector=PsycopgConnector(conninfo=url))

    async def work() -> None:
        pass

    nothing = app.task(name="nothing")(work)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await nothing.batch_defer_async(*({} for _ in range(jobs)))
        begun = time.time()
        await app.run_worker_async(concurrency=AT_ONCE, wait=False, install_signal_handlers=False, listen_notify=False)
        seconds = time.time() - begun
    return {"per_second": jobs / seconds}


async def lag(url: str, jobs: int, rounds: int, period: int) -> dict[str, Any]:
    """Start lags of its periodic tasks, all due at the same seconds."""
    app = App(connector=PsycopgConnector(conninfo=url))
    lags: list[float] = []
    done = asyncio.Event()

    async def work(timestamp: int) -> None:
        lags.append(time.time() - timestamp)
        if len(lags) == jobs * rounds:
            done.set()

    for number in range(jobs):
        task = app.task(name=f"stamp-{number}")(work)
        app.periodic(cron=f"* * * * * */{period}")(task)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(concurrency=AT_ONCE, install_signal_handlers=False))
        await asyncio.wait_for(done.wait(), 600.0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return {"lags": lags[: jobs * rounds]}


async def ahead(url: str, jobs: int, rounds: int, period: int) -> dict[str, Any]:
    """Start lags of jobs deferred to one moment."""
    app = App(connector=PsycopgConnector(conninfo=url))
    lags: list[float] = []
    moment = 0.0
    done = asyncio.Event()

    async def work() -> None:
        lags.append(time.time() - moment)
        if len(lags) % jobs == 0:
            done.set()

    stamp = app.task(name="stamp")(work)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(concurrency=AT_ONCE, install_signal_handlers=False))
        await asyncio.sleep(1.0)
        for _ in range(rounds):
            done.clear()
            due = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0)
            moment = due.timestamp()
            await stamp.configure(schedule_at=due).batch_defer_async(*({} for _ in range(jobs)))
            await asyncio.wait_for(done.wait(), 120.0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return {"lags": lags}


if __name__ == "__main__":
    raise SystemExit(serve({"throughput": throughput, "lag": lag, "ahead": ahead}))
