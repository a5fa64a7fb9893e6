"""APScheduler 3.11 as a contender of `bench.engine`: BackgroundScheduler, SQLAlchemyJobStore, ten threads.

Its settings are its defaults, but `misfire_grace_time=None` and a queue of events of ours: nothing may be left out. It
keeps no history; what limits it is one UPDATE and one commit for each run, in the one thread that also waits for time.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from bench.engine_child import serve

PATIENCE = 300.0
_lags: list[float] = []
_moment = 0.0


def nothing() -> None:
    """The job."""


def stamp() -> None:
    _lags.append(time.time() - _moment)


class Counter:
    """Counts executions; `last` is when the last one that was waited for had ended."""

    def __init__(self, scheduler: Any) -> None:
        self.left = 0
        self.last = 0.0
        self._all = threading.Event()
        scheduler.add_listener(self._count, EVENT_JOB_EXECUTED)

    def expect(self, count: int) -> None:
        self.left = count
        self._all.clear()

    def _count(self, event: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.last = time.time()
            self._all.set()

    def wait(self) -> None:
        if not self._all.wait(PATIENCE):
            raise RuntimeError(f"{self.left} runs had not ended")


def _scheduler(url: str) -> Any:
    url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    store = SQLAlchemyJobStore(url=url)
    return BackgroundScheduler(jobstores={"default": store}, timezone="UTC", job_defaults={"misfire_grace_time": None})


async def throughput(url: str, jobs: int) -> dict[str, Any]:
    """Runs a second of interval jobs that are all due when the scheduler is let go."""
    scheduler = _scheduler(url)
    counter = Counter(scheduler)
    scheduler.start(paused=True)
    due = datetime.now(UTC)
    for number in range(jobs):
        scheduler.add_job(
            "bench.engine_apscheduler3:nothing", "interval", hours=10, id=f"job-{number}", next_run_time=due
        )
    counter.expect(jobs)
    begun = time.time()
    scheduler.resume()
    counter.wait()
    scheduler.shutdown()
    return {"per_second": jobs / (counter.last - begun)}


async def lag(url: str, jobs: int, rounds: int, period: int) -> dict[str, Any]:
    """Start lags of jobs that are due in the same second, again and again."""
    global _moment
    scheduler = _scheduler(url)
    counter = Counter(scheduler)
    scheduler.start(paused=True)
    first = (datetime.now(UTC) + timedelta(seconds=4 + jobs * 0.03)).replace(microsecond=0)
    for number in range(jobs):
        scheduler.add_job(
            "bench.engine_apscheduler3:stamp", "interval", seconds=period, start_date=first, id=f"job-{number}"
        )
    scheduler.resume()
    for turn in range(rounds + 1):
        _moment = first.timestamp() + period * turn
        counter.expect(jobs)
        counter.wait()
        if not turn:
            _lags.clear()
    scheduler.shutdown()
    return {"lags": _lags}


if __name__ == "__main__":
    # The job store imports jobs by name, so the module that runs has to be the one of that name.
    from bench import engine_apscheduler3 as itself

    raise SystemExit(serve({"throughput": itself.throughput, "lag": itself.lag}))
