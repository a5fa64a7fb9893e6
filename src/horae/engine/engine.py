"""One node: its loops put together, started, drained and stopped."""

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
from horae.core.instant import EPOCH
from horae.core.lifecycle import RunState
from horae.core.needs import MOST_REPORTED
from horae.engine.completer import Completer
from horae.engine.delivery import Delivery
from horae.engine.dispatcher import Dispatcher
from horae.engine.hooks import Caller, Hooks
from horae.engine.keeper import Keeper
from horae.engine.learning import Learner
from horae.engine.live import Ledger, LiveRun
from horae.engine.outage import Outage
from horae.engine.overlong import OverlongReporter
from horae.engine.parts import Shared, ThreadPool
from horae.engine.registry import Registry
from horae.engine.runner import Runner
from horae.engine.tools import Tools
from horae.engine.tuning import Tuning, retuned
from horae.engine.wakeup import Alarm, StoreClock
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
from horae.runners.output import Capture
from horae.runners.processes import Processes
from horae.runners.threads import Threads
from horae.store.port import Passed, Store, ThreadKey
from horae.store.repeat import repeated
from horae.version import __version__

_NAMED = 10
"""Runs that are named when they are waited for."""
FORCE_AFTER = 5.0
"""Seconds between asking tasks to stop and going without them."""
SETTLING = 30.0
"""Seconds a node that stops waits for a catalog that cannot be reached to take down what has ended."""
HOOKED_AGAIN = 3600.0
"""Seconds after which a node says again which hooks it has: the catalog forgets them after seven days."""
TOLD_AGAIN = 0.5
"""Seconds after which a loop that was told to end, and has not, is told again."""


