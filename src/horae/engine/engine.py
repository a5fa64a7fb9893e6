"""One node: builds its loops, starts them, drains them and stops them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from horae.core.access import LOCAL_NAME
from horae.core.job.requirements import MOST_REPORTED
from horae.core.run.lifecycle import RunState
from horae.core.time.instant import EPOCH
from horae.engine.attempts.runner import AttemptRunner
from horae.engine.attempts.tools import TaskResources
from horae.engine.claimer import Claimer
from horae.engine.handler_import import HandlerImporter
from horae.engine.handlers import HandlerRegistry
from horae.engine.hook_delivery import HookDeliverer
from horae.engine.hooks import HookCaller, HookRegistry
from horae.engine.limits import EngineSettings, retuned
from horae.engine.live_runs import LiveRun, LiveRuns
from horae.engine.long_runs import LongRunReporter
from horae.engine.maintenance import MaintenanceLoops
from horae.engine.outage import OutageTracker
from horae.engine.protocols import EngineContext, ThreadPool
from horae.engine.settler import AttemptSettler
from horae.engine.wakeup import StoreClock, WakeSignal
from horae.engine.watchdog import Watchdog, WatchdogThread
from horae.errors import StoreError
from horae.events import (
    Draining,
    EngineStarted,
    EngineStopped,
    LoopFailed,
    RunEnded,
    RunPassed,
    RunReleased,
    SandboxMissing,
    Stream,
)
from horae.executors.output import Capture
from horae.executors.processes import Processes
from horae.executors.threads import Threads
from horae.store.protocols.store import Store, ThreadKey, UnreportedRun
from horae.store.repeat import repeat_verb
from horae.version import __version__

_MOST_NAMED = 10
"""Most runs that the draining message names."""
FORCE_AFTER = 5.0
"""Seconds between asking tasks to stop and going on without them."""
SETTLING = 30.0
"""Seconds that a stopping node waits for an unreachable catalog before it gives up settling ended attempts."""
REPORT_HOOKS_EVERY = 3600.0
"""Seconds after which a node reports its hooks again. The catalog forgets hooks after seven days without a report."""
CANCEL_AGAIN = 0.5
"""Seconds after which a loop that has not ended is cancelled again."""


class EngineHost:
    """The threads, processes and watchdog that an engine uses. A simulation supplies its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tuning: EngineSettings) -> None:
        self.threads: ThreadPool = Threads(loop)
        self.processes = Processes(loop, memory_limit=tuning.process_memory, tee=tuning.tee)
        self.watchdog: Watchdog = WatchdogThread()

    def background(self) -> AbstractContextManager[None]:
        """Wraps the start of the maintenance loops. Due runs never wait for these loops."""
        return nullcontext()


