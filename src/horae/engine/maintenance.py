"""Maintenance: this node's heartbeat, and what every node does for the cluster, safe on many nodes at once.

It sends heartbeats and receives cancellations, takes over the runs of dead nodes, reaps runs past their timeout, sweeps
runs that no hand-over reached, and deletes old history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import Any
from uuid import UUID

from horae.core.job.owner_limits import OwnerLimits
from horae.core.node_liveness import FAILED_LOOK, NodeObservation, ObserverMemory, observe
from horae.core.time.instant import rfc3339
from horae.engine.attempts.runner import AttemptRunner
from horae.engine.attempts.tools import EngineCatalog
from horae.engine.audit_publisher import HeadPublisher
from horae.engine.claimer import Claimer, HeartbeatSender
from horae.engine.limits import EngineSettings
from horae.engine.long_runs import LongRunReporter
from horae.engine.protocols import EngineContext, EnginePart
from horae.engine.settler import AttemptSettler
from horae.engine.wakeup import WakeSignal
from horae.engine.watchdog import Watchdog
from horae.errors import Conflict, SecretError, StoreConflict, StoreError, StoreUnavailable
from horae.events import (
    ClockSetBack,
    HeartbeatLate,
    HistoryDeleted,
    LoopFailed,
    NodeBuried,
    NodeExpelled,
    RunsReaped,
    RunsSwept,
    TrailSealed,
)
from horae.security.audit.head_file import SeenHead
from horae.security.audit.key import seal_all
from horae.security.keys import Keyring
from horae.store.protocols.people import SealHead
from horae.store.protocols.store import HeartbeatResult, ThreadKey

JUMP = 0.5
"""A jump of the store's clock, in seconds, from which on timers are set again."""
SECONDS_A_DAY = 86_400
TRIES_BEFORE_LATE = 3
"""How many tries a heartbeat that hangs has before the node stops its attempts."""
LEFT_TO_STOP = 0.8
"""The share of the time until take-over that a late node's programs and processes have to stop."""
DELETED_AT_ONCE = 5000
SEALED_AT_ONCE = 5000
DIGESTED_EVERY = 600.0
"""Seconds after which grants are read even if the database has noted no change: an operator who writes to the tables
directly may bypass the note."""
ROUND_OVER = 2.0
"""Seconds that a round may go on after its loop was cancelled."""


