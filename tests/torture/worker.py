"""A worker as a real process: `python -m tests.torture.worker URL NODE LOG`, until the catalog has nothing left to do.

It plans, dispatches and settles in several lanes at once, and beats. Every START is in its log before the attempt is
made, every END after the store answered. Exit status 0: nothing is left; EXPELLED: somebody declared it dead.

The environment: HORAE_TORTURE_KILL is a `Blow`; HORAE_TORTURE_LANES, _SLOTS and _CONNECTIONS say how wide it works;
HORAE_TORTURE_OPEN names a file: while that is there, more is to come.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from tests.torture.drivers import Blow, TappedCatalog, driver_for

from horae.core.run.lifecycle import AttemptState, RunState
from horae.errors import StoreConflict, StoreUnavailable
from horae.store.records import (
    AttemptEnd,
    AttemptStart,
    Capacity,
    Claim,
    CreationResult,
    HeartbeatResult,
    Settlement,
    SettlementResult,
    SettlementVerdict,
)

EXPELLED = 3
ORPHANED = 4
BEATS_EVERY_SECONDS = 0.25
IDLE_SECONDS = 0.5
SOON = timedelta(seconds=20)
"""A job that is due later than this is not waited for."""


class Expelled(Exception):
    """The store says that this incarnation is dead."""


class Turns:
    """Many may claim at once. A heartbeat waits for them and holds new ones up: it must know what was claimed."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._claiming = 0
        self._beating = False

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        async with self._condition:
            await self._condition.wait_for(lambda: not self._beating)
            self._claiming += 1
        try:
            yield
        finally:
            async with self._condition:
                self._claiming -= 1
                self._condition.notify_all()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        async with self._condition:
            await self._condition.wait_for(lambda: not self._beating)
            self._beating = True
            await self._condition.wait_for(lambda: self._claiming == 0)
        try:
            yield
        finally:
            async with self._condition:
                self._beating = False
                self._condition.notify_all()


