"""A declarative scheduler on simulated time: callbacks that remember when they were called, and short ways to ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from horae.core.time.duration import DurationLike, parse_duration
from horae.declarative import Registration, Scheduler, SchedulerEvent, TaskEvent, TaskState, read_state
from horae.testing import Faults, Simulation

Answer = TypeVar("Answer")
START = "2026-01-01 10:00:30"
"""Half a minute into a Thursday's tenth hour."""
ALWAYS = 1_000_000


class Failure(Exception):
    """What callbacks that are told to fail raise."""


class Stage:
    """One scheduler and everything that was heard of it. `sim` is there once `play` has begun."""

    sim: Simulation

    def __init__(self, store: str, tz: str | None) -> None:
        self.heard: list[SchedulerEvent] = []
        self.calls: list[tuple[str, datetime]] = []
        self.running: Counter[str] = Counter()
        self.together: Counter[str] = Counter()
        """The most calls of each task that were under way at once; under "" those of all tasks."""
        self.failures: dict[str, int] = {}
        """How many of a task's coming calls fail."""
        self.scheduler = Scheduler(store, tz=tz, listener=self.heard.append)

    def task(
        self, name: str, cron: str, delay: DurationLike = 0, *, lasts: DurationLike = 0, fails: int = 0
    ) -> Registration:
        """A registration whose callback takes as long as `lasts`; the first `fails` of its calls end in an error."""
        seconds = parse_duration(lasts).total_seconds()
        self.failures.setdefault(name, fails)

        async def callback() -> None:
            self.calls.append((name, self.sim.now))
            self.running[name] += 1
            self.together[name] = max(self.together[name], self.running[name])
            self.together[""] = max(self.together[""], self.running.total())
            try:
                if seconds:
                    await asyncio.sleep(seconds)
                if self.failures[name] > 0:
                    self.failures[name] -= 1
                    raise Failure(name)
            finally:
                self.running[name] -= 1

        return (name, cron, callback, parse_duration(delay))

    async def initialize(self, *registrations: Registration) -> None:
        """Begins, and has done what is due at once."""
        await self.scheduler.initialize(list(registrations))
        await self.sim.advance(0)

    async def restart(self, *registrations: Registration, down: DurationLike = 0) -> None:
        """Stopped now, and begun again after `down`."""
        await self.scheduler.stop()
        await self.sim.advance(down)
        await self.initialize(*registrations)

    async def state(self, task: str) -> TaskState:
        return (await read_state(self.scheduler))[task]

    def moments(self, task: str) -> list[datetime]:
        return [time for name, time in self.calls if name == task]

    def times(self, task: str) -> list[str]:
        """When a task was called: 10:05:00."""
        return [clock(time) for time in self.moments(task)]

    def told(self, *, since: int = 0, task: str | None = None) -> list[str]:
        """The events from number `since` on, or those of one task: 10:05:00 TaskRunStarted a."""
        heard = [each for each in self.heard[since:] if task is None or getattr(each, "task", None) == task]
        return [
            f"{clock(each.at)} {each.name}{f' {each.task}' if isinstance(each, TaskEvent) else ''}" for each in heard
        ]

    def names(self, *, since: int = 0) -> list[str]:
        """The names of the events that are about no single task."""
        return [each.name for each in self.heard[since:] if not isinstance(each, TaskEvent)]


def standings(stage: Stage) -> dict[str, str]:
    """What every task was to the catalog when its scheduler began."""
    return {each.job_name.removeprefix("declarative:"): str(each.standing) for each in stage.scheduler.app.standings}


def clock(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S")


def at(text: str, zone: str = "UTC") -> datetime:
    """2026-01-01 10:00:30 on a zone's clocks; of a minute that comes twice the first."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def local(moments: list[datetime], zone: str) -> list[str]:
    """Moments as a zone's clocks and its offset show them: 25 02:30 +0200."""
    return [moment.astimezone(ZoneInfo(zone)).strftime("%d %H:%M %z") for moment in moments]


def play(
    body: Callable[[Stage], Awaitable[Answer]],
    start: str | datetime = START,
    *,
    tz: str | None = "UTC",
    store: str = "sqlite://",
    faults: Faults | None = None,
    settings: dict[str, Any] | None = None,
) -> Answer:
    """What `body` answers, with a scheduler that has not been initialized yet on simulated time."""
    stage = Stage(store, tz)

    async def main() -> Answer:
        begin = at(start) if isinstance(start, str) else start
        async with Simulation(stage.scheduler, start=begin, faults=faults, settings=settings) as stage.sim:
            return await body(stage)

    return asyncio.run(main())
