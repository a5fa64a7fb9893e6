"""The sample jobs of `horae demo --tour`: one that always works, one that needs a second try, one of several tasks."""

from __future__ import annotations

import asyncio

from horae.app.horae import Horae
from horae.core.interval import Every
from horae.core.policy import Retry
from horae.runners.run import Run


def sample_app(store: str) -> Horae:
    """An app with a few jobs that run every few seconds. What they print is kept with them and not shown."""
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
        # By the slot's own time, so that the same slot always ends the same way.
        if run.scheduled_time.timestamp() // 2 % 2:
            raise ValueError("row 17 has no date")

    @etl.task(failure="continue")
    def clean_up() -> None:
        print("temporary files removed")

    return app
