"""Simulated time: occurrences a second through the real engine and a real store in memory."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from bench.catalog_common import Result, progress
from bench.engine_child import ask, serve
from bench.engine_common import EngineScale
from bench.timing import table
from horae import Cron, Horae
from horae.testing.simulation import Simulation

TARGET = 5000.0
LOADS = {"500 hourly jobs": (500, "0 * * * *", 24), "one job, every minute": (1, "* * * * *", 24)}
JUDGED = "500 hourly jobs"
ITSELF = "bench.engine_simulation"


async def simulation(scale: EngineScale) -> Result:
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    short: list[str] = []
    for name, (jobs, cron, hours) in LOADS.items():
        for form in ("async", "sync"):
            progress(f"simulation: {name}, {form}")
            found = [
                ask(ITSELF, "simulated", jobs=jobs, cron=cron, hours=hours, form=form) for _ in range(2 * scale.turns)
            ]
            best = max(each["per_second"] for each in found)
            data[f"{name} {form}"] = best
            rows.append([f"{name}, {form} task", f"{found[0]['occurrences']:,}", f"{best:,.0f}"])
            if name == JUDGED and form == "async" and best < TARGET:
                short.append(f"simulation of {name}: {best:,.0f} occurrences a second, target {TARGET:,.0f}")
    heading = ["a simulated day", "occurrences", "a second"]
    return Result(table(heading, rows), data, short)


async def simulated(jobs: int, cron: str, hours: int, form: str) -> dict[str, Any]:
    app = Horae("sqlite://", max_concurrent_jobs=500)

    async def in_the_loop() -> None:
        pass

    def in_a_thread() -> None:
        pass

    for number in range(jobs):
        app.job(f"job-{number}", Cron(cron))(in_the_loop if form == "async" else in_a_thread)
    async with Simulation(app) as sim:
        await sim.advance(f"{hours}h")
        begun = perf_counter()
        starts = await sim.advance(f"{hours}h")
        seconds = perf_counter() - begun
    return {"occurrences": len(starts), "per_second": len(starts) / seconds}


if __name__ == "__main__":
    raise SystemExit(serve({"simulated": simulated}))
