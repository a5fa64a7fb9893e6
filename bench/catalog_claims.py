"""Fifty workers and twenty thousand due runs on PostgreSQL: claims a second, and how long one claim takes.

A claim is one `claim_runs`: a worker takes due runs. `create_due_runs`, which also decides what is due and creates it,
is shown beside it. Workers of one process share its connections, as many as a store has by default; the plain
statement that they are compared with has a connection for each. All workers know the definitions.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any
from uuid import uuid4

import psycopg
from tools.postgres import PostgresServer

from bench.catalog_common import (
    HANDLERS,
    Result,
    Scale,
    define_all,
    measured_postgres,
    minutely,
    opened,
    percentile,
    progress,
    shown,
    spread,
)
from bench.timing import table
from horae.core.job.definition import JobSpec
from horae.core.job.ids import job_uuid
from horae.store.catalog.catalog import Catalog
from horae.store.catalog.row_codec import milliseconds
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import Capacity
from horae.testing.clock import ManualClock

DUE = 20_000
CLAIM = 10
PROCESSES = (13, 13, 12, 12)
"""Workers of each process: fifty in all."""
MOST_MILLISECONDS = 100.0
LEAST_CLAIMS = 10_000
LEAST_SHARE = 0.6
MOST_SHARE = 1.1
"""Of the plain statement's: it made 16,000 to 20,000 claims a second at p99 61 to 89 ms where the targets were set."""
WAYS = ("raw", "claim_runs", "create_due_runs")

_RAW_CLAIM = b"""
WITH taken AS (
    SELECT run_no FROM sys.job_runs WHERE not_before <= %(now)s
    ORDER BY not_before, run_no LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE sys.job_runs r SET
    state = 'RUNNING', assigned_node_uuid = %(node)s::uuid, fence = r.fence + 1, started_at = %(now)s,
    resumed_at = %(now)s, not_before = NULL
FROM taken WHERE r.run_no = taken.run_no
RETURNING r.run_no
"""

_EMPTY = b"TRUNCATE sys.job_runs, sys.task_runs, sys.task_attempts, sys.audit"
_ASLEEP = b"UPDATE sys.jobs SET wake_at = NULL"
_AWAKE = b"UPDATE sys.jobs SET planned_until = %(now)s - 60000, wake_at = %(now)s"
_PENDING = b"""
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, scheduled_time, state, idempotency_key, version, chosen_time, not_before, requires,
    created_at
)
SELECT nextval('sys.run_numbers'), gen_random_uuid(), job_uuid, %(now)s, 'PENDING', 'schedule:' || %(now)s / 1000, 1,
    %(now)s, %(now)s, '["work"]', %(now)s
FROM sys.jobs
"""

Claimer = Callable[[], Coroutine[Any, Any, int]]
"""Claims once and says how many runs it got."""


async def claims(scale: Scale) -> Result:
    with measured_postgres() as server:
        url = server.create_database()
        async with opened("postgres", url) as measured:
            progress(f"claims: defining {DUE:,} jobs")
            await define_all(measured.store, _specs())
            measured.clock.advance("1m")
            at = measured.clock.now()
        fleet = _Fleet(url, at, scale.connections)
        try:
            found = _rounds(server, url, fleet, milliseconds(at), 2 if scale.quick else 5)
        finally:
            fleet.stop()
    return _report(found)


def _specs() -> list[JobSpec]:
    return [minutely(f"job-{number}", number) for number in range(DUE)]


def _report(found: dict[str, list[tuple[float, list[float]]]]) -> Result:
    rows, data = [], {}
    for way, rounds in found.items():
        rates = [DUE / seconds for seconds, _ in rounds]
        median = [percentile(each, 0.5) * 1000 for _, each in rounds]
        slowest = [percentile(each, 0.99) * 1000 for _, each in rounds]
        rows.append([way, shown(rates, "{:,.0f}"), shown(median, "{:.0f}"), shown(slowest, "{:.0f}")])
        data[way] = {"claims_per_second": spread(rates), "p50_ms": spread(median), "p99_ms": spread(slowest)}
    heading = [f"{sum(PROCESSES)} workers, {DUE:,} due runs, {CLAIM} a claim", "claims/s", "p50 ms", "p99 ms"]
    return Result(table(heading, rows), data, _short(data["claim_runs"], data["raw"]))


def _short(own: dict[str, dict[str, float]], raw: dict[str, dict[str, float]]) -> list[str]:
    """Missed is what the clock and the plain statement of the same run both say: a slow moment slows it as well."""
    rate, limit = (each["claims_per_second"]["median"] for each in (own, raw))
    late, latest = (each["p99_ms"]["median"] for each in (own, raw))
    short = []
    if rate < LEAST_CLAIMS and rate < LEAST_SHARE * limit:
        short.append(f"claims by dispatch: {rate:,.0f} a second, target {LEAST_CLAIMS:,}")
    if late >= MOST_MILLISECONDS and late > MOST_SHARE * latest:
        short.append(f"claims by dispatch: p99 {late:.0f} ms, target under {MOST_MILLISECONDS:.0f} ms")
    return short


