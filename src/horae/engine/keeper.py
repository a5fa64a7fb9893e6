"""The keeper: this node's heartbeat, and what every node does for all of them, safe on many at once.

Heartbeat and cancellations; orphans of dead nodes; runs that take too long; what no hand-over reached; old history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from datetime import timedelta
from typing import Any
from uuid import UUID

from horae.core.liveness import Sight, Watch, observe
from horae.engine.completer import Completer
from horae.engine.dispatcher import Dispatcher, Recovery
from horae.engine.overlong import OverlongReporter
from horae.engine.parts import Part, Shared
from horae.engine.runner import Runner
from horae.engine.wakeup import Alarm
from horae.errors import StoreConflict, StoreError
from horae.events import (
    HeartbeatLate,
    HistoryDeleted,
    LoopFailed,
    NodeBuried,
    NodeExpelled,
    RunsReaped,
    RunsSwept,
)

JUMP = 0.5
"""A store's clock that moved this much against ours has been set: the alarm is set anew."""
SECONDS_A_DAY = 86_400
DELETED_AT_ONCE = 5000
SEALED_AT_ONCE = 5000
ROUND_OVER = 2.0
"""Seconds that a round may go on after its loop was told to end."""


class Keeper(Part, Recovery):
    """One engine's keeper. `rejoin` gives it a new incarnation when others have declared the old one dead."""

    def __init__(
        self,
        shared: Shared,
        runner: Runner,
        completer: Completer,
        dispatcher: Dispatcher,
        overlong: OverlongReporter,
        rejoin: Callable[[], Awaitable[None]],
        retune: Callable[[Mapping[str, Any]], None],
    ) -> None:
        super().__init__(shared)
        self._runner = runner
        self._completer = completer
        self._dispatcher = dispatcher
        self._overlong = overlong
        self._rejoin = rejoin
        self._retune = retune
        self._system: Mapping[str, Any] = {}
        self.node: UUID
        self.name: str | None = None
        """What the node was started with: --node, Horae(node=…)."""
        self.describe: Callable[[], Awaitable[None]]
        self.alarm = Alarm(self._loop)
        self._beaten = self._loop.time()
        self._watched: dict[str, Watch] = {}
        self._suspects = False
        self._dead: tuple[str, str | None] | None = None
        """The node that is being taken over from, with its name."""
        # Made with the engine: what is asked to stop is given time as tasks are, which a simulation passes through; its
        # keeper's own timers it does not.
        self._as_engine = copy_context()

    # ---- heartbeat ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Beats for as long as it is not cancelled; sooner when the catalog has changed, for somebody may cancel."""
        while True:
            await self.alarm.wait(self._beaten + self._tuning.heartbeat)
            early = self._beaten + self._tuning.spacing - self._loop.time()
            if early > 0:
                await asyncio.sleep(early)
            await self._kept("heartbeat", self.pulse)

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat after which others may take this node for dead."""
        return self._tuning.take_over_after

    def stir(self) -> None:
        if self._ledger.runs:
            self.alarm.ring()

    async def pulse(self) -> None:
        """One heartbeat, with everything claimed known; then what it says is done."""
        late = self._loop.time() - self._beaten
        if self._tuning.late_after is not None and late > self._tuning.late_after:
            # Others may have taken this node's runs by now: stop before anything else.
            self._stream.emit(HeartbeatLate(late))
            for run in list(self._ledger.runs.values()):
                self._as_engine.run(self._runner.release_run, run)
            self._beaten = self._loop.time()
        async with self._dispatcher.claiming:
            self._outage.suspicious = False
            try:
                working = [attempt.key for attempt in self._ledger.attempts]
                pulse = await self._store.heartbeat(self.node, self._ledger.known, working)
            except BaseException:
                self._outage.suspicious = True
                raise
            self._beaten = self._loop.time()
            self._outage.over()
            if pulse.expelled:
                await self._expelled()
                return
            for run_id in pulse.lost:
                gone = self._ledger.runs.get(run_id)
                if gone is not None and not gone.settling:
                    self._as_engine.run(self._completer.lost, gone)
        for run_id, reason in pulse.cancels.items():
            asked = self._ledger.runs.get(run_id)
            if asked is not None and asked.stop is None:
                self._as_engine.run(self._runner.stop_run, asked, reason)
        if abs(self._clock.note(pulse.now)) > JUMP or pulse.released:
            self._dispatcher.stir()

    async def _expelled(self) -> None:
        """Nothing this incarnation writes counts any more: everything stops, and another one begins."""
        self._stream.emit(NodeExpelled(str(self.node), self.name))
        for run in list(self._ledger.runs.values()):
            self._as_engine.run(self._completer.lost, run)
        await self._rejoin()
        self._dispatcher.stir()

    # ---- for everybody -----------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Looks after the other nodes, and after runs that take too long."""
        while True:
            if not await self._kept("keeper", self._look_after):
                continue
            # A lock that was just seen free is looked at again as soon as that would prove something.
            grace = self._store.lock_grace + 0.1
            await asyncio.sleep(min(grace, self._tuning.reap_every) if self._suspects else self._tuning.reap_every)

    async def _look_after(self) -> None:
        nodes = await self._store.nodes()
        sights = [
            Sight(each.node, each.counter, each.lock_free, each.silence)
            for each in nodes
            if each.state == "ALIVE" and each.node != str(self.node)
        ]
        released = self._store.lock_grace
        self._watched, dead = observe(
            self._watched, sights, self._loop.time(), released=released, silence=self._tuning.take_over_after
        )
        names = {each.node: each.name for each in nodes}
        buried: set[str] = set()
        failures: list[Exception] = []
        for node, counter in dead:
            self._dead = (node, names[node])
            try:
                taken = await self._store.take_over(self.node, UUID(node), counter)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - what one node left must not keep the others, nor the reaper
                failures.append(error)
                continue
            finally:
                self._dead = None
            buried.add(node)
            self._stream.emit(NodeBuried(node, taken, names[node]))
        self._suspects = any(sight.lock_free and sight.node not in buried for sight in sights)
        reaped = await self._store.reap()
        if reaped:
            self._stream.emit(RunsReaped(reaped))
        if failures:
            raise failures[0]

    def naming(self, reason: str) -> str:
        """The reason with the name of the node that is being taken over from: the catalog has its id alone."""
        if self._dead is None or self._dead[1] is None:
            return reason
        node, name = self._dead
        return reason.replace(node, f"{name} ({node})")

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(self._tuning.sweep_every)
            await self._kept("sweep", self._sweep)

    async def _sweep(self) -> None:
        await self.describe()
        grace = timedelta(seconds=self._tuning.handler_grace)
        swept = await self._store.sweep(handler_grace=grace)
        if swept:
            self._stream.emit(RunsSwept(swept))
        await self._overlong.look()
        if self._tools is not None:
            await self._rounded(self._keep_trail)

    async def _keep_trail(self) -> None:
        assert self._tools is not None
        await self.take_up_settings()
        while await self._tools.vault.seal(SEALED_AT_ONCE) == SEALED_AT_ONCE:
            await asyncio.sleep(0)

    async def take_up_settings(self) -> None:
        """Goes by what ALTER SYSTEM has set, if that is news."""
        if self._tools is not None and self._tools.obeys_system:
            system = await self._tools.vault.settings()
            if system != self._system:
                self._system = system
                self._retune(system)

    async def retain(self) -> None:
        while self._tuning.job_history_retention_days is not None:
            await asyncio.sleep(self._tuning.retain_every)
            await self._kept("retention", self._retain)

    async def _retain(self) -> None:
        days = self._tuning.job_history_retention_days
        assert days is not None
        deleted = 0
        while True:
            count = await self._store.retain(timedelta(days=days), DELETED_AT_ONCE)
            deleted += count
            if count < DELETED_AT_ONCE:
                break
            await asyncio.sleep(0)
        if deleted:
            self._stream.emit(HistoryDeleted(deleted))

    async def _rounded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A round that is let finish when its loop is to end: a transaction that breaks off costs its connection. Told
        to end once more, or after a while, it is broken off all the same."""
        task = asyncio.ensure_future(work())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            try:
                await asyncio.wait({task}, timeout=ROUND_OVER)
            finally:
                task.cancel()
            if task.done() and not task.cancelled():
                task.exception()
            raise

    async def _kept(self, name: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Does one round, and says whether it was done; an error ends the round, never the loop."""
        try:
            await work()
        except StoreConflict:
            await asyncio.sleep(0)
        except StoreError as error:
            # In a simulation, too, time passes until the store is back.
            await self._loop.create_task(self._outage.ride_out(error), context=self._as_engine.copy())
        except Exception as error:  # noqa: BLE001 - a loop that dies silently would be worse than any error
            self._stream.emit(LoopFailed(name, f"{type(error).__name__}: {error}"))
            await asyncio.sleep(1.0)
        else:
            return True
        return False
