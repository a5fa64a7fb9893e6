"""`Simulation`: an app's real engine and store on a simulated clock, in milliseconds and deterministic.

    async with Simulation(app, start=datetime(2026, 1, 1, tzinfo=UTC)) as sim:
        starts = await sim.advance("1d")
        assert [time for job, task, time in starts if job == "nightly"] == [...]

A declarative Scheduler is simulated the same way: await its `initialize` and `stop` inside the block. `stop` lets time
pass until its callbacks have ended.

Time passes only inside `advance` and `jump`, and while `app.wait` is awaited. Async tasks use simulated time:
`asyncio.sleep(3600)` is a simulated hour and takes no real time. Sync tasks take no simulated time. The clock stands
still while the simulation waits for tasks in a process of their own, and for a PostgreSQL store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from horae.app.horae import Horae
from horae.app.process.import_paths import schedule_finder
from horae.app.store_loop import StoreLoop
from horae.app.stores import make_driver, open_or_create
from horae.core.declarative import task_name
from horae.core.time.duration import DurationLike, parse_duration
from horae.core.time.instant import aware
from horae.declarative.scheduler import Scheduler
from horae.engine.engine import Engine, EngineHost
from horae.engine.limits import EngineSettings
from horae.engine.watchdog import Watchdog
from horae.errors import Conflict, InvalidInput, shown
from horae.events import AttemptStarted
from horae.executors import loop_wait
from horae.executors.processes import Processes
from horae.services.service import ServiceCatalog
from horae.testing.alternation import LoopThread
from horae.testing.faults import Faults, FaultyCatalog
from horae.testing.server_driver import hold_time_during
from horae.testing.sync_tasks import LockstepThreads
from horae.testing.virtual_loop import VirtualLoop
from horae.testing.waiters import Waiters

Answer = TypeVar("Answer")
START = datetime(2026, 1, 1, tzinfo=UTC)
RARE_MAINTENANCE = {
    "heartbeat": 3600,
    "spacing": 0,
    "late_after": None,
    "reap_every": 600,
    "sweep_every": 3600,
    "retain_every": 86_400,
}
"""Settings that make maintenance rare: a single node need not prove to others that it is alive, and a year of
heartbeats would be most of the work of a simulated year."""


LONGEST_STOP = 30 * 86_400.0
"""Simulated seconds that a scheduler's stop() may take."""


class Started(NamedTuple):
    """One start of a task, as `advance` and `jump` return them.

    `job` is the catalog's name of the job. `task` is the task's name; for a declarative scheduler the registered name.
    """

    job: str
    task: str
    time: datetime


