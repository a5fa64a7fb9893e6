"""The jobs of `bench.service`: as many as HORAE_BENCH_JOBS says, each of them every second."""

from __future__ import annotations

import os

from horae import Every, Horae

app = Horae(os.environ.get("HORAE_STORE", "sqlite:///bench.db"), max_concurrent_jobs=500)


async def work() -> None:
    """Nothing: what is measured is everything else."""


for number in range(int(os.environ.get("HORAE_BENCH_JOBS", "1000"))):
    app.job(f"job-{number:04}", Every("1s"), tags=("bench",))(work)
