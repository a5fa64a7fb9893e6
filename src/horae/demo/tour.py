"""The sample jobs of `horae demo --tour`: one always works, one needs a second attempt, one has several tasks."""

from __future__ import annotations

import asyncio

from horae.app.horae import Horae
from horae.core.job.policies import Retry
from horae.core.schedule.interval import Every
from horae.executors.run import Run


def sample_app(store: str) -> Horae:
    """An app with a few jobs that run every few seconds. The output of tasks is kept with their attempts and not
    printed."""
    app = Horae(store, settings={"tee": False}, grace_period="5s")

    @app.job("heartbeat", Every("1s"), description="Works, every second")
    def heartbeat() -> None:
        print("still here")

    @app.job("fetch-prices", Every("3s"), retry=Retry(2, "1s"), description="Fails at first, and is tried again")
    def fetch_prices(run: Run) -> dict[str, int]:
        if run.attempt == 1:
            raise ConnectionError("the exchange did not answer")
        return {"prices": 240}

    etl = app.job("etl", Every("2s"), mode="parallel", description="Three tasks; in every second run one fails")

    @etl.task
    async def load(run: Run) -> dict[str, int]:
        print("loading")
        await asyncio.sleep(0.5)
        return {"rows": 42}

    @etl.task
    async def check(run: Run) -> None:
        print("checking the dates")
        await asyncio.sleep(0.2)
        # By the scheduled time, so that the same run always ends the same way.
        if run.scheduled_time.timestamp() // 2 % 2:
            raise ValueError("row 17 has no date")

    @etl.task(failure="continue")
    def clean_up() -> None:
        print("temporary files removed")

    return app