class Simulation:
    """Runs an app or a declarative Scheduler on simulated time, inside an `async with` block.

        async with Simulation(app) as sim:
            await sim.advance("1h")

    Raises Conflict if the app runs already, or if a live node uses its store.
    """

    def __init__(
        self,
        app: Horae | Scheduler,
        start: datetime = START,
        *,
        seed: int | None = None,
        faults: Faults | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """`start` is the first simulated moment. `seed` shuffles the order of tasks that are ready at the same time.
        `faults` lets the store fail. `settings` override the engine's settings, which are the app's with rare
        maintenance. Raises InvalidInput for anything but an app or a Scheduler."""
        if not isinstance(app, Horae | Scheduler):
            raise InvalidInput(f"Cannot simulate {shown(app)}", hint="Give it an app: Simulation(Horae(…)).")
        self._scheduler = app if isinstance(app, Scheduler) else None
        self._app: Horae = app.app if isinstance(app, Scheduler) else app
        self._start = aware(start, "start")
        self._skew = timedelta(0)
        self._faults = faults or Faults()
        self._random = Random(seed)  # noqa: S311 - chance for tests
        self._tuning = replace(self._app.tuning, **{**RARE_MAINTENANCE, **(settings or {})})
        self._loop = VirtualLoop(seed)
        self._turns = LoopThread(self._loop)
        self._waiters = Waiters(self._turns)
        self._moving = asyncio.Lock()
        self._starts: list[Started] = []
        self._home: _SimulatedStoreLoop | None = None
        self._before: StoreLoop | None = None
        self._listening: Callable[[], None] | None = None
        self.store: FaultyCatalog | None = None

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The simulated time."""
        return self._start + timedelta(microseconds=self._loop.ticks) + self._skew

    async def advance(self, duration: DurationLike) -> list[Started]:
        """Passes through every moment of `duration`, until nothing more is due. Returns the starts since the previous
        call."""
        seconds = parse_duration(duration, name="duration").total_seconds()
        return await self._run(self._loop.run_to, lambda: seconds)

    async def jump(self, at: datetime | DurationLike) -> list[Started]:
        """Moves the clock in one step, to a time or by a duration, as a suspend or a late poll does; then does what is
        due.

        Returns the starts since the previous call. Raises InvalidInput for a time before `now`.
        """
        step = aware(at, "at") if isinstance(at, datetime) else parse_duration(at, name="at")

        def seconds() -> float:
            left = (step - self.now if isinstance(step, datetime) else step).total_seconds()
            if left < 0:
                raise InvalidInput(
                    f"Cannot jump back to {shown(at)}", hint="Use set_clock for a clock that is set back."
                )
            return left

        return await self._run(self._loop.jump_to, seconds)

    async def set_clock(self, at: datetime) -> list[Started]:
        """Sets the store's clock, forward or back, as an operator might. No time passes. Returns the starts since the
        previous call."""
        target = aware(at, "at")

        def seconds() -> float:
            self._skew += target - self.now
            return 0.0

        return await self._run(self._loop.run_to, seconds)

    async def _run(self, move: Callable[[float], bool], seconds: Callable[[], float]) -> list[Started]:
        """Moves time by that many seconds. Whenever a wait of another task of the running loop ends, time stands still
        until that task has done its part."""
        if asyncio.get_running_loop() is self._loop:
            raise Conflict(
                "A simulated task tried to move the simulation's time, in which it runs itself",
                hint="Await asyncio.sleep(…) in the task; call advance and jump in the test.",
            )
        async with self._moving:
            self._check_open()
            await self._waiters.settled()
            to = self._loop.time() + seconds()
            is_there = await self._turns.call(move, to)
            while not is_there:
                await self._waiters.settled()
                self._check_open()
                # The other task may itself have awaited app.wait, which moves time.
                is_there = await self._turns.call(self._loop.run_to, max(to, self._loop.time()))
            return self._taken()

    def _taken(self) -> list[Started]:
        starts, self._starts = self._starts, []
        return starts

    # ---- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Simulation:
        if self._app.engine is not None:
            raise Conflict("This app runs already; a simulation would run it a second time", hint="Stop it first.")
        self._before = self._app.home
        self._home = _SimulatedStoreLoop(self._turns, self._waiters, self._make, self._ready)
        self._home.keeps_store = self._app.url == "sqlite://"
        self._app.home = self._home
        self._listening = self._app.events.listen(self._started, AttemptStarted)
        if self._scheduler is not None:
            self._take_in(self._scheduler)
            return self
        try:
            await self._through(self._open())
        except BaseException:
            await self._end()
            raise
        return self

    def _take_in(self, scheduler: Scheduler) -> None:
        """Carries out the scheduler's calls in the simulation, on simulated time."""

        async def perform(work: Coroutine[Any, Any, None]) -> None:
            if asyncio.get_running_loop() is self._loop:
                await work
            else:
                self._check_open()
                await self._through(work, limit=LONGEST_STOP)

        scheduler.app.perform = perform
        scheduler.app.clock = lambda: self.now
        scheduler.app.surroundings = lambda: (_SimulatedHost(self._loop, self._tuning), self._tuning)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._waiters.end()
            await self._waiters.settled()
            if kind is None and self._scheduler is not None:
                await self._scheduler.stop()
            elif kind is None:
                await self._through(self._app.shut(), limit=self._app.grace_period + 60)
            else:
                await self._through(self._crash())
        finally:
            await self._end()

    async def crash(self) -> list[Started]:
        """Drops the process' memory without stopping anything, as a power cut does. Returns the starts since the
        previous call.

        An app is started again on the same store. A declarative scheduler becomes Uninitialized.
        """
        self._check_open()
        await self._through(self._crash())
        if self._scheduler is None:
            await self._through(self._open())
        return self._taken()

    async def _open(self) -> None:
        await self._app.open(_SimulatedHost(self._loop, self._tuning), self._tuning)

    async def _crash(self) -> None:
        engine = self._app.forget_engine()
        if self._scheduler is not None:
            self._scheduler.app.forgotten()
        if engine is None:
            return
        await _killed(engine, self.store)
        if self._home is not None and self._app.url != "sqlite://":
            await self._home.close()

    async def _end(self) -> None:
        if self._listening is not None:
            self._listening()
        if self._home is not None and self._app.url == "sqlite://" and self.store is not None:
            await self._through(self.store.driver.close())
        await self._turns.close()
        if self._before is not None:
            self._app.home = self._before
        if self._scheduler is not None:
            self._scheduler.app.leave_simulation()

    def _started(self, event: AttemptStarted) -> None:
        task = event.task if self._scheduler is None else task_name(event.job)
        self._starts.append(Started(event.job, task, self.now))

    def _check_open(self) -> None:
        if self._app.home is not self._home:
            raise Conflict("This simulation is not open", hint="Write: async with Simulation(app) as sim: …")

    async def _through(self, work: Coroutine[Any, Any, Answer], limit: float = 60.0) -> Answer:
        return await self._turns.call(self._loop.run_through, work, limit=limit)

    # ---- the store ---------------------------------------------------------------------------------------------------

    def _make(self) -> FaultyCatalog:
        if self.store is not None and self._app.url == "sqlite://":
            return self.store
        driver = make_driver(self._app.url, clock=lambda: self.now)
        if driver.dialect != "sqlite":
            driver = hold_time_during(driver, self._loop.holding)
        self.store = FaultyCatalog(driver, schedule_finder(self._tuning.modules))
        self.store.random = self._random
        return self.store

    async def _ready(self, store: FaultyCatalog) -> None:
        with self._loop.background():
            await open_or_create(store)
        for node in await store.nodes():
            if node.state == "ALIVE" and not node.lock_free:
                raise Conflict(
                    f"A live node ({node.name or node.node}) works on {self._app.url}: simulated time is not for it",
                    hint="Simulate an app with a store of its own, such as sqlite://.",
                )
        store.faults = self._faults


async def _killed(engine: Engine, store: FaultyCatalog | None) -> None:
    await engine.crash()
    if store is not None:
        # The operating system frees the locks of a killed process.
        await store.driver.free_lock(engine.node, left=False)


class _SimulatedHost(EngineHost):
    """The engine's host on simulated time: tasks take no time, and timers of the maintenance loops make no moments of
    their own."""

    def __init__(self, loop: VirtualLoop, tuning: EngineSettings) -> None:
        self._loop = loop
        self.threads = LockstepThreads(loop)
        self.processes = _HeldProcesses(loop, memory_limit=tuning.process_memory, tee=tuning.tee)
        self.watchdog = Watchdog(loop.time)

    def background(self) -> AbstractContextManager[None]:
        return self._loop.background()


class _HeldProcesses(Processes):
    """Real processes. Simulated time stands still until a process has answered."""

    def submit(self, work: Any, *, done: Any, output: Any, request: Any) -> Any:
        loop = self.loop
        assert isinstance(loop, VirtualLoop)
        loop.hold()

        def finished(value: Any, failure: Any) -> None:
            loop.release()
            done(value, failure)

        return super().submit(work, done=finished, output=output, request=request)

    async def close(self) -> None:
        loop = self.loop
        assert isinstance(loop, VirtualLoop)
        with loop.holding():
            await super().close()


class _SimulatedStoreLoop(StoreLoop):
    """The store in the virtual loop. A call from outside runs that loop until the answer is there."""

    look_every = 600.0
    """Long, because a change in the simulation wakes a ticker at once."""

    def __init__(
        self,
        turns: LoopThread,
        waiters: Waiters,
        make: Callable[[], Any],
        prepare: Callable[[Any], Awaitable[None]],
    ) -> None:
        super().__init__(make, prepare)
        self.keeps_store = False
        self._turns = turns
        self._waiters = waiters
        self._loop = turns.loop

    async def call(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        self.refuse_inside_transaction()
        if asyncio.get_running_loop() is self._turns.loop:
            return await work(await self.store())
        # The coroutine is created when its turn comes, so that a call that is cancelled before leaves none behind.
        return await self._waiters.call(lambda: self._turns.loop.run_through(self._there(work)))

    async def wait_for(self, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer | None:
        self.refuse_inside_transaction()
        if asyncio.get_running_loop() is self._turns.loop:
            return await work()
        return await self._waiters.wait_for(work)

    def call_blocking(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        self.refuse_inside_transaction()
        if loop_wait.here.park is not None:
            return loop_wait.awaited(asyncio.run_coroutine_threadsafe(self._there(work), self._turns.loop))
        return asyncio.run(self._turns.call(self._turns.loop.run_through, self._there(work)))

    def settle_here(self) -> None:
        """Does nothing: the virtual loop is always the owner."""

    async def close(self) -> None:
        """Keeps a store in memory open until the simulation ends, because it is the whole catalog."""
        if self.keeps_store:
            self._store = None
        else:
            await super().close()
