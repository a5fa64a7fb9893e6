"""`python -m bench.simulate`: how long a day of jobs takes to be rehearsed by `horae simulate`, and how much fits.

Hourly jobs without history, from midnight to midnight: once as they are, and once with the search for windows, which
rehearses the day a second time. The best of the rounds counts. `--json` prints figures for machines.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

from bench.timing import table
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron
from horae.logs import silenced
from horae.simulate.draws import DrawOptions
from horae.simulate.engine import SimulatedSpan
from horae.simulate.jobs import SimulatedJob, SimulatedJobs
from horae.simulate.simulate import play

START = datetime(2027, 3, 1, tzinfo=UTC)
SIZES = (100, 1000)
ROUNDS = 3
TARGET = 1000.0
"""Runs a second that a rehearsal of a day is to make, without suggestions."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with silenced():
        found = [measured(jobs, given.rounds) for jobs in SIZES]
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        rows = [
            [
                f"{each['jobs']:,} hourly jobs",
                f"{each['runs']:,}",
                f"{each['seconds']:.1f} s",
                f"{each['per_second']:,.0f}",
                f"{each['suggesting']:.1f} s",
            ]
            for each in found
        ]
        print(table(["a simulated day", "runs", "takes", "runs a second", "with suggestions"], rows))
    return 1 if any(each["per_second"] < TARGET for each in found) else 0


def measured(jobs: int, rounds: int) -> dict[str, Any]:
    parts = tuple(
        SimulatedJob(JobSpec(f"job-{number:04}", Cron(f"{number % 4 * 15} * * * *"), (TaskSpec("work", "shop.work"),)))
        for number in range(jobs)
    )
    span = SimulatedSpan(START, START + timedelta(days=1), 500)
    best = {False: float("inf"), True: float("inf")}
    runs = 0
    for _ in range(rounds):
        for suggest in best:
            begun = perf_counter()
            runs = play(SimulatedJobs(parts), span, DrawOptions(), suggest=suggest).started
            best[suggest] = min(best[suggest], perf_counter() - begun)
    return {
        "jobs": jobs,
        "runs": runs,
        "seconds": best[False],
        "per_second": runs / best[False],
        "suggesting": best[True],
    }


if __name__ == "__main__":
    raise SystemExit(main())
