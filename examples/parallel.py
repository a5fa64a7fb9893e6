"""A job of several tasks side by side: one is tried again, one fails for good, and cleaning up happens all the same.

python examples/parallel.py
"""

from __future__ import annotations

import asyncio

from horae import Every, Horae, Retry, Run

app = Horae("sqlite://")
etl = app.job("etl", Every("1h"), mode="parallel", failure="fail_fast")


@etl.task(retry=Retry(2, "1s"))
async def extract(run: Run) -> dict[str, int]:
    if run.attempt == 1:
        raise ConnectionError("the source did not answer")  # the second attempt, a second later, gets through
    return {"rows": 42}


@etl.task
async def validate(run: Run) -> None:
    await asyncio.sleep(1.5)
    raise ValueError("row 17 has no date")  # fails the run: whatever still works is cancelled


@etl.task
async def load(run: Run) -> None:
    await asyncio.sleep(60)  # cancelled when validate fails


@etl.task(failure="continue", retry=Retry(10, "1m", factor=2.0))
def cleanup() -> None:
    """Neither cancelled nor skipped because of another task."""
    print("cleaned up")


async def main() -> None:
    reports: asyncio.Queue[object] = asyncio.Queue()
    app.on_complete(reports.put)
    async with app:
        await app.trigger("etl")
        print(await reports.get())


if __name__ == "__main__":
    asyncio.run(main())
