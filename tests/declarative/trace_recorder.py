"""Random lives of a scheduler on simulated time, and the traces they leave.

Everything in a life follows from its number: the zone, the start (often shortly before its clocks are changed), the
tasks with their expressions, delays and behaviour, and what is done to the scheduler.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pytest
from tests.declarative.trace import Event, Kind, Registered, Trace, zone_of
from tests.declarative.trace_draws import drawn_delay, drawn_expression, drawn_pace, drawn_work

from horae.declarative import (
    Scheduler,
    SchedulerError,
    SchedulerEvent,
    SchedulerInitializationCompleted,
    SchedulerState,
)
from horae.testing import Simulation
from horae.testing.faults import Faults

ZONES = (
    "UTC",
    "Europe/Brussels",
    "Europe/Brussels",
    "America/New_York",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/St_Johns",
    "Pacific/Chatham",
    "Africa/Casablanca",
    "Antarctica/Troll",
)
MOST_STARTS = 220
"""A life that has seen as many comes to its end."""
LONGEST = timedelta(days=60)
NAMES = tuple("abcdefgh")


@cache
def clock_changes(zone: str, year: int) -> tuple[datetime, ...]:
    """When the clocks of a zone were changed, to the quarter of an hour."""
    begin, local = datetime(year, 1, 1, tzinfo=UTC), zone_of(zone)
    times = [begin + timedelta(minutes=15 * index) for index in range(365 * 96)]
    offsets = [at.astimezone(local).utcoffset() for at in times]
    return tuple(times[index] for index in range(1, len(times)) if offsets[index] != offsets[index - 1])


class TaskFailed(Exception):
    """What a callback raises that is to fail."""


class Life:
    """One life, from nothing to its end. `number` decides everything."""

    def __init__(self, number: int, store: str = "sqlite://") -> None:
        self._random = Random(f"life {number}")
        self.zone = self._random.choice(ZONES)
        self._pace = drawn_pace(self._random)
        self._start = self._drawn_start()
        self._events: list[Event] = []
        self._starts = 0
        self._work: dict[str, Random] = {name: Random(f"life {number} {name}") for name in NAMES}
        self._fails: dict[str, float] = {}
        self._kept: dict[str, Registered] = {}
        """Everything that was ever registered, as it was last."""
        self._now: dict[str, Registered] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._scheduler = Scheduler(store, tz=self.zone, listener=self._told)
        self._shaky = self._random.random() < 0.2
        """Its store fails now and then."""
        faults = Faults(lost=0.05, unknown=0.05, conflict=0.05) if self._shaky else None
        self._simulation = Simulation(self._scheduler, self._start, seed=number, faults=faults)

    def _drawn_start(self) -> datetime:
        random = self._random
        year = random.choice((2025, 2026, 2027))
        changes = clock_changes(self.zone, year)
        if changes and random.random() < 0.7:
            before = random.uniform(0, self._pace.longest.total_seconds() * 2)
            start = random.choice(changes) - timedelta(seconds=before)
        else:
            start = datetime(year, 1, 1, tzinfo=UTC) + timedelta(seconds=random.uniform(0, 365 * 86_400))
        start = start.replace(microsecond=0)
        kind = random.random()
        if kind < 0.3:
            return start.replace(second=0)
        return start.replace(microsecond=random.randrange(1000) * 1000) if kind < 0.5 else start

    async def recorded(self) -> Trace:
        """Lives it."""
        async with self._simulation:
            for _ in range(self._random.randint(4, 16)):
                if self._starts > MOST_STARTS or self._simulation.now - self._start > LONGEST:
                    break
                await self._step()
            await self._last_words()
        store = self._simulation.store
        return Trace(self.zone, tuple(self._events), 0 if store is None else store.failed)

    def _note(self, kind: Kind, **values: Any) -> None:
        self._events.append(Event(self._simulation.now, kind, **values))

    def _told(self, event: SchedulerEvent) -> None:
        if isinstance(event, SchedulerInitializationCompleted):
            self._note(Kind.ACTIVE)

    # ---- what is done to the scheduler -------------------------------------------------------------------------------

    async def _step(self) -> None:
        random, state = self._random, self._scheduler.state
        kind = random.random()
        if state is SchedulerState.RUNNING:
            if kind < 0.5:
                await self._advance()
            elif kind < 0.64:
                await self._jump()
            elif kind < 0.78:
                await self._crash()
            elif kind < 0.88:
                await self._stop()
            elif kind < 0.95:
                await self._begin_to_stop()
            else:
                await self._be_refused()
        elif state is SchedulerState.STOPPING:
            await (self._advance() if kind < 0.4 else self._initialize() if kind < 0.7 else self._crash())
        elif kind < 0.65:
            await self._initialize()
        else:
            await (self._advance() if kind < 0.85 else self._jump())

    async def _last_words(self) -> None:
        """Time enough to see what is still owed; then the end, which is a stop or none."""
        if self._scheduler.state is not SchedulerState.RUNNING and self._random.random() < 0.7:
            await self._initialize()
        await self._simulation.advance(self._random.choice((61, 90, 300)))
        if self._scheduler.state is SchedulerState.RUNNING and self._random.random() < 0.3:
            await self._crash()
        else:
            await self._stop()
        self._note(Kind.END)

    async def _advance(self) -> None:
        await self._simulation.advance(self._span())

    async def _jump(self) -> None:
        # Or a callback that is about to be called, or for which the store is asked again, is called after the jump.
        await self._simulation.advance(30 if self._shaky else 0)
        to = self._simulation.now + self._span()
        self._events.append(Event(to, Kind.JUMP))
        await self._simulation.jump(to)

    def _span(self) -> timedelta:
        """Some time; often up to the very beginning of a minute, or a hair before or after."""
        random = self._random
        kind = random.random()
        if kind < 0.25:
            return timedelta(milliseconds=random.randrange(120_000))
        longest = self._pace.longest if kind < 0.8 else self._pace.longest / 10
        if kind > 0.97:
            longest *= 4
        span = timedelta(seconds=random.randrange(1, int(longest.total_seconds())))
        if random.random() < 0.4:
            to = (self._simulation.now + span).replace(second=0, microsecond=0)
            to += timedelta(milliseconds=random.choice((0, 0, 0, 1, -1)))
            return max(to - self._simulation.now, timedelta(milliseconds=1))
        return span

    async def _crash(self) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        await self._simulation.crash()
        self._note(Kind.CRASH)  # only now: until the process is gone, it does what it does

    async def _stop(self) -> None:
        self._note(Kind.STOP)
        await self._scheduler.stop()
        self._note(Kind.STOPPED)

    async def _begin_to_stop(self) -> None:
        """Calls stop() and does not wait for its answer."""
        loop = self._simulation._loop

        async def stop() -> None:
            await self._scheduler.stop()
            self._note(Kind.STOPPED)
            self._stopping = None

        self._note(Kind.STOP)
        self._stopping = await self._simulation._turns.call(lambda: loop.create_task(stop()))
        await self._simulation.advance(self._random.choice((0, 0, 1, 30)))

    async def _be_refused(self) -> None:
        """Initializes what is active already, or with what is wrong: nothing of it is to be seen."""
        with pytest.raises(SchedulerError):
            await self._scheduler.initialize(
                [(name, "* * * * *", self._callback(name), timedelta(0)) for name in NAMES]
            )

    async def _initialize(self) -> None:
        self._now = self._drawn_registrations()
        self._kept |= self._now
        if self._random.random() < 0.05:
            wrong = ("x", "* * * * 7", self._callback("a"), timedelta(0))
            with pytest.raises(SchedulerError):
                await self._scheduler.initialize([wrong])
        registrations = [(name, each.expression, self._callback(name), each.delay) for name, each in self._now.items()]
        self._note(Kind.INIT, tasks=dict(self._now))
        await self._scheduler.initialize(registrations)

    def _drawn_registrations(self) -> dict[str, Registered]:
        """The same as before, or changed, or fewer, or more."""
        random = self._random
        if not self._kept:
            return {name: self._drawn_task(name) for name in NAMES[: random.randint(1, 5)]}
        if random.random() < 0.35:
            return dict(self._now)
        drawn = {}
        for name, before in self._kept.items():
            if random.random() < (0.15 if name in self._now else 0.6):
                continue
            kind = random.random()
            if kind < 0.2:
                drawn[name] = replace(before, expression=drawn_expression(random, self._pace))
            elif kind < 0.35:
                drawn[name] = replace(before, delay=drawn_delay(random, self._pace))
            else:
                drawn[name] = before
        unused = [name for name in NAMES if name not in self._kept]
        if unused and random.random() < 0.3:
            drawn[unused[0]] = self._drawn_task(unused[0])
        return drawn

    def _drawn_task(self, name: str) -> Registered:
        self._fails[name] = self._random.choice((0.0, 0.1, 0.4, 0.7))
        return Registered(drawn_expression(self._random, self._pace), drawn_delay(self._random, self._pace))

    def _callback(self, name: str) -> Any:
        async def callback() -> None:
            self._starts += 1
            self._note(Kind.START, task=name)
            random = self._work[name]
            seconds, fails = drawn_work(random, self._pace), random.random() < self._fails.get(name, 0.0)
            if seconds:
                await asyncio.sleep(seconds)
            self._note(Kind.FAILURE if fails else Kind.SUCCESS, task=name)
            if fails:
                raise TaskFailed(name)

        return callback


def record(number: int) -> Trace:
    """The trace of one life."""
    return asyncio.run(Life(number).recorded())
