"""The declarative scheduler: tasks as data, run by POSIX cron; what it does is told event by event.

    python examples/declarative.py [--seconds 3]

A task that matches the very minute the scheduler begins in runs at once, so there is something to see.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta

from horae.declarative import Scheduler, SchedulerEvent, read_state

runs = 0


async def report() -> None:
    print("report written")


async def sync_mails() -> None:
    global runs
    runs += 1
    if runs == 1:
        raise ConnectionError("no answer")
    print("mails fetched")


def told(event: SchedulerEvent) -> None:
    print(f"{event.name:34} {getattr(event, 'task', '')}")


REGISTRATIONS = [
    ("report", "* * * * *", report, timedelta(minutes=5)),
    ("sync mails", "* * * * *", sync_mails, timedelta(seconds=1)),
    ("yearly", "0 0 1 1 *", report, timedelta(hours=1)),
]


async def main(seconds: float) -> None:
    scheduler = Scheduler("sqlite://", listener=told)
    await scheduler.initialize(REGISTRATIONS)
    await asyncio.sleep(seconds)
    for name, task in (await read_state(scheduler)).items():
        print(f"{name}: {task.state}, last success {'yes' if task.lastSuccessAt else 'never'}")
    await scheduler.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    asyncio.run(main(parser.parse_args().seconds))
