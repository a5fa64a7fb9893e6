"""Thousands of jobs made at run time, as a web application's handlers would: each request schedules a reminder.

    python examples/web_reminders.py [--count 2000]

Requests that come in together are written together, so that a thousand a second cost little.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta

from horae import Horae, Once, Run

app = Horae("sqlite://")
reminded: list[int] = []


@app.task("remind")  # a handler without a schedule of its own
async def remind(run: Run) -> None:
    reminded.append(run.payload["user"])


async def handle_request(user: int, at: datetime) -> dict[str, object]:
    """What a handler of Starlette, FastAPI, aiohttp or Quart would do."""
    defined = await app.schedule(
        f"remind-{user}", Once(at), task="remind", payload={"user": user}, on_completion="drop"
    )
    return {"job": defined.name, "at": at.isoformat()}


async def main(count: int) -> None:
    async with app:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        begun = time.perf_counter()
        answers = await asyncio.gather(*(handle_request(user, soon) for user in range(count)))
        took = time.perf_counter() - begun
        print(
            f"{len(answers)} reminders scheduled in {took:.2f} s, {count / took:.0f} a second; the first: {answers[0]}"
        )
        while len(reminded) < count:
            await asyncio.sleep(0.05)
        late = (datetime.now(UTC) - soon).total_seconds()
        print(f"{len(reminded)} reminded, {len(set(reminded))} different, the last {late:.2f} s after its time")
        while await app.jobs():  # each drops its own definition when it has run: on_completion="drop"
            await asyncio.sleep(0.05)
        print(f"jobs left: {len(await app.jobs())}, runs kept: {len(await app.runs(limit=count * 2))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    asyncio.run(main(parser.parse_args().count))