def _rounds(
    server: PostgresServer, url: str, fleet: _Fleet, now: int, rounds: int
) -> dict[str, list[tuple[float, list[float]]]]:
    """Each way in turn, each time on tables made anew; the first round warms definitions up and is left out."""
    found: dict[str, list[tuple[float, list[float]]]] = {way: [] for way in WAYS}
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(rounds + 1):
            for way in WAYS:
                for text in (_EMPTY, _AWAKE) if way == "create_due_runs" else (_EMPTY, _ASLEEP, _PENDING):
                    connection.execute(text, {"now": now})
                connection.execute("VACUUM ANALYZE sys.jobs, sys.job_runs, sys.task_runs, sys.task_attempts")
                seconds, latencies = fleet.run(way)
                progress(f"claims by {way}: round {number} of {rounds}, {DUE / seconds:,.0f}/s")
                if number:
                    found[way].append((seconds, latencies))
    return found


class _Fleet:
    """The workers' processes. They live through all rounds, so that what they cache is cached."""

    def __init__(self, url: str, at: datetime, connections: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for workers in PROCESSES:
            ours, theirs = context.Pipe()
            process = context.Process(target=_process, args=(theirs, url, at, workers, connections), daemon=True)
            process.start()
            self._ends.append(ours)
            self._processes.append(process)
        for end in self._ends:
            end.recv()

    def run(self, way: str) -> tuple[float, list[float]]:
        """Seconds until everything was claimed, and how long each claim took that got something."""
        begun = perf_counter()
        for end in self._ends:
            end.send(way)
        answers = [end.recv() for end in self._ends]
        seconds = perf_counter() - begun
        claimed = sum(count for count, _ in answers)
        assert claimed == DUE, f"{way}: {claimed:,} claimed of {DUE:,}"
        return seconds, [each for _, latencies in answers for each in latencies]

    def stop(self) -> None:
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join(30)


def _process(end: Connection, url: str, at: datetime, workers: int, connections: int) -> None:
    asyncio.run(_serve(end, url, at, workers, connections))


async def _serve(end: Connection, url: str, at: datetime, workers: int, connections: int) -> None:
    store = Catalog(PostgresDriver(url, clock=ManualClock(at), connections=connections))
    await store.open()
    await _get_to_know(store)
    nodes = [uuid4() for _ in range(workers)]
    for node in nodes:
        await store.join(node)
    async with AsyncExitStack() as stack:
        own = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=1)
            )
            for _ in range(workers)
        ]
        now = milliseconds(at)
        ways: dict[str, list[Claimer]] = {
            "raw": [_raw_claimer(connection, str(node), now) for connection, node in zip(own, nodes, strict=True)],
            "claim_runs": [_claimer(store, str(node)) for node in nodes],
            "create_due_runs": [_planner(store, str(node)) for node in nodes],
        }
        end.send("ready")
        while (way := await asyncio.to_thread(end.recv)) is not None:
            answers = await asyncio.gather(*(_until_nothing(claim) for claim in ways[way]))
            end.send((sum(count for count, _ in answers), [each for _, taken in answers for each in taken]))
    await store.close()


async def _get_to_know(store: Catalog) -> None:
    """Reads every definition, as a node that has been at work for a while has."""
    wanted = [(str(job_uuid(spec.name)), 1) for spec in _specs()]
    async with store.driver.transaction(write=False) as transaction:
        await store._cache.load(transaction, wanted)  # noqa: SLF001 - nobody else has to ask for all of them


async def _until_nothing(claim: Claimer) -> tuple[int, list[float]]:
    total = 0
    latencies: list[float] = []
    while True:
        begun = perf_counter()
        count = await claim()
        if not count:
            return total, latencies
        latencies.append(perf_counter() - begun)
        total += count


def _raw_claimer(connection: psycopg.AsyncConnection[Any], node: str, now: int) -> Claimer:
    async def claim() -> int:
        cursor = await connection.execute(_RAW_CLAIM, {"now": now, "limit": CLAIM, "node": node})
        return len(await cursor.fetchall())

    return claim


def _claimer(store: Catalog, node: str) -> Claimer:
    capacity = Capacity(node, CLAIM, HANDLERS)

    async def claim() -> int:
        return len((await store.claim_runs(capacity)).claims)

    return claim


def _planner(store: Catalog, node: str) -> Claimer:
    capacity = Capacity(node, CLAIM, HANDLERS)

    async def claim() -> int:
        return len((await store.create_due_runs(CLAIM, capacity)).claims)

    return claim