class Worker:
    """One incarnation. `known` are its runs with their fences, as the heartbeat tells the store."""

    def __init__(self, store: TappedCatalog, node: UUID, log: Path, slots: int) -> None:
        self.store = store
        self.node = node
        self.slots = slots
        self.open = os.environ.get("HORAE_TORTURE_OPEN")
        self.parent = os.getppid()
        self.known: dict[str, int] = {}
        self.turns = Turns()
        self.done = asyncio.Event()
        self.stirred = asyncio.Event()
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *words: object) -> None:
        os.write(self._log, (" ".join(str(word) for word in words) + "\n").encode())

    async def work(self, lanes: int) -> None:
        self.write("CLOCK", time.time())
        await self._repeat_join()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat_on())
            for lane in range(lanes):
                group.create_task(self._lane(looks_out=lane == 0))
        await self.store.leave(self.node)

    async def _repeat_join(self) -> None:
        while True:
            try:
                return await self.store.join(self.node)
            except (StoreUnavailable, StoreConflict):
                await asyncio.sleep(0.1)

    async def _beat_on(self) -> None:
        while not self.done.is_set():
            await self._beat()
            try:
                await asyncio.wait_for(self.done.wait(), BEATS_EVERY_SECONDS)
            except TimeoutError:
                continue

    async def _beat(self) -> None:
        """One heartbeat with what is known, however long it takes to get through."""
        pause = 0.02
        while True:
            if os.getppid() != self.parent:
                # Whoever watched over this torture is gone, and nobody else would end it.
                os._exit(ORPHANED)
            try:
                async with self.turns.beating():
                    return self._heed(await self.store.heartbeat(self.node, dict(self.known)))
            except (StoreUnavailable, StoreConflict):
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 0.5)

    def _heed(self, pulse: HeartbeatResult) -> None:
        if pulse.expelled:
            raise Expelled
        for run_id in pulse.released:
            self.write("RELEASED", run_id)

    async def _lane(self, *, looks_out: bool) -> None:
        """Claims and makes runs. One lane looks out when nothing is there; the others wait until it finds something."""
        seen = 0
        while not self.done.is_set():
            try:
                claims, planned = await self._claim()
                if claims:
                    self.stirred.set()
                    await self._make(claims)
                elif not looks_out:
                    if not self.done.is_set():
                        self.stirred.clear()
                        await self.stirred.wait()
                elif await self._nothing_left(planned):
                    self.done.set()
                    self.stirred.set()
                elif not planned.more:
                    seen = await self.store.changed(seen, IDLE_SECONDS)
            except (StoreUnavailable, StoreConflict):
                await self._beat()

    async def _claim(self) -> tuple[list[Claim], CreationResult]:
        async with self.turns.claiming():
            planned = await self.store.create_due_runs(self.slots, Capacity(str(self.node), max(1, self.slots - 1)))
            claims = list(planned.claims)
            try:
                if len(claims) < self.slots:
                    dispatched = await self.store.claim_runs(Capacity(str(self.node), self.slots - len(claims)))
                    claims += dispatched.claims
            except (StoreUnavailable, StoreConflict):
                # What was planned is ours all the same.
                if not claims:
                    raise
            self.known.update({claim.run_id: claim.fence for claim in claims})
            return claims, planned

    async def _nothing_left(self, planned: CreationResult) -> bool:
        if self.open and Path(self.open).exists():
            return False
        later = planned.wake_at is None or planned.wake_at - planned.now > SOON
        return later and not planned.more and not planned.born and not await self.store.runs(active=True, limit=1)

    async def _make(self, claims: Sequence[Claim]) -> None:
        """Makes the attempts of these runs until each has ended or is somebody else's."""
        runs = {claim.run_id: claim for claim in claims}
        starts: dict[str, tuple[AttemptStart, ...]] = {claim.run_id: claim.starts for claim in claims}
        while starts:
            settlements = []
            for run_id, begun in starts.items():
                claim = runs[run_id]
                for start in begun:
                    self.write("START", run_id, claim.fence, start.position, start.number, claim.run_no)
                ends = tuple(AttemptEnd(start.position, start.number, AttemptState.SUCCESS) for start in begun)
                settlements.append(Settlement(run_id, claim.run_no, claim.fence, ends))
            starts = {}
            for answer in await self._settle(settlements):
                if answer.verdict is SettlementVerdict.SETTLED and answer.state is RunState.RUNNING:
                    starts[answer.run_id] = answer.starts
                    continue
                self.write("END", answer.run_id, runs[answer.run_id].fence, answer.verdict, answer.state)
                # What was released and claimed anew by another lane has a fence of its own.
                if self.known.get(answer.run_id) == runs[answer.run_id].fence:
                    del self.known[answer.run_id]

    async def _settle(self, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        while True:
            try:
                return await self.store.settle(self.node, settlements)
            except (StoreUnavailable, StoreConflict) as error:
                self.write("AGAIN", type(error).__name__)
                await self._beat()


async def main(url: str, node: str, log: str) -> int:
    lanes = int(os.environ.get("HORAE_TORTURE_LANES", "1"))
    slots = int(os.environ.get("HORAE_TORTURE_SLOTS", "5"))
    connections = int(os.environ.get("HORAE_TORTURE_CONNECTIONS", "4"))
    driver = driver_for(url, connections=connections)
    if blow := os.environ.get("HORAE_TORTURE_KILL"):
        driver.tap = Blow.parse(blow).tap
    store = TappedCatalog(driver)
    while True:
        try:
            await store.open()
            break
        except (StoreUnavailable, StoreConflict):
            await asyncio.sleep(0.1)
    code = 0
    try:
        await Worker(store, UUID(node), Path(log), slots).work(lanes)
    except* Expelled:
        code = EXPELLED
    await store.close()
    return code


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(*sys.argv[1:4])))