class Engine:
    """Runs due runs on this node. The store must be open and contain the definitions."""

    def __init__(
        self,
        store: Store,
        registry: HandlerRegistry,
        hooks: HookRegistry,
        stream: Stream,
        tuning: EngineSettings,
        *,
        name: str | None = None,
        slots: int = 50,
        grace_period: float = 30.0,
        shutdown: str = "drain",
        host: EngineHost | None = None,
        tools: TaskResources | None = None,
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._store = store
        self._registry = registry
        self._stream = stream
        self._name = name
        self._grace = grace_period
        self._shutdown = shutdown
        self.node = uuid4()
        self.ledger = LiveRuns(slots)
        self._given = (slots, tuning)
        self._progress = WakeSignal(loop)
        self._forced = asyncio.Event()
        self.process_ends = False
        """Whether the process ends when this engine has stopped, and all its threads with it. Until then, threads of
        abandoned attempts keep counting as working. If the process goes on, no one can report when such a thread ends,
        so they stop counting."""
        self._left = False
        self._loops: list[asyncio.Task[None]] = []
        self._capture = Capture(tee=tuning.tee)
        self._host = host or EngineHost(loop, tuning)
        self._threads = self._host.threads
        self._processes = self._host.processes
        self._outage = OutageTracker(loop, stream)
        self._caller = HookCaller(loop, store, hooks, stream, self._threads.submit)
        self._hooked = loop.time()
        shared = EngineContext(
            loop, store, registry, self.ledger, stream, tuning, self._outage, StoreClock(loop), tools
        )
        self.runner = AttemptRunner(shared, self._threads, self._processes)
        self.claimer = Claimer(shared, self.runner, self._caller, self._host.watchdog)
        self.delivery = HookDeliverer(shared, self._caller)
        self.settler = AttemptSettler(shared, self.runner, self._run_ended, self._slot_freed)
        self.overlong = LongRunReporter(shared)
        self.maintenance = MaintenanceLoops(
            shared,
            self.runner,
            self.settler,
            self.claimer,
            self.overlong,
            self._rejoin,
            self._retune,
            self._host.watchdog,
        )
        self.maintenance.name = name
        self.importer = HandlerImporter(shared, inline=host is not None)
        self._tools = tools
        self._reported = (registry.names, registry.sandbox, self.maintenance.rhythm)
        self.maintenance.describe = self._describe
        self.maintenance.owner_limits = lambda: self._given[1].owner_limits
        self.runner.owner = self.settler
        self.runner.opener = lambda run, limit, of_others: store.transact(
            self.node,
            run.run_id,
            run.claim.run_no,
            run.claim.fence,
            limit,
            (run.claim.definition.spec.owner or LOCAL_NAME) if of_others else None,
        )
        self.claimer.settler = self.settler

    def _run_ended(self, run: LiveRun, seconds: float) -> None:
        self.overlong.ended(run, seconds)
        self.delivery.stir()

    def _slot_freed(self) -> None:
        self.claimer.capacity_freed()
        if self.claimer.draining:
            self._progress.ring()

    async def _retune(self, set_by_system: Mapping[str, Any]) -> None:
        """Applies the settings of ALTER SYSTEM; a setting that was reset gets the value the engine was started with.

        Other nodes judge this node by the silence and the heartbeat in its row. So the row gets the longer values
        before the node uses them, and the shorter ones only after the node uses them.
        """
        slots, tuning = retuned(self._given, set_by_system)
        silence, heartbeat = self.maintenance.rhythm
        both = (max(silence, tuning.take_over_after), max(heartbeat, tuning.heartbeat))
        if both != self._reported[2]:
            await self._store.describe(self.node, self._details(both))
        self.ledger.slots = slots
        for part in (self.runner, self.claimer, self.settler, self.delivery, self.maintenance):
            part.retune(tuning)
        self.claimer.stir()

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Joins the cluster, calls `prepare`, and starts the loops.

        Raises NodeNameTaken, and whatever the store or `prepare` raises; the node has left the cluster again in that
        case.
        """
        await self._join()
        try:
            totals = await repeat_verb(self._store.totals)
            await repeat_verb(self.maintenance.take_up_settings)
            if prepare is not None:
                # Last, so that a failure of an earlier step leaves nothing of it behind.
                await prepare()
        except BaseException:
            with suppress(StoreError):
                await self._store.leave(self.node)
            raise
        self._capture.install()
        with self._host.background():
            self._begin("changes", self._listen())
            self._begin("heartbeat", self.maintenance.run())
            self._begin("keeper", self.maintenance.watch())
            self._begin("sweep", self.maintenance.sweep())
            self._begin("retention", self.maintenance.retain())
            self._begin("publisher", self.maintenance.publisher.run())
            self._begin("learning", self.importer.run(self.claimer.stir))
        self._begin("completer", self.settler.run())
        self._begin("hooks", self.delivery.run())
        self._begin("dispatcher", self.claimer.run(self.maintenance))
        self.maintenance.watchdog.start(self.maintenance.late)
        self._store.observe(self._passed)
        self._stream.emit(EngineStarted(str(self.node), self._name, totals.jobs_enabled, self.ledger.slots))
        if self._registry.sandbox is not None:
            self._stream.emit(SandboxMissing(self._registry.sandbox))
        # Hooks of runs that ended while no node had them are delivered now.
        self.delivery.stir()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._loops.append(self._loop.create_task(self._guarded(name, work), name=f"horae {name}"))

    async def _join(self, working: Collection[ThreadKey] = ()) -> None:
        for part in (self.claimer, self.settler, self.delivery, self.maintenance):
            part.node = self.node
        details = self._details()

        async def join() -> None:
            sent_at = self.maintenance.watchdog.clock()
            await self._store.join(self.node, name=self._name, details=details, working=working)
            self.maintenance.watchdog.confirm(sent_at)

        await repeat_verb(join)

    def _details(self, rhythm: tuple[float, float] | None = None) -> dict[str, Any]:
        """Returns what the node's row says about it."""
        silence, heartbeat = rhythm or self.maintenance.rhythm
        self._reported = (self._registry.names, self._registry.sandbox, (silence, heartbeat))
        sandbox = {} if self._registry.sandbox is None else {"sandbox": self._registry.sandbox}
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slots": self.ledger.slots,
            "version": __version__,
            "handlers": sorted(self._registry.names)[:MOST_REPORTED],
            "modules": list(self._given[1].modules),
            "hooks": sorted(self._caller.hooks.completing())[:MOST_REPORTED],
            "silence": silence,
            "heartbeat": heartbeat,
            **sandbox,
        }

    async def _describe(self) -> None:
        """Reports changes of this node to the catalog: its handlers and settings, and that its hooks still exist."""
        await self._describe_abilities()
        hooks = self._caller.hooks.completing()
        if hooks and self._loop.time() - self._hooked > REPORT_HOOKS_EVERY:
            await self._store.register_hooks([each.hook for each in hooks.values()])
            self._hooked = self._loop.time()
        # Another node may have ended runs whose hooks only this node has.
        self.delivery.stir()

    async def _describe_abilities(self) -> None:
        """Reports handlers that this node has imported, and whether it can start programs now. Other nodes would count
        handlers that no node reports as gone."""
        before = self._reported[1]
        if self._tools is not None and self._tools.external.enabled:
            self._registry.able(*await self._tools.abilities())
        if (self._registry.names, self._registry.sandbox, self.maintenance.rhythm) == self._reported:
            return
        await self._store.describe(self.node, self._details())
        if self._registry.sandbox is None:
            self.claimer.stir()
        elif self._registry.sandbox != before:
            self._stream.emit(SandboxMissing(self._registry.sandbox))

    def _passed(self, runs: Sequence[UnreportedRun]) -> None:
        """Emits events for runs that changed without an owner: ended while waiting, reaped, taken over or put back."""
        for run in runs:
            if run.state is RunState.PENDING:
                reason = self.maintenance.naming(run.reason or "released")
                self._stream.emit(RunReleased(run.run_id, run.job_name, reason))
            elif run.elapsed is not None:
                seconds = run.elapsed.total_seconds()
                self._stream.emit(RunEnded(run.run_id, run.job_name, str(run.state), run.reason, seconds))
            else:
                first = run.scheduled_time if run.first is None else run.first
                last = run.scheduled_time if run.covers_to is None else run.covers_to
                self._stream.emit(
                    RunPassed(
                        run.job_name,
                        str(run.state),
                        run.count,
                        run.reason,
                        run.is_recovery,
                        run.run_id,
                        _milliseconds(first),
                        _milliseconds(last),
                    )
                )
        self.delivery.stir()

    async def _rejoin(self) -> None:
        # These attempts work on until they stop. Listing them keeps other nodes from starting the same tasks meanwhile.
        working = [attempt.key for attempt in self.ledger.attempts]
        gone, self.node = self.node, uuid4()
        try:
            await self._join(working)
        finally:
            with suppress(StoreError):
                await self._store.leave(gone)

    async def _listen(self) -> None:
        seen = 0
        while True:
            try:
                seen = await self._store.changed(seen)
            except StoreError as error:
                await self._outage.ride_out(error)
                continue
            self.claimer.stir()
            self.maintenance.stir()
            self.importer.stir()
            self.delivery.stir()

    async def failed(self) -> None:
        """Never returns. Raises the error of a loop that has ended with one."""
        # Not gather: a caller that stops waiting for this must not cancel the loops.
        done, _ = await asyncio.wait(self._loops, return_when=asyncio.FIRST_EXCEPTION)
        for loop in done:
            loop.result()

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._stream.emit(LoopFailed(name, f"{type(error).__name__}: {error}"))
            raise

    # ---- stopping ----------------------------------------------------------------------------------------------------

    def force(self) -> None:
        """Ends the grace period: running attempts are cut off now, because the process ends."""
        self.process_ends = True
        self._forced.set()
        self._progress.ring()

    async def stop(self) -> int:
        """Stops claiming, lets runs finish within the grace period, cancels the rest, and releases what is left.

        Returns how many runs were released. All ended attempts are in the catalog when this returns, unless the store
        cannot be reached; then other nodes take the runs over.
        """
        self.claimer.draining = True
        # A claim that is under way is finished first; its runs are finished or released like the others.
        await self._bounded(self.claimer.claims_over(), FORCE_AFTER)
        ends = self._loop.time() + self._grace
        cut = 0
        under_way = [f"{run.job_name} ({run.run_id})" for run in self.ledger.runs.values()]
        if under_way:
            named = ", ".join([*under_way[:_MOST_NAMED], *(["…"] if len(under_way) > _MOST_NAMED else [])])
            self._stream.emit(Draining(str(self.node), self._grace, len(under_way), named, self._name))
        if self._shutdown == "cancel":
            cut = self._cut()
        await self._at_rest(ends)
        if self.ledger.working:
            cut += self._cut()
            await self._at_rest(max(ends, self._loop.time()) + FORCE_AFTER if self._shutdown == "drain" else ends)
            # Tasks that react to the request have stopped after a turn or two of the event loop.
            for _ in range(3):
                await asyncio.sleep(0)
        for run in list(self.ledger.runs.values()):
            for attempt in list(run.attempts.values()):
                self.runner.give_up(attempt)
        await self._bounded(self.settler.settled(), FORCE_AFTER)
        await self._bounded(self.delivery.finish(), self._grace)
        await self._close_loops()
        with suppress(StoreError):
            await self._bounded(self._leave(), FORCE_AFTER)
        await self._close()
        self._stream.emit(EngineStopped(str(self.node), cut, self._name))
        return cut

    def _cut(self) -> int:
        """Asks all attempts to stop and marks their runs for release. Returns how many runs."""
        cut = [run for run in self.ledger.runs.values() if (run.attempts or run.preparing) and not run.released]
        for run in cut:
            self.runner.release_run(run)
        return len(cut)

    async def _at_rest(self, until: float) -> None:
        """Waits until no attempt is under way and every end is in the catalog: settling one task may start the next.

        Once no attempt is under way, it waits at most SETTLING seconds for a catalog that cannot be reached.
        """
        idle: float | None = None
        while (self.ledger.working or self.ledger.runs) and not self._forced.is_set():
            now = self._loop.time()
            idle = None if self.ledger.working else now if idle is None else idle
            limit = until if idle is None else min(until, idle + SETTLING)
            if now >= limit:
                return
            await self._progress.wait(limit)

    async def _leave(self) -> None:
        await self._store.leave(self.node, working=self.process_ends and self.ledger.has_threads)

    async def _bounded(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        """Waits for `work` for at most `seconds`, and for at most one more second once the engine is forced to stop."""
        task = self._loop.create_task(work)
        forced = self._loop.create_task(self._forced.wait())
        await asyncio.wait({task, forced}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if not task.done():
            await asyncio.wait({task}, timeout=1.0)
        if task.done():
            task.result()
        else:
            task.cancel()

    async def _close_loops(self) -> None:
        loops, self._loops = self._loops, []
        left = set(loops)
        ends = self._loop.time() + FORCE_AFTER
        while left and self._loop.time() < ends:
            for task in left:
                task.cancel()
            # Cancelled repeatedly: a driver that loses its connection during the cancellation raises that error
            # instead, and the loop treats it as an outage. Limited in time: a server that does not answer may block a
            # loop for ever.
            _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN)
        await asyncio.gather(*(task for task in loops if task.done()), return_exceptions=True)

    async def _close(self) -> None:
        self.maintenance.watchdog.close()
        self.claimer.close()
        self.runner.close()
        self.delivery.drop()
        self._store.observe(None)
        self._threads.close()
        await self._processes.close()
        await self.runner.works.close()
        self._capture.uninstall()

    async def crash(self) -> None:
        """Drops everything as a killed process would: nothing is settled or reported. For simulations."""
        for run in self.ledger.runs.values():
            run.forget()
            for attempt in run.attempts.values():
                if isinstance(attempt.handle, asyncio.Task):
                    attempt.over = True
                    attempt.handle.cancel()
        self.ledger.runs.clear()
        await self._close_loops()
        await self._close()


def _milliseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)
