"""A soak: one engine under a steady load for as long as it is told, its memory and the cost of its claims sampled.

    python -m tests.torture.engine_soak --minutes 30 [--store URL] [--rate 200]

Prints a line every half minute and a verdict: flat, or not. The catalog keeps the whole history, so that a cost that
grows with it would show.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from horae import Every, Horae, Run
from horae.store.protocols.store import Store

SAMPLE_EVERY = 30.0
WARM_UP = 0.4
"""The part at the beginning that is not judged: SQLite fills its page cache (64 MiB), which takes some minutes."""
MEMORY_MAY_GROW = 1.10
COST_MAY_GROW = 1.5
RUNS_MAY_SHRINK = 0.95
VERBS = ("create_due_runs", "claim_runs", "settle")


@dataclass
class Sample:
    """What one stretch showed: resident memory in MiB and how much of it is SQLite's own, runs ended, median and 99th
    percentile of each verb in ms."""

    at: float
    memory: float
    pages: float
    runs: int
    cost: dict[str, tuple[float, float]] = field(default_factory=dict)

    def line(self) -> str:
        verbs = " ".join(f"{median:8.2f} {high:8.2f}" for median, high in self.cost.values())
        return f"{self.at / 60:7.1f} {self.memory:8.1f} {self.pages:8.1f} {self.runs:8d} {verbs}"


class Meter:
    """Times every call of the verbs that work goes through."""

    def __init__(self, store: Store) -> None:
        self._taken: dict[str, list[float]] = {verb: [] for verb in VERBS}
        for verb in VERBS:
            setattr(store, verb, self._timed(verb, getattr(store, verb)))

    def _timed(self, verb: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def timed(*arguments: Any, **keywords: Any) -> Any:
            began = time.perf_counter()
            try:
                return await call(*arguments, **keywords)
            finally:
                self._taken[verb].append((time.perf_counter() - began) * 1000)

        return timed

    def take(self) -> dict[str, tuple[float, float]]:
        """The costs since the last time, forgotten with that."""
        taken, self._taken = self._taken, {verb: [] for verb in VERBS}
        return {verb: _costs(values) for verb, values in taken.items()}


def _costs(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    return statistics.median(values), statistics.quantiles(values, n=100)[98]


def memory() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def soak(url: str, minutes: float, rate: int, every: float = SAMPLE_EVERY) -> list[Sample]:
    """Runs `rate` jobs a second for that long: nine in ten in the loop, every tenth in a thread."""
    app = Horae(url, max_concurrent_jobs=100, settings={"tee": False})
    ended = [0]

    async def in_loop(run: Run) -> int:
        ended[0] += 1
        return ended[0]

    def in_thread(run: Run) -> None:
        run.log.info("one line of output")
        ended[0] += 1

    for index in range(rate):
        app.job(f"soak-{index:04d}", Every("1s"))(in_thread if index % 10 == 0 else in_loop)
    app.home.settle_here()
    meter = Meter(await app.home.store())
    samples: list[Sample] = []
    titles = "".join(f" {verb.partition('_')[0]:>8} {'p99':>8}" for verb in VERBS)
    print(f"{'minutes':>7} {'MiB':>8} {'SQLite':>8} {'runs':>8}{titles}", flush=True)
    async with app:
        began = time.monotonic()
        while (left := began + minutes * 60 - time.monotonic()) > 1:
            before = ended[0]
            await asyncio.sleep(min(every, left))
            at, pages = time.monotonic() - began, apsw.memory_used() / 2**20
            samples.append(Sample(at, memory(), pages, ended[0] - before, meter.take()))
            print(samples[-1].line(), flush=True)
    return samples


def verdict(samples: list[Sample]) -> list[str]:
    """What is not flat: the last third against the first third after the warm-up, by their medians."""
    judged = samples[round(len(samples) * WARM_UP) :]
    if len(judged) < 6:
        return ["too short to tell"]
    third = len(judged) // 3
    early, late = judged[:third], judged[-third:]
    found = []

    def compare(what: str, of: Callable[[Sample], float], may_grow: float) -> None:
        first, last = statistics.median(map(of, early)), statistics.median(map(of, late))
        if last > first * may_grow:
            found.append(f"{what} grew from {first:.2f} to {last:.2f}")

    compare("memory", lambda each: each.memory, MEMORY_MAY_GROW)
    for verb in VERBS:
        compare(f"the cost of {verb}", lambda each, verb=verb: each.cost[verb][0], COST_MAY_GROW)  # type: ignore[misc]  # mypy: bound
    compare("what is left undone", lambda each: -each.runs, RUNS_MAY_SHRINK)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs one engine under a steady load and says whether it stays flat.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--store", help="a store's URL; a new SQLite file unless given")
    parser.add_argument("--rate", type=int, default=200, help="runs a second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="horae-soak-") as folder:
        url = given.store or f"sqlite:///{folder}/horae.db"
        every = min(SAMPLE_EVERY, given.minutes * 60 / 10)
        samples = asyncio.run(soak(url, given.minutes, given.rate, every))
    found = verdict(samples)
    total = sum(each.runs for each in samples)
    print(f"{total} runs, {samples[-1].memory:.1f} MiB at the end: {'; '.join(found) or 'flat'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
