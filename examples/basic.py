"""The day-one program: two jobs, run for some seconds, then what happened, from the catalog.

    python examples/basic.py [--seconds 4]

A program that is to go on for ever ends with `app.run()` instead of the last lines.
"""

from __future__ import annotations

import argparse
import asyncio

from horae import Cron, Every, Horae, Retry, Run

app = Horae("sqlite://")  # in memory, for trying things; sqlite:///horae.db is a file and survives the program


@app.job("heartbeat", Every("1s"))
def heartbeat(run: Run) -> None:
    print(f"heartbeat for {run.scheduled_time:%H:%M:%S}")


@app.job("nightly-report", Cron("0 2 * * *", tz="Europe/Brussels"), retry=Retry(3, "30s"))
async def nightly_report(run: Run) -> dict[str, int]:
    run.log.info("report for %s", run.scheduled_time)
    return {"pages": 12}


async def main(seconds: float) -> None:
    async with app:
        print("nightly-report comes next at", await app.next_run("nightly-report"))
        await app.trigger("nightly-report")  # and one now, beside the schedule
        await asyncio.sleep(seconds)
        for run in reversed(await app.runs()):
            print(f"{run.scheduled_time:%H:%M:%S}  {run.job_name:15}  {run.origin:8}  {run.state}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    asyncio.run(main(parser.parse_args().seconds))