class Host:
    """Where an engine's tasks run, and what keeps house beside them. A simulation has another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tuning: Tuning) -> None:
        self.threads: ThreadPool = Threads(loop)
        self.processes = Processes(loop, memory_limit=tuning.process_memory, tee=tuning.tee)
        self.watchdog: Watchdog = WatchdogThread()

    def background(self) -> AbstractContextManager[None]:
        """Around the start of loops that only look after things: nothing that is due waits for them."""
        return nullcontext()


class Engine:
    """Runs what is due on this node. The store is open; definitions are in it."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        hooks: Hooks,
        stream: Stream,
        tuning: Tuning,
        *,
        name: str | None = None,
        slots: int = 50,
        grace_period: float = 30.0,
        shutdown: str = "drain",
        host: Host | None = None,
        tools: Tools | None = None,
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._store = store
        self._registry = registry
        self._stream = stream
        self._name = name
        self._grace = grace_period
        self._shutdown = shutdown
        self.node = uuid4()
        self.ledger = Ledger(slots)
        self._given = (slots, tuning)
        self._progress = Alarm(loop)
        self._forced = asyncio.Event()
        self.process_ends = False
        """Whether the process ends when this engine has stopped, and with it whatever thread is left: until then such a
        thread counts. In a program that goes on nobody could say when it has ended."""
        self._left = False
        self._loops: list[asyncio.Task[None]] = []
        self._capture = Capture(tee=tuning.tee)
        self._host = host or Host(loop, tuning)
        self._threads = self._host.threads
        self._processes = self._host.processes
        self._outage = Outage(loop, stream)
        self._caller = Caller(loop, store, hooks, stream, self._threads.submit)
        self._hooked = loop.time()
        shared = Shared(loop, store, registry, self.ledger, stream, tuning, self._outage, StoreClock(loop), tools)
        self.runner = Runner(shared, self._threads, self._processes)
        self.dispatcher = Dispatcher(shared, self.runner, self._caller, self._host.watchdog)
        self.delivery = Delivery(shared, self._caller)
        self.completer = Completer(shared, self.runner, self._run_ended, self._slot_freed)
        self.overlong = OverlongReporter(shared)
        self.keeper = Keeper(
            shared,
            self.runner,
            self.completer,
            self.dispatcher,
            self.overlong,
            self._rejoin,
            self._retune,
            self._host.watchdog,
        )
        self.keeper.name = name
        self.learner = Learner(shared, inline=host is not None)
        self._tools = tools
        self._reported = (registry.names, registry.sandbox, self.keeper.rhythm)
        self.keeper.describe = self._describe
        self.keeper.owner_limits = lambda: self._given[1].owner_limits
        self.runner.owner = self.completer
        self.runner.opener = lambda run, limit, of_others: store.transact(
            self.node,
            run.run_id,
            run.claim.run_no,
            run.claim.fence,
            limit,
            (run.claim.definition.spec.owner or LOCAL_NAME) if of_others else None,
        )
        self.dispatcher.completer = self.completer

    def _run_ended(self, run: LiveRun, seconds: float) -> None:
        self.overlong.ended(run, seconds)
        self.delivery.stir()

    def _slot_freed(self) -> None:
        self.dispatcher.slot_freed()
        if self.dispatcher.draining:
            self._progress.ring()

    async def _retune(self, set_by_system: Mapping[str, Any]) -> None:
        """Takes up what ALTER SYSTEM has set; what was set back is again as the program has it.

        The node's row says what it stands by before the node goes by more, and only after it goes by less."""
        slots, tuning = retuned(self._given, set_by_system)
        silence, heartbeat = self.keeper.rhythm
        both = (max(silence, tuning.take_over_after), max(heartbeat, tuning.heartbeat))
        if both != self._reported[2]:
            await self._store.describe(self.node, self._details(both))
        self.ledger.slots = slots
        for part in (self.runner, self.dispatcher, self.completer, self.delivery, self.keeper):
            part.retune(tuning)
        self.dispatcher.stir()

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Joins, does what is to be `prepare`d, and begins to work. Raises NodeNameTaken, or what the store or the
        preparation raises; nothing is left behind then."""
        await self._join()
        try:
            totals = await repeated(self._store.totals)
            await repeated(self.keeper.take_up_settings)
            if prepare is not None:
                # Last: whatever fails before it, nothing of it was done.
                await prepare()
        except BaseException:
            with suppress(StoreError):
                await self._store.leave(self.node)
            raise
        self._capture.install()
        with self._host.background():
            self._begin("changes", self._listen())
            self._begin("heartbeat", self.keeper.run())
            self._begin("keeper", self.keeper.watch())
            self._begin("sweep", self.keeper.sweep())
            self._begin("retention", self.keeper.retain())
            self._begin("publisher", self.keeper.publisher.run())
            self._begin("learning", self.learner.run(self.dispatcher.stir))
        self._begin("completer", self.completer.run())
        self._begin("hooks", self.delivery.run())
        self._begin("dispatcher", self.dispatcher.run(self.keeper))
        self.keeper.watchdog.start(self.keeper.late)
        self._store.observe(self._passed)
        self._stream.emit(EngineStarted(str(self.node), self._name, totals.jobs_enabled, self.ledger.slots))
        if self._registry.sandbox is not None:
            self._stream.emit(SandboxMissing(self._registry.sandbox))
        # What ended while no node had the hooks waits for them.
        self.delivery.stir()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._loops.append(self._loop.create_task(self._guarded(name, work), name=f"horae {name}"))

    async def _join(self, working: Collection[ThreadKey] = ()) -> None:
        for part in (self.dispatcher, self.completer, self.delivery, self.keeper):
            part.node = self.node
        details = self._details()

        async def join() -> None:
            sent_at = self.keeper.watchdog.clock()
            await self._store.join(self.node, name=self._name, details=details, working=working)
            self.keeper.watchdog.confirm(sent_at)

        await repeated(join)

    def _details(self, rhythm: tuple[float, float] | None = None) -> dict[str, Any]:
        """What the node says of itself."""
        silence, heartbeat = rhythm or self.keeper.rhythm
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
        """Reports what has changed of this node: what others rely on, and what they would take for gone."""
        await self._describe_abilities()
        hooks = self._caller.hooks.completing()
        if hooks and self._loop.time() - self._hooked > HOOKED_AGAIN:
            await self._store.register_hooks([each.hook for each in hooks.values()])
            self._hooked = self._loop.time()
        # Another node may have ended runs.
        self.delivery.stir()

    async def _describe_abilities(self) -> None:
        """Reports handlers that this node has learned since, which others would take for gone, and whether it can start
        programs by now."""
        before = self._reported[1]
        if self._tools is not None and self._tools.external.enabled:
            self._registry.able(*await self._tools.abilities())
        if (self._registry.names, self._registry.sandbox, self.keeper.rhythm) == self._reported:
            return
        await self._store.describe(self.node, self._details())
        if self._registry.sandbox is None:
            self.dispatcher.stir()
        elif self._registry.sandbox != before:
            self._stream.emit(SandboxMissing(self._registry.sandbox))

    def _passed(self, runs: Sequence[Passed]) -> None:
        """Announces what became of runs that no node reports."""
        for run in runs:
            if run.state is RunState.PENDING:
                reason = self.keeper.naming(run.reason or "released")
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
        # They were asked to stop, and work until they do: nobody is to start them anew beside that unasked.
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
            self.dispatcher.stir()
            self.keeper.stir()
            self.learner.stir()
            self.delivery.stir()

    async def failed(self) -> None:
        """Returns never, unless one of the loops ends by an error; then it is raised."""
        # Not gather: whoever stops waiting for this must not stop the loops with it.
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
        """No more patience: what is still at work is cut now, and the process ends."""
        self.process_ends = True
        self._forced.set()
        self._progress.ring()

    async def stop(self) -> int:
        """Stops taking work, lets what runs finish within the grace period, cancels, then goes on without the rest.

        Returns how many runs were handed back. What ended is in the catalog when this returns, unless the store cannot
        be reached; then others take over.
        """
        self.dispatcher.draining = True
        # What is being claimed at this moment is claimed first, and then finished or handed back like the rest.
        await self._bounded(self.dispatcher.claims_over(), FORCE_AFTER)
        ends = self._loop.time() + self._grace
        cut = 0
        under_way = [f"{run.job_name} ({run.run_id})" for run in self.ledger.runs.values()]
        if under_way:
            named = ", ".join([*under_way[:_NAMED], *(["…"] if len(under_way) > _NAMED else [])])
            self._stream.emit(Draining(str(self.node), self._grace, len(under_way), named, self._name))
        if self._shutdown == "cancel":
            cut = self._cut()
        await self._at_rest(ends)
        if self.ledger.working:
            cut += self._cut()
            await self._at_rest(max(ends, self._loop.time()) + FORCE_AFTER if self._shutdown == "drain" else ends)
            # Forced or not: who stops when asked has stopped after a turn or two.
            for _ in range(3):
                await asyncio.sleep(0)
        for run in list(self.ledger.runs.values()):
            for attempt in list(run.attempts.values()):
                self.runner.give_up(attempt)
        await self._bounded(self.completer.settled(), FORCE_AFTER)
        await self._bounded(self.delivery.finish(), self._grace)
        await self._close_loops()
        with suppress(StoreError):
            await self._bounded(self._leave(), FORCE_AFTER)
        await self._close()
        self._stream.emit(EngineStopped(str(self.node), cut, self._name))
        return cut

    def _cut(self) -> int:
        """Asks everything to stop; it goes back to be run elsewhere."""
        cut = [run for run in self.ledger.runs.values() if (run.attempts or run.preparing) and not run.released]
        for run in cut:
            self.runner.release_run(run)
        return len(cut)

    async def _at_rest(self, until: float) -> None:
        """Until nothing is under way and every end is in the catalog: settling one task may begin the next.

        What a catalog that is away cannot take down is not waited for longer than SETTLING.
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
        """Waits for `work`, but no longer than `seconds`, and a second at most once patience is over."""
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
            # Again and again: a driver that loses its connection while it is cancelled says that instead, and the loop
            # rides it out as any outage. But not for ever: a server that does not answer may keep one waiting.
            _, left = await asyncio.wait(left, timeout=TOLD_AGAIN)
        await asyncio.gather(*(task for task in loops if task.done()), return_exceptions=True)

    async def _close(self) -> None:
        self.keeper.watchdog.close()
        self.dispatcher.close()
        self.runner.close()
        self.delivery.drop()
        self._store.observe(None)
        self._threads.close()
        await self._processes.close()
        await self.runner.works.close()
        self._capture.uninstall()

    async def crash(self) -> None:
        """Drops everything as a killed process would: nothing is settled, nobody is told. For simulations."""
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
