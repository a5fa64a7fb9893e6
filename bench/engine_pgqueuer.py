"""PgQueuer 1.6 as a contender of `bench.engine`: a queue in PostgreSQL, without schedules' history.

asyncpg, batches of 500; the rest are its defaults. A job that has ended leaves one line in a log that is folded into
counts, no row of its own: less is written for each run than a scheduler with history has to write.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.types import QueueExecutionMode

from bench.engine_child import serve

BATCH = 500


async def throughput(url: str, jobs: int) -> dict[str, Any]:
    """Runs a second of jobs that were put in the queue before it began."""
    connection: Any = await asyncpg.connect(url)
    queue = PgQueuer(AsyncpgDriver(connection))
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    last = 0.0

    async def nothing(job: Any) -> None:
        nonlocal last
        last = time.time()

    queue.entrypoint("nothing")(nothing)
    await queries.enqueue(["nothing"] * jobs, [None] * jobs, [0] * jobs)
    begun = time.time()
    await queue.qm.run(mode=QueueExecutionMode.drain, batch_size=BATCH)
    # When it returns, what ended is written; the job itself ends a little before.
    seconds = time.time() - begun
    await connection.close()
    return {"per_second": jobs / seconds, "until_started": jobs / (last - begun)}


async def lag(url: str, jobs: int, rounds: int, period: int) -> dict[str, Any]:
    """Start lags of its own schedules, all due at the same seconds."""
    connection: Any = await asyncpg.connect(url)
    queue = PgQueuer(AsyncpgDriver(connection))
    await Queries(AsyncpgDriver(connection)).install()
    lags: list[float] = []
    done = asyncio.Event()

    async def stamp(schedule: Any) -> None:
        # The latest slot: a lag longer than the period would look shorter than it is.
        lags.append(time.time() % period)
        if len(lags) == jobs * rounds:
            done.set()

    for number in range(jobs):
        queue.sm.schedule(f"stamp-{number}", f"* * * * * */{period}")(stamp)
    running = asyncio.create_task(queue.sm.run())
    await asyncio.wait_for(done.wait(), 600.0)
    queue.sm.shutdown.set()
    await running
    await connection.close()
    return {"lags": lags[: jobs * rounds]}


async def ahead(url: str, jobs: int, rounds: int, period: int) -> dict[str, Any]:
    """Start lags of jobs put in the queue beforehand, to be executed after one moment."""
    connection: Any = await asyncpg.connect(url)
    queue = PgQueuer(AsyncpgDriver(connection))
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    lags: list[float] = []
    moment = 0.0
    done = asyncio.Event()

    async def stamp(job: Any) -> None:
        lags.append(time.time() - moment)
        if len(lags) % jobs == 0:
            done.set()

    queue.entrypoint("stamp")(stamp)
    running = asyncio.create_task(queue.qm.run(batch_size=jobs))
    await asyncio.sleep(1.0)
    other: Any = await asyncpg.connect(url)
    enqueuing = Queries(AsyncpgDriver(other))
    for _ in range(rounds):
        done.clear()
        due = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0)
        moment = due.timestamp()
        wait = due - datetime.now(UTC)
        await enqueuing.enqueue(["stamp"] * jobs, [None] * jobs, [0] * jobs, [wait] * jobs)
        await asyncio.wait_for(done.wait(), 120.0)
    queue.qm.shutdown.set()
    await running
    await other.close()
    await connection.close()
    return {"lags": lags}


if __name__ == "__main__":
    raise SystemExit(serve({"throughput": throughput, "lag": lag, "ahead": ahead}))