class MaintenanceLoops(EnginePart, HeartbeatSender):
    """Does maintenance for one engine. `rejoin` registers a new incarnation after other nodes declared the old one
    dead."""

    def __init__(
        self,
        shared: EngineContext,
        runner: AttemptRunner,
        settler: AttemptSettler,
        claimer: Claimer,
        overlong: LongRunReporter,
        rejoin: Callable[[], Awaitable[None]],
        retune: Callable[[Mapping[str, Any]], Awaitable[None]],
        watchdog: Watchdog,
    ) -> None:
        super().__init__(shared)
        self.watchdog = watchdog
        watchdog.limit(shared.tuning.late_after)
        self._runner = runner
        self._settler = settler
        self._claimer = claimer
        self._overlong = overlong
        self._rejoin = rejoin
        self._retune = retune
        self._system: Mapping[str, Any] = {}
        self.node: UUID
        self.name: str | None = None
        """The name that the node was started with: --node, Horae(node=…)."""
        self.describe: Callable[[], Awaitable[None]]
        self.owner_limits: Callable[[], OwnerLimits] = OwnerLimits
        """The limits in this node's configuration, without those of ALTER SYSTEM."""
        self.alarm = WakeSignal(self._loop)
        self._beaten = self._loop.time()
        self._memory = ObserverMemory()
        self._suspects = False
        self._set_back = False
        self.publisher = HeadPublisher(
            shared.tuning.audit_head_file, shared.tuning.audit_head_webhook, self._stream.emit
        )
        self._head: SealHead | None = None
        """The newest seal that was published."""
        self._known: SealHead | None = None
        """The newest seal that this node has seen, or that was in its head file at the start. It must still be in the
        trail."""
        self._digested: float | None = None
        """When grants were last read regardless of noted changes."""
        self._reaped: float | None = None
        self._dead: tuple[str, str | None] | None = None
        """The node that is being taken over, with its name."""
        # Copied when the engine is built. Grace periods of stopped attempts run in this context, so that a simulation
        # counts their time as it counts the tasks' time. The maintenance loop's own timers do not.
        self._as_engine = copy_context()

    # ---- heartbeat ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sends heartbeats until it is cancelled; sooner after a change of the catalog, which may be a cancellation."""
        while True:
            await self.alarm.wait(self._beaten + self._tuning.heartbeat)
            early = self._beaten + min(self._tuning.spacing, self._tuning.heartbeat) - self._loop.time()
            if early > 0:
                await asyncio.sleep(early)
            await self._kept("heartbeat", self.pulse)

    @property
    def rhythm(self) -> tuple[float, float]:
        """Seconds without a heartbeat after which other nodes may count this node as dead, and seconds between two
        heartbeats."""
        return self._tuning.take_over_after, self._tuning.heartbeat

    def retune(self, tuning: EngineSettings) -> None:
        if tuning.heartbeat < self._tuning.heartbeat:
            # The next heartbeat is still timed by the longer interval.
            self.alarm.ring()
        super().retune(tuning)
        self.watchdog.limit(tuning.late_after)

    def stir(self) -> None:
        if self._ledger.runs:
            self.alarm.ring()

    async def pulse(self) -> None:
        """Sends one heartbeat while no claim is under way, then does what its answer says."""
        late = self.watchdog.overdue()
        if late is not None:
            self._stop_late(late)
        async with self._claimer.claiming:
            self._outage.suspicious = False
            sent_at = self.watchdog.clock()
            try:
                working = [attempt.key for attempt in self._ledger.attempts]
                pulse = await self._beat(working)
            except BaseException:
                self._outage.suspicious = True
                raise
            self._beaten = self._loop.time()
            self.watchdog.confirm(sent_at)
            self._outage.over()
            if pulse.expelled:
                await self._expelled()
                return
            for run_id in pulse.lost:
                gone = self._ledger.runs.get(run_id)
                if gone is not None and not gone.settling:
                    self._as_engine.run(self._settler.lost, gone)
        for run_id, reason in pulse.cancels.items():
            asked = self._ledger.runs.get(run_id)
            if asked is not None and asked.stop is None:
                self._as_engine.run(self._runner.stop_run, asked, reason)
        if abs(self._clock.note(pulse.now)) > JUMP or pulse.released:
            self._claimer.stir()

    async def _beat(self, working: list[ThreadKey]) -> HeartbeatResult:
        """Sends the heartbeat. A connection that hangs is abandoned while there is time to try another."""
        limit = None if self._tuning.late_after is None else self._tuning.late_after / TRIES_BEFORE_LATE
        try:
            async with asyncio.timeout(limit):
                return await self._store.heartbeat(self.node, self._ledger.known, working)
        except TimeoutError:
            raise StoreUnavailable(f"The store did not confirm a heartbeat within {limit:g} s") from None

    def late(self, seconds: float) -> None:
        """Called in the watchdog's thread. It asks sync tasks to stop directly, because the event loop may be
        blocked."""
        for attempt in list(self._ledger.attempts):
            if attempt.stop is not None:
                attempt.stop.asked = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stop_late, seconds)

    def _stop_late(self, seconds: float) -> None:
        """Stops all attempts: other nodes may have taken this node's runs over, or do so next."""
        self._stream.emit(HeartbeatLate(seconds))
        for run in list(self._ledger.runs.values()):
            self._as_engine.run(self._runner.release_run, run)
        left = max(0.0, self._tuning.take_over_after - self.watchdog.silence)
        self._as_engine.run(self._loop.call_later, LEFT_TO_STOP * left, self._kill_late)

    def _kill_late(self) -> None:
        """Kills the processes and programs of a node that is still late, whatever they were asked before and however
        long their cancel_grace is."""
        if self.watchdog.is_late:
            for attempt in list(self._ledger.attempts):
                self._runner.kill(attempt)

    async def _expelled(self) -> None:
        """Stops everything and registers a new incarnation, because nothing that this one writes counts any more."""
        self._stream.emit(NodeExpelled(str(self.node), self.name))
        for run in list(self._ledger.runs.values()):
            self._as_engine.run(self._settler.lost, run)
        await self._rejoin()
        self._claimer.stir()

    # ---- for the whole cluster ---------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Takes over the runs of dead nodes and reaps runs past their timeout, until it is cancelled."""
        while True:
            if not await self._kept("keeper", self._look_after):
                continue
            await asyncio.sleep(self._look_pause())

    def _look_pause(self) -> float:
        """Returns the seconds until the next look: two looks for each heartbeat, because a look counts for one
        heartbeat at most. A lock that was just found free is looked at again as soon as that proves its node dead."""
        pause = min(self._tuning.reap_every, self._tuning.heartbeat / 2)
        return min(pause, self._store.lock_grace + 0.1) if self._suspects else pause

    async def _look_after(self) -> None:
        await self._look()
        now = self._loop.time()
        if self._reaped is None or now - self._reaped >= self._tuning.reap_every:
            reaped = await self._store.reap()
            self._reaped = now
            if reaped:
                self._stream.emit(RunsReaped(reaped))

    async def _look(self) -> None:
        """Looks at the other nodes, and takes over the runs of dead ones."""
        asked_at = self.watchdog.clock()
        try:
            nodes = await self._store.nodes()
        except BaseException:
            self._memory = FAILED_LOOK
            raise
        sights = [
            NodeObservation(each.node, each.counter, each.lock_free, each.silence, each.heartbeat)
            for each in nodes
            if each.state == "ALIVE" and each.node != str(self.node)
        ]
        self._memory, dead = observe(
            self._memory,
            sights,
            self.watchdog.clock(),
            asked_at=asked_at,
            apart=self._tuning.heartbeat,
            released=self._store.lock_grace,
            silence=self._tuning.take_over_after,
        )
        names = {each.node: each.name for each in nodes}
        buried: set[str] = set()
        failures: list[Exception] = []
        for node, counter in dead:
            self._dead = (node, names[node])
            try:
                taken = await self._store.take_over(self.node, UUID(node), counter)
            except StoreConflict:
                # A session of the dead node still holds a row. The next look finds it gone, and the other nodes are not
                # delayed.
                continue
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - one dead node must not block the others and the reaper
                failures.append(error)
                continue
            finally:
                self._dead = None
            if taken is None:
                # The node is alive after all, or another node was first and reports the take-over.
                continue
            buried.add(node)
            self._stream.emit(NodeBuried(node, taken, names[node]))
        self._suspects = any(sight.lock_free and sight.node not in buried for sight in sights)
        if failures:
            raise failures[0]

    def naming(self, reason: str) -> str:
        """Adds the name of the node that is being taken over to the reason, in which the catalog has only its id."""
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
            await self._look_at_clock(self._tools.vault)
        if self._tools is not None:
            await self._rounded(self._keep_trail)

    async def _look_at_clock(self, catalog: EngineCatalog) -> None:
        found = await catalog.set_back()
        if found.until is not None and not self._set_back:
            self._stream.emit(ClockSetBack(found.ahead, rfc3339(found.until), found.jobs[0].name))
        self._set_back = found.until is not None

    async def _keep_trail(self) -> None:
        assert self._tools is not None
        await self.take_up_settings()
        await self._tools.vault.keep_shares(self.owner_limits())
        try:
            keyring = await self._tools.keyring()
        except SecretError:
            # Operations that need the key report this; the trail is sealed without it.
            keyring = Keyring()
        thorough = self._digested is None or self._loop.time() - self._digested >= DIGESTED_EVERY
        if thorough:
            self._digested = self._loop.time()
        if self._known is None:
            self._known = await self.publisher.newest()
        try:
            await seal_all(self._tools.vault, keyring, SEALED_AT_ONCE, thorough=thorough, known=self._known)
        except Conflict as error:
            self._stream.emit(LoopFailed("audit", error.message))
            return
        head = await self._tools.vault.head()
        self._known = head or self._known
        if head is not None and head != self._head:
            self._stream.emit(TrailSealed(*head))
            self.publisher.offer(SeenHead(rfc3339(await self._store.now()), *head))
        self._head = head

    async def take_up_settings(self) -> None:
        """Applies the settings of ALTER SYSTEM if they have changed."""
        if self._tools is not None and self._tools.obeys_system:
            system = await self._tools.vault.settings()
            if system != self._system:
                await self._retune(system)
                self._system = system

    async def retain(self) -> None:
        while True:
            await asyncio.sleep(self._tuning.retain_every)
            await self._kept("retention", self._retain)

    async def _retain(self) -> None:
        days = self._tuning.job_history_retention_days
        deleted = 0
        while days is not None:
            count = await self._store.retain(timedelta(days=days), DELETED_AT_ONCE)
            deleted += count
            if count < DELETED_AT_ONCE:
                break
            await asyncio.sleep(0)
        if deleted:
            self._stream.emit(HistoryDeleted(deleted))

    async def _rounded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does one round and lets it finish when its loop is cancelled, because a transaction that breaks off costs its
        connection.

        A second cancellation, or ROUND_OVER seconds, break the round off.
        """
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
        """Does one round and returns whether it succeeded. An error ends the round, never the loop."""
        try:
            await work()
        except StoreConflict:
            await asyncio.sleep(0)
        except StoreError as error:
            # Runs in the engine's context, so that time passes in a simulation until the store is back.
            await self._loop.create_task(self._outage.ride_out(error), context=self._as_engine.copy())
        except Exception as error:  # noqa: BLE001 - a loop that dies silently would be worse than any error
            self._stream.emit(LoopFailed(name, f"{type(error).__name__}: {error}"))
            await asyncio.sleep(1.0)
        else:
            return True
        return False
