"""Claiming: creates runs for due jobs, claims runs that this node can start, and starts them.

One loop creates and claims. It wakes at the earliest `wake_at` of a job, at the `not_before` of the next run, when
another process has committed a change, and when a run of this node ends. While the node has free capacity, it creates
runs for as many jobs as can start immediately: a run that is created RUNNING saves one write. Due jobs never wait long
for free capacity, because deadlines and queues would not be judged meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from horae.core.job.owner_limits import reserved_capacity
from horae.engine.attempts.runner import AttemptRunner
from horae.engine.hooks import HookCaller, first_time
from horae.engine.live_runs import LiveRun
from horae.engine.protocols import EngineContext, EnginePart, yield_to_loop
from horae.engine.settler import AttemptSettler
from horae.engine.wakeup import WakeSignal
from horae.engine.watchdog import Watchdog
from horae.errors import RunNotFound, StoreConflict, StoreError
from horae.events import Claimed, DefinitionUnreadable, LoopFailed, Planned, RunStarted
from horae.store.protocols.store import Capacity, Claim, Origin
from horae.store.repeat import repeat_verb

PATIENCE = 1.0
"""Seconds that due jobs may wait for free capacity before the node creates their runs without starting them."""
LATENESS = 5.0
"""Seconds behind the scheduled times from which on the node creates runs without regard to its free capacity."""
LONGEST_CHAIN = 50
"""How many replays of replays are followed to find earlier results."""
GATHER = 0.004
"""Seconds that freed capacity is gathered before the next claim while runs are waiting."""


GRAIN = 0.001
"""Seconds that two timers for the same moment may differ by rounding. A scheduled time that is due together with a
retry is handled first."""
ELSEWHERE = 0.02
"""Seconds until the next look when jobs are due but this node could lock none of them."""


class Claimer(EnginePart):
    """The loop that creates and claims runs for this node."""

    def __init__(self, shared: EngineContext, runner: AttemptRunner, caller: HookCaller, watchdog: Watchdog) -> None:
        super().__init__(shared)
        self._watchdog = watchdog
        self._runner = runner
        self._caller = caller
        self.settler: AttemptSettler
        self.node: UUID
        self.alarm = WakeSignal(self._loop)
        self.claiming = asyncio.Lock()
        """Held while runs are claimed. A heartbeat takes it too, because it must list every claimed run."""
        self.draining = False
        self._look = True
        self._plan_at = 0.0
        self._dispatch_at: float | None = None
        self._more = False
        self._backlog = True
        self._held_back = False
        self._late = False
        self._preparing: set[asyncio.Task[None]] = set()

    # ---- wake-ups ----------------------------------------------------------------------------------------------------

    def stir(self) -> None:
        """Makes the loop look at the catalog: it may have changed."""
        self._look = True
        self.alarm.ring()

    def capacity_freed(self) -> None:
        if (self._backlog or self._held_back or self._more) and not self.alarm.rung:
            if self._ledger.free * 4 >= self._ledger.slots:
                self.alarm.ring()
            else:
                self.alarm.ring_within(GATHER)

    # ---- the loop ----------------------------------------------------------------------------------------------------

    async def run(self, recover: HeartbeatSender) -> None:
        while True:
            try:
                if self._must_beat:
                    await recover.pulse()
                again = await self._turn()
            except StoreConflict:
                self._look = True
                await asyncio.sleep(0)
            except StoreError as error:
                self._look = True
                await self._outage.ride_out(error)
            except Exception as error:  # noqa: BLE001 - a loop that dies silently would be worse than any error
                self._stream.emit(LoopFailed("dispatcher", f"{type(error).__name__}: {error}"))
                self._look = True
                await asyncio.sleep(1.0)
            else:
                if again:
                    await yield_to_loop()
                else:
                    await self.alarm.wait(self._until())

    def _until(self) -> float | None:
        """Returns when to look again if nothing wakes the loop before, in the loop's time."""
        if self.draining:
            return None
        moments = [self._plan_at]
        if self._dispatch_at is not None and self._ledger.free > 0:
            moments.append(self._dispatch_at)
        earliest = min(moments)
        return None if earliest == float("inf") else earliest

    @property
    def _must_beat(self) -> bool:
        """Whether a heartbeat must come before the next claim: the node may own runs that it does not know of, or other
        nodes may count it as dead."""
        return self._outage.suspicious or self._watchdog.is_late

    async def _turn(self) -> bool:
        """Looks at the catalog once; returns whether to look again immediately."""
        if self.draining:
            return False
        claims: list[Claim] = []
        runs: list[LiveRun] = []
        try:
            async with self.claiming:
                if self._must_beat:
                    # A heartbeat that hung held the lock, so this node has become late meanwhile.
                    return True
                now = self._loop.time()
                look, self._look = self._look, False
                try:
                    ready = self._dispatch_at is not None and now >= self._dispatch_at
                    due = now >= (self._plan_at - GRAIN if ready else self._plan_at)
                    if look or due or self._may_plan_more:
                        claims += await self._plan(now)
                    free = self._ledger.free - len(claims)
                    asked = look or self._backlog or self._held_back or ready
                    if free > 0 and asked and not self.draining:
                        claims += await self._dispatch(min(free, self._tuning.plan_batch))
                finally:
                    runs = [self._adopt(claim) for claim in claims]
        except StoreError:
            # Runs that were claimed before the error belong to this node.
            self._start(runs)
            raise
        self._outage.over()
        self._start(runs)
        # A full batch may have left runs behind: its size is limited.
        return self._look or self._may_plan_more or (self._backlog and self._ledger.free > 0)

    @property
    def _may_plan_more(self) -> bool:
        return self._more and (self._ledger.free > 0 or self._late)

    async def _plan(self, now: float) -> Sequence[Claim]:
        free = self._ledger.free
        batch = self._tuning.plan_batch
        # With free capacity and little delay, as many jobs as can start immediately; otherwise a full batch, and any
        # node may start the runs.
        limit = min(batch, free) if free > 0 and not self._late else batch
        capacity = self._capacity(free) if free > 0 else None
        planned = await self._store.create_due_runs(limit, capacity)
        seconds = self._loop.time() - now
        self._clock.note(planned.now)
        self._more = planned.more
        claims = planned.claims
        # Where several owners compete, all due runs must exist before the owners can take turns.
        self._late = planned.crowded or (
            bool(claims) and planned.now.timestamp() - claims[0].chosen_ms / 1000 > LATENESS
        )
        if planned.born > len(claims) or not planned.jobs:
            # An earlier run may be able to start now: its window has opened, or another node created it.
            self._backlog = True
        if planned.more:
            self._plan_at = self._loop.time() + (
                PATIENCE if self._ledger.free <= len(claims) and not planned.crowded else 0.0
            )
        else:
            self._plan_at = float("inf") if planned.wake_at is None else self._clock.at(planned.wake_at)
            if not planned.jobs:
                # Another node may have locked the due jobs at this moment.
                self._plan_at = max(self._plan_at, now + ELSEWHERE)
        if planned.jobs and self._stream.wanted(Planned):
            self._stream.emit(Planned(planned.jobs, planned.born, seconds))
        if claims and self._stream.wanted(Claimed):
            self._stream.emit(Claimed(len(claims), seconds))
        for definition in planned.unreadable:
            self._stream.emit(DefinitionUnreadable(definition.name, definition.version, definition.fault or ""))
        return claims

    async def _dispatch(self, free: int) -> Sequence[Claim]:
        now = self._loop.time()
        dispatched = await self._store.claim_runs(self._capacity(free))
        self._clock.note(dispatched.now)
        claims = dispatched.claims
        self._backlog, self._held_back = len(claims) == free, dispatched.held_back
        self._dispatch_at = None if dispatched.next_at is None else self._clock.at(dispatched.next_at)
        if claims and self._stream.wanted(Claimed):
            self._stream.emit(Claimed(len(claims), self._loop.time() - now))
        return claims

    def _capacity(self, slots: int) -> Capacity:
        """Returns the capacity to claim for: `slots` runs, part of the node's free capacity."""
        kept = reserved_capacity(self._ledger.slots) - (self._ledger.free - slots)
        return Capacity(str(self.node), slots, self._registry.names, max(0, kept))

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _adopt(self, claim: Claim) -> LiveRun:
        now = self._loop.time()
        timeout = claim.definition.settings.execution_timeout
        expires = None if timeout is None else now + timeout.total_seconds() - claim.spent_ms / 1000
        run = LiveRun(claim, now, expires)
        self._ledger.runs[claim.run_id] = run
        return run

    def _start(self, runs: Iterable[LiveRun]) -> None:
        prepared = []
        for run in runs:
            if self._needs_preparation(run):
                prepared.append(run)
                # The run counts against the concurrency limit from now on; its first attempt takes over this count.
                self._ledger.working += 1
                self._runner.watch_run(run)
            else:
                self._begin(run)
        if prepared:
            task = self._loop.create_task(self._prepare(prepared))
            self._preparing.add(task)
            task.add_done_callback(self._preparing.discard)

    def _needs_preparation(self, run: LiveRun) -> bool:
        tasks = run.claim.definition.spec.tasks
        # A later task may take the run and read results from before this claim, even if the first task does not.
        asking = tasks if self._resumes(run) else [tasks[start.position] for start in run.claim.starts]
        for task in asking:
            handler = self._registry.resolve(run.job_name, task)
            if handler is not None and handler.takes_run:
                return True
        return bool(first_time(run.claim) and self._caller.hooks.starting(run.job_name))

    async def _prepare(self, runs: Sequence[LiveRun]) -> None:
        """Reads start times and results of earlier runs and calls on_start hooks, before the first attempts start."""
        try:
            last = await repeat_verb(lambda: self._store.previous_starts([run.claim for run in runs]))
        except StoreError as error:
            self._stream.emit(LoopFailed("dispatcher", f"{type(error).__name__}: {error}"))
            last = None
        for run in runs:
            if last is None:
                self._ledger.working -= 1
                self._runner.release_run(run)
                continue
            before = last.get(run.run_id)
            run.last_run_ms = None if before is None else round(before.timestamp() * 1000)
            if self._resumes(run) or (first_time(run.claim) and self._caller.hooks.starting(run.job_name)):
                task = run.preparing = self._loop.create_task(self._prepare_one(run))
                self._preparing.add(task)
                task.add_done_callback(partial(self._prepared, run))
            else:
                self._ledger.working -= 1
                self._begin(run)

    def _resumes(self, run: LiveRun) -> bool:
        """Whether tasks of this run, or of the run that it replays, may have ended before this claim, with results that
        later tasks read."""
        has_past = run.claim.fence > 1 or run.claim.origin == Origin.REPLAY
        return has_past and len(run.claim.definition.spec.tasks) > 1

    async def _results_so_far(self, run: LiveRun) -> dict[str, Any]:
        """Returns what tasks of this run returned. A replay of some tasks also gets the others' results from the
        replayed run."""
        history = await repeat_verb(lambda: self._store.history(run.run_id))
        found, own = dict(history.results), {task.name for task in history.tasks}
        for _ in range(LONGEST_CHAIN):
            replayed = history.record.replay_of
            if replayed is None:
                break
            try:
                history = await repeat_verb(partial(self._store.history, replayed))
            except RunNotFound:
                break  # retention has deleted the run
            found = {name: value for name, value in history.results.items() if name not in own} | found
            own |= {task.name for task in history.tasks}
        return found

    async def _prepare_one(self, run: LiveRun) -> None:
        try:
            if self._resumes(run):
                run.results.update(await self._results_so_far(run))
            if first_time(run.claim):
                await self._caller.started(run)
        except StoreError as error:
            self._stream.emit(LoopFailed("dispatcher", f"{type(error).__name__}: {error}"))
            run.released = True
        finally:
            # This also runs after a cancellation; the code that stopped the run settles it.
            self._end_preparation(run)
        self._begin(run)

    def _prepared(self, run: LiveRun, task: asyncio.Task[None]) -> None:
        self._preparing.discard(task)
        if run.preparing is task:
            # A task that is cancelled before its first step never enters its coroutine.
            self._end_preparation(run)

    def _end_preparation(self, run: LiveRun) -> None:
        """Frees the capacity that the preparation used."""
        run.preparing = None
        self._ledger.working -= 1
        self.capacity_freed()

    def _begin(self, run: LiveRun) -> None:
        claim = run.claim
        if self._ledger.runs.get(run.run_id) is not run:
            return
        if self._stream.wanted(RunStarted):
            recovery = claim.definition.settings.recovery
            strategy = recovery if isinstance(recovery, str) else "bounded"
            self._stream.emit(
                RunStarted(
                    claim.run_id,
                    claim.definition.spec.name,
                    claim.origin,
                    claim.scheduled_ms,
                    claim.chosen_ms,
                    claim.started_ms,
                    claim.fence,
                    claim.is_recovery,
                    strategy,
                )
            )
        if self._is_refused(run) or self._watchdog.is_late:
            # The claim or the preparation took so long that other nodes may take the run over.
            run.released = True
        if run.released or run.stop is not None or not claim.starts:
            # The run was stopped or released before its first attempt, or none of its tasks is due yet and the store
            # parks it.
            self.settler.ended(run)
            return
        self._runner.watch_run(run)
        for start in claim.starts:
            self._runner.start(run, start)
        if claim.wake_ms is not None:
            self.settler.come_back(run, claim.wake_at)

    def _is_refused(self, run: LiveRun) -> bool:
        definition = run.claim.definition.spec
        return any(
            self._registry.resolve(definition.name, definition.tasks[start.position]) is None
            for start in run.claim.starts
        ) and self._registry.refuse(definition.name)

    async def claims_over(self) -> None:
        """Waits until no claim is under way."""
        async with self.claiming:
            pass

    def close(self) -> None:
        self.alarm.close()
        for task in self._preparing:
            task.cancel()


class HeartbeatSender:
    """The heartbeat that comes first after a lost connection. Maintenance implements it."""

    async def pulse(self) -> None:
        raise NotImplementedError
