"""A schedule of your own: any class with `next`, `previous` and `between`. The catalog keeps its import path.

    python examples/own_schedule.py [--runs 3]

It must be a pure function of time, as every schedule is: same question, same answer, in whole seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from horae import Horae, Run

SECOND = timedelta(seconds=1)
PRIMES = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59}


class PrimeSeconds:
    """Every second of a minute that is a prime number."""

    def next(self, after: datetime) -> datetime:
        at = after.replace(microsecond=0) + SECOND
        while at.second not in PRIMES:
            at += SECOND
        return at

    def previous(self, before: datetime) -> datetime:
        whole = before.replace(microsecond=0)
        at = whole if whole < before else whole - SECOND
        while at.second not in PRIMES:
            at -= SECOND
        return at

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        at = self.next(start)
        while at <= end:
            yield at
            at = self.next(at)


async def main(count: int) -> None:
    app = Horae("sqlite://")

    reports: asyncio.Queue[object] = asyncio.Queue()

    @app.job("prime", PrimeSeconds(), on_complete=reports.put)
    def prime(run: Run) -> None:
        print(f"{run.scheduled_time:%H:%M:%S} is a prime second")

    async with app:
        print((await app.get_job("prime")).definition.spec.schedule)
        for _ in range(count):
            await reports.get()


if __name__ == "__main__":
    # Imported under its own name, so that the path reads own_schedule:PrimeSeconds, which other programs can import.
    own = importlib.import_module("own_schedule")
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    asyncio.run(own.main(parser.parse_args().runs))
