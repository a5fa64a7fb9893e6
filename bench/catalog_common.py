"""What the catalog's measurements share: stores to measure, jobs to put in, figures that survive a noisy machine."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any
from uuid import UUID, uuid4

from tools.postgres import PostgresServer, running_postgres

from horae import Cron
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.run.lifecycle import AttemptState
from horae.store.catalog.catalog import Catalog
from horae.store.postgres.driver import PostgresDriver
from horae.store.records import AttemptEnd, Claim, Settlement
from horae.store.sqlite.driver import SqliteDriver
from horae.testing.clock import ManualClock

HANDLER = "work"
HANDLERS = frozenset({HANDLER})
CRONS = (Cron("* * * * *"), Cron("*/1 * * * *"), Cron("0-59 * * * *"), Cron("* * * * *", tz="Europe/Berlin"))
DEFINE_BATCH = 5000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything: `--quick` is for looking whether something broke, the full run for figures to publish."""

    quick: bool
    connections: int = 4
    """Of each process that claims on PostgreSQL: what a store has unless told otherwise."""

    @property
    def jobs(self) -> int:
        return 2_000 if self.quick else 10_000

    @property
    def rounds(self) -> int:
        return 6 if self.quick else 10

    @property
    def many_jobs(self) -> int:
        return 100_000 if self.quick else 1_000_000

    @property
    def history(self) -> int:
        return 300_000 if self.quick else 3_000_000

    @property
    def definitions(self) -> int:
        return 10_000 if self.quick else 100_000


@dataclass(slots=True)
class Result:
    """One measurement: what is printed, what is kept as JSON, and what fell short of its target."""

    text: str
    data: dict[str, Any]
    short: list[str] = field(default_factory=list)


def progress(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median with its quartiles."""
    if len(values) < 2:
        return {"quartile_1": values[0], "median": values[0], "quartile_3": values[0]}
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return {"quartile_1": low, "median": middle, "quartile_3": high}


def shown(values: Sequence[float], form: str = "{:.2f}") -> str:
    """`0.74 (0.71 to 0.78)`: the median and the quartiles."""
    low, middle, high = spread(values).values()
    return f"{form.format(middle)} ({form.format(low)} to {form.format(high)})"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    begun = perf_counter()
    yield
    into.append(perf_counter() - begun)


def yardstick() -> dict[str, float]:
    """What this machine can do at this moment: milliseconds of a fixed loop, and of a fixed batch of inserts."""
    loops: list[float] = []
    inserts: list[float] = []
    for _ in range(5):
        with timed(loops):
            total = 0
            for number in range(1_000_000):
                total += number & 7
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c INTEGER)")
        with timed(inserts):
            connection.executemany("INSERT INTO t (b, c) VALUES (?, ?)", [(f"row {n}", n) for n in range(100_000)])
        connection.close()
    return {"loop_ms": median(loops) * 1000, "inserts_ms": median(inserts) * 1000}


@contextmanager
def measured_postgres() -> Iterator[PostgresServer]:
    """A server that writes everything down for good, as one in earnest does."""
    settings = {"fsync": "on", "full_page_writes": "on", "max_connections": "200"}
    with running_postgres(18, settings=settings) as server:
        yield server


@dataclass(slots=True)
class Measured:
    """An open store, its clock, and the node that works on it."""

    kind: str
    store: Catalog
    clock: ManualClock
    place: str
    node: UUID

    def driver(self) -> Any:
        return self.store.driver


@asynccontextmanager
async def opened(kind: str, place: str) -> AsyncIterator[Measured]:
    """A store on a file or a URL, with a clock that stands still, and a node that has joined."""
    clock = ManualClock()
    driver = SqliteDriver(place, clock=clock) if kind == "sqlite" else PostgresDriver(place, clock=clock, connections=2)
    store = Catalog(driver)
    await store.open()
    node = uuid4()
    try:
        await store.join(node)
        yield Measured(kind, store, clock, place, node)
    finally:
        await store.close()


def place_for(kind: str, folder: Path, server: PostgresServer, name: str) -> str:
    return str(folder / f"{name}.db") if kind == "sqlite" else server.create_database()


def minutely(name: str, number: int) -> JobSpec:
    """A job of one task, due every minute; a few expressions say so in different ways."""
    return JobSpec(name, CRONS[number % len(CRONS)], tasks=(TaskSpec("task", handler=HANDLER),))


async def define_all(store: Catalog, specs: Sequence[JobSpec]) -> float:
    """Seconds to define them in batches."""
    begun = perf_counter()
    for first in range(0, len(specs), DEFINE_BATCH):
        await store.define(specs[first : first + DEFINE_BATCH])
    return perf_counter() - begun


def successes(claims: Sequence[Claim]) -> list[Settlement]:
    """What an engine has to say when the one task of each run succeeded."""
    return [
        Settlement(claim.run_id, claim.run_no, claim.fence, (AttemptEnd(0, 1, AttemptState.SUCCESS),))
        for claim in claims
    ]
