"""The servers that the browser is put before: their jobs, and how a test has one do what it wants, when it wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from time import sleep, time
from typing import Any
from urllib.parse import quote

import httpx
from tests.web.serving import PATIENCE, Served, eventually, serving

from horae import Cron, Every, Horae, Retry, Run, Window

MANY = 60
"""Jobs of the list: more than two pages."""
HOURLY = Cron("0 * * * *", tz="Europe/Brussels")
RUNS = 60
"""Runs of the job `hourly`: more than one page of them, of all runs and of one job's."""
NEARLY = 60
"""Seconds before the full hour in which no test begins that counts the runs of `hourly`."""
PASSWORD = "correct horse"  # noqa: S105 - of users who live for one test
_numbers = count(1)


def some_jobs(app: Horae) -> None:
    """None comes due while a test looks, but for `hourly` at the full hour."""

    @app.job("hourly", HOURLY, tags=["often"], description="Every hour, to the minute")
    def hourly(run: Run) -> dict[str, int]:
        print("slot", run.scheduled_time.isoformat())
        return {"rows": 42}

    @app.job("nightly", Cron("30 2 * * *", tz="Europe/Brussels"), window=Window.after("2h"), payload={"pages": 3})
    def nightly() -> None: ...

    etl = app.job("etl", Cron("15 4 * * *"), mode="parallel", retry=Retry(1, "100ms"), depends_on=["nightly"])

    @etl.task
    def extract() -> int:
        print("extracted")
        return 1

    @etl.task
    def load(run: Run) -> int:
        print("try", run.attempt)
        if run.attempt == 1:
            raise ConnectionError("the warehouse hung up")
        return 2

    @app.job("paused", Every("1d"), tags=["quiet"])
    def paused() -> None: ...

    @app.task("quick")
    def quick(run: Run) -> dict[str, Any]:
        print("payload", run.payload)
        return {"payload": run.payload}

    @app.task("failing")
    def failing() -> None:
        print("about to fail")
        raise ValueError("no luck today")

    @app.task("patient")
    async def patient() -> None:
        print("waits to be stopped")
        await asyncio.Event().wait()

    @app.task("talking")
    async def talking(run: Run) -> str:
        """Prints what it is told to."""
        lines = _told.setdefault(run.job_name, asyncio.Queue())
        while (line := await lines.get()) is not None:
            print(line)
        return "said all"

    for number in range(MANY):

        @app.job(f"many-{number:02}", Every("30d"), tags=["many"])
        def one() -> None: ...


_told: dict[str, asyncio.Queue[str | None]] = {}


class Stage:
    """A server, and what tests do behind its back: as somebody else would, over the API, or by its store."""

    def __init__(self, served: Served, token: str | None = None) -> None:
        self.served = served
        self.kind = served.app.url.partition(":")[0]
        self.url = served.url
        self.token = token
        self.etl = ""
        """The run of `etl` that went well at the second try; others may have come after it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=f"{served.url}/api/v1", timeout=PATIENCE, headers=headers)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def job(self, work: str = "quick", *, name: str = "", every: str = "1d", **more: Any) -> str:
        """A job of the test's own, which does what a task of that name does; what it is called."""
        name = name or f"{work}-{next(_numbers)}"
        table = {"every": every, "python": work} | more
        self.ask("PUT", f"/jobs/{quote(name, safe='')}", {"definition": table})
        return name

    def state(self, job: str) -> str:
        return str(self.ask("GET", f"/jobs/{quote(job, safe='')}")["state"])

    def past_the_hour(self) -> None:
        """Where the hour is about to turn, waits until `hourly` has run for it: no further run comes while a test
        looks."""
        left = 3600 - time() % 3600
        if left < NEARLY:
            sleep(left)
        slot = HOURLY.previous(datetime.now(UTC) + timedelta(microseconds=1))
        eventually(lambda: self._has_run(self.runs("hourly")[0], slot))

    def _has_run(self, run: Any, slot: datetime | None) -> bool:
        return bool(datetime.fromisoformat(run["scheduled_time"]) == slot and run["state"] == "COMPLETED")

    def trigger(self, job: str, payload: Any = None) -> str:
        body = {} if payload is None else {"payload": payload}
        return str(self.ask("POST", f"/jobs/{quote(job, safe='')}/trigger", body)["run_id"])

    def run(self, run_id: str) -> Any:
        return self.ask("GET", f"/runs/{run_id}")

    def runs(self, job: str, *, limit: int = 50) -> list[Any]:
        return list(self.ask("GET", f"/jobs/{quote(job, safe='')}/runs?limit={limit}")["runs"])

    def ended(self, run_id: str) -> Any:
        """The run, once it has ended."""
        return eventually(lambda: (found := self.run(run_id)) and not found["is_active"] and found)

    def running(self, run_id: str) -> Any:
        """The run, once it is under way."""
        return eventually(lambda: (found := self.run(run_id))["run"]["state"] == "RUNNING" and found)

    def ran(self, job: str, payload: Any = None) -> str:
        """A run that has ended."""
        run_id = self.trigger(job, payload)
        self.ended(run_id)
        return run_id

    def say(self, job: str, *lines: str | None) -> None:
        """Has a run of `talking` print; None: has it end."""

        async def there() -> None:
            queue = _told.setdefault(job, asyncio.Queue())
            for line in lines:
                queue.put_nowait(line)

        self.served.do(there)

    def close(self) -> None:
        """Nobody waits for what a test that failed has left behind."""
        active = self.client.get("/runs?state=active")
        for run in active.json()["runs"] if active.is_success else ():
            self.client.post(f"/runs/{run['run_id']}/cancel", json={})
        self.client.close()


@contextmanager
def staged(url: str, *, define: Callable[[Horae], None] = some_jobs, **given: Any) -> Iterator[Stage]:
    """A server with jobs that have a past, to which everybody on this machine is the administrator."""
    with serving(url, define=define, **given) as served:
        stage = Stage(served)
        try:
            if define is some_jobs:
                _live_a_little(stage)
            yield stage
        finally:
            stage.close()


def _live_a_little(stage: Stage) -> None:
    stage.ask("POST", "/jobs/paused/pause", {"note": "until the move is over"})
    # Up to the hour that has just begun: today has a run at any time of the day.
    now = datetime.now(UTC)
    start = now - timedelta(hours=RUNS)
    stage.ask("POST", "/jobs/hourly/backfill", {"start": start.isoformat(), "end": now.isoformat()})
    stage.etl = stage.ran("etl")
    eventually(lambda: all(run["state"] == "COMPLETED" for run in stage.runs("hourly", limit=200)))


@contextmanager
def guarded(stage: Stage) -> Iterator[Stage]:
    """The same server, once people have to sign in: root is an administrator, ann has no rights at all."""
    served = stage.served
    served.user("root", password=PASSWORD, is_admin=True)
    served.user("ann", password=PASSWORD)
    inside = Stage(served, served.token("root"))
    inside.etl = stage.etl
    try:
        yield inside
    finally:
        inside.close()
