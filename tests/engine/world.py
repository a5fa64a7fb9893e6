"""What the engine's tests share: an app on a store in memory, simulated time, and short ways to read what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from horae import Horae
from horae.core.report.report import RunReport, TaskRow
from horae.core.time.duration import parse_duration
from horae.engine.engine import Engine
from horae.store.protocols.store import RunRecord
from horae.testing.simulation import Simulation, Started

Answer = TypeVar("Answer")
START = datetime(2026, 1, 1, tzinfo=UTC)


def simulate(app: Horae, body: Callable[[Simulation], Awaitable[Answer]], **options: Any) -> Answer:
    """What `body` answers, with `app` under way on simulated time."""

    async def main() -> Answer:
        async with Simulation(app, **options) as sim:
            return await body(sim)

    return asyncio.run(main())


def after(duration: str) -> datetime:
    """The moment `duration` after the simulation's start."""
    return START + parse_duration(duration)


def offsets(starts: Iterable[Started], job: str | None = None, task: str | None = None) -> list[str]:
    """When things started, counted from the simulation's start: 1:30:00."""
    return [
        str(each.time - START)
        for each in starts
        if (job is None or each.job == job) and (task is None or each.task == task)
    ]


def clock(moment: datetime | None) -> str | None:
    """A moment as it is counted from the simulation's start."""
    return None if moment is None else str(moment - START)


async def oldest_first(app: Horae, job: str | None = None, limit: int = 1000) -> list[RunRecord]:
    """By slot; of those with the same slot the one born first."""
    runs = (await app.runs(job=job, limit=limit))[::-1]
    return sorted(runs, key=lambda run: (run.scheduled_time, run.created_at))


async def states(app: Horae, job: str | None = None) -> list[str]:
    """The states of a job's runs with their reasons, by slot: COMPLETED, SKIPPED (overlap)."""
    return [shown(run) for run in await oldest_first(app, job)]


def shown(run: RunRecord) -> str:
    """With the reason, where it says more than the error does."""
    is_error = run.reason is None or (run.error or "").startswith(run.reason.removesuffix("…"))
    return str(run.state) if is_error else f"{run.state} ({run.reason})"


async def only_run(app: Horae, job: str | None = None) -> RunRecord:
    (run,) = await app.runs(job=job)
    return run


async def reports(app: Horae, job: str | None = None) -> list[RunReport]:
    return [await app.report(run.run_id) for run in await oldest_first(app, job)]


async def only_report(app: Horae, job: str | None = None) -> RunReport:
    return await app.report((await only_run(app, job)).run_id)


def tasks(report: RunReport) -> dict[str, str]:
    return {task.name: str(task.state) for task in report.tasks}


def attempts(task: TaskRow) -> list[tuple[str, str | None]]:
    """Each try of a task: its state, and when it began."""
    return [(str(each.state), clock(each.started_at)) for each in task.attempts]


HOUR = timedelta(hours=1)


GUARD = 60.0
"""Real seconds after which something never happens, however slow the machine is."""


async def ended(app: Horae, run_id: str) -> RunReport:
    """The report of a run in an app on real time, once it has ended."""
    async with asyncio.timeout(GUARD):
        while (report := await app.report(run_id)).run.completed_at is None:
            await asyncio.sleep(0.005)
    return report


@asynccontextmanager
async def running(app: Horae) -> AsyncIterator[Engine]:
    """The engine of an app that runs on real time, as long as the block lasts."""
    engine = await app.open()
    try:
        yield engine
    finally:
        await app.shut()


def expire(engine: Engine) -> None:
    """Lets the time of all that is under way be over, as if its timeout had passed. What starts later has all of its
    own: a limit in real time would also cut the attempt that a test wants to succeed."""
    for run in engine.ledger.runs.values():
        if run.expires is not None:
            run.expires = 0.0
        for attempt in run.attempts.values():
            if attempt.expires is not None:
                attempt.expires = 0.0
    engine.runner.expire_due()


async def until(condition: Callable[[], bool]) -> None:
    """On real time, until something is so that other tasks or threads of this process bring about."""
    async with asyncio.timeout(GUARD):
        while not condition():
            await asyncio.sleep(0.005)
