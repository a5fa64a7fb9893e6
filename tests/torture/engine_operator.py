"""Somebody who operates the jobs while nodes die: triggers, cancels, pauses, replays, moves, schedules, switches."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

from tests.torture.engine_checker import Journal

from horae import Horae, HoraeError, Once


class Operator:
    """Acts at random, through an app of its own, and writes down what it was promised."""

    def __init__(
        self, app: Horae, jobs: list[str], journal: Journal, deeds: Counter[str], chance: random.Random
    ) -> None:
        self.app = app
        self.jobs = jobs
        self.journal = journal
        self.deeds = deeds
        self.chance = chance
        self.paused: set[str] = set()
        self.asked = 0

    async def act(self) -> None:
        deed = self.chance.choices(
            (self.trigger, self.cancel, self.replay, self.pause, self.move, self.schedule, self.switch),
            (4, 3, 2, 2, 2, 2, 1),
        )[0]
        job = self.chance.choice(self.jobs)
        try:
            await deed(job)
        except HoraeError as error:
            # A store that is away, a run that has just ended: what was not promised is not owed.
            self.deeds[f"refused: {type(error).__name__}"] += 1

    async def trigger(self, job: str) -> None:
        self.asked += 1
        key = f"asked {self.asked}" if self.asked % 2 else None
        self.journal.acknowledged.append(str(await self.app.trigger(job, key=key)))
        self.deeds["trigger"] += 1

    async def cancel(self, job: str) -> None:
        state = self.chance.choice(("RUNNING", "PENDING", "QUEUED"))
        if runs := await self.app.runs(state=state, limit=50):
            await self.app.cancel(self.chance.choice(runs).run_id)
            self.deeds["cancel"] += 1

    async def replay(self, job: str) -> None:
        runs = [run for run in await self.app.runs(job=job, limit=20) if run.completed_at is not None]
        if runs:
            run = self.chance.choice(runs)
            self.journal.acknowledged.append(str(await self.app.replay(run.run_id, "torture")))
            self.deeds["replay"] += 1

    async def pause(self, job: str) -> None:
        if self.paused and self.chance.random() < 0.5:
            await self.app.resume(self.paused.pop())
            self.deeds["resume"] += 1
        else:
            until = datetime.now(UTC) + timedelta(seconds=3) if self.chance.random() < 0.5 else None
            self.paused.add(job)
            await self.app.pause(job, until=until, note="torture")
            self.deeds["pause"] += 1

    async def move(self, job: str) -> None:
        await self.app.reschedule(job, datetime.now(UTC) + timedelta(seconds=self.chance.uniform(0.0, 2.0)))
        self.deeds["move"] += 1

    async def schedule(self, job: str) -> None:
        self.asked += 1
        name = f"once-{self.asked}"
        at = time.time() + self.chance.uniform(0.2, 2.0)
        once = Once(datetime.fromtimestamp(at, UTC), drop=self.asked % 2 == 0)
        await self.app.schedule(name, once, task="remind")
        self.journal.once[name] = at
        self.deeds["once"] += 1

    async def switch(self, job: str) -> None:
        """Off for a moment: nothing is owed between."""
        began = time.time()
        try:
            await self.app.disable(job)
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        finally:
            await insisting(self.app.enable, job)
            self.paused.discard(job)
            self.journal.off[job].append((began, time.time() + 0.001))
        self.deeds["switch"] += 1

    async def undo(self) -> None:
        for job in sorted(self.paused):
            await insisting(self.app.resume, job)


async def insisting(work: Callable[[str], Awaitable[None]], name: str, patience: float = 90.0) -> None:
    """Asks until it is granted."""
    ends = time.monotonic() + patience
    while True:
        try:
            await work(name)
            return
        except HoraeError:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.1)


async def disable_all(app: Horae, jobs: Iterable[str], journal: Journal) -> None:
    """Ends every schedule, and writes down up to when each owes its slots."""
    turns = asyncio.Semaphore(4)

    async def disable(name: str) -> None:
        async with turns:
            journal.disabled_at[name] = time.time()
            await insisting(app.disable, name)

    await asyncio.gather(*map(disable, jobs))
