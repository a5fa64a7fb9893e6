"""`Horae`: definitions, operations and the engine of one program, over one catalog."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo
from functools import cached_property
from types import TracebackType
from typing import Any

from horae.app.blocking import Blocking
from horae.app.definitions import Definitions
from horae.app.fork import follow
from horae.app.guarding import tell_protections
from horae.app.home import Home
from horae.app.loading import callables
from horae.app.service import blocked_run
from horae.app.stores import make_store, ready
from horae.app.ticker import Ticker
from horae.app.tools import Toolbox, configured
from horae.config import Configuration
from horae.control.wait_facts import waiting_now
from horae.core.duration import DurationLike, parse_duration
from horae.core.ids import checked_name
from horae.core.policy import chosen
from horae.engine.engine import Engine, Host
from horae.engine.tools import Kept, Tools
from horae.engine.tuning import SHUTDOWNS, Tuning, parse_tuning
from horae.errors import Conflict, InvalidPolicy, StoreError, shown
from horae.events import Stream
from horae.logs import attach
from horae.metrics import CLAIM, Metrics
from horae.store.catalog import Catalog
from horae.store.port import Store

TOTALS_WITHIN = 5.0
"""The catalog has so long to say what a page of metrics tells of it: who scrapes seldom waits for more than 10 s."""


class Horae(Definitions):
    """A scheduler over one catalog: define jobs, then `run()`, `async with app`, or `start()` and `stop()`."""

    def __init__(
        self,
        store: str = "sqlite:///horae.db",
        *,
        node: str | None = None,
        max_concurrent_jobs: int = 50,
        namespace: str = "default",
        grace_period: DurationLike = "30s",
        shutdown: str = "drain",
        defaults: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        timezone: str | tzinfo | None = None,
    ) -> None:
        """`timezone`: the zone of schedules that name none, in code and in job files; UTC where it is left out."""
        make_store(store)  # says now what is wrong with the address; opens nothing
        super().__init__(namespace, defaults, timezone)
        self.url = store
        self.node = None if node is None else checked_name(node, "node name")
        self.slots = checked_slots(max_concurrent_jobs)
        self.grace_period = parse_duration(grace_period, name="grace_period").total_seconds()
        self.shutdown = chosen(shutdown, SHUTDOWNS, "shutdown")
        self._given = dict(settings or {})
        self._named = self._given.pop("configuration", None)
        self._configure(configured(self._named))
        self.events = Stream()
        self.metrics = Metrics()
        self.metrics.attach(self.events)
        attach(self.events)
        self.home = Home(self._make_store, ready)
        self._phase = "stopped"
        self._guard = threading.Lock()
        self._ending = threading.Lock()
        follow(self)

    def _make_store(self) -> Catalog:
        file_mode = self.configuration.server.file_mode
        return make_store(self.url, modules=self.tuning.modules, file_mode=lambda: file_mode)

    def _configure(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.toolbox = Toolbox(configuration)
        self.tuning = parse_tuning({**configuration.scheduler, **self._given})
        self.registry.imports(self._find_handler(callables(self.tuning.modules)))

    def adjust(
        self,
        *,
        store: str | None = None,
        node: str | None = None,
        slots: int | None = None,
        grace_period: float | None = None,
        configuration: Configuration | None = None,
    ) -> None:
        """What whoever starts the app says over what its code says; before it is opened. A configuration that the code
        names stays."""
        if store is not None:
            make_store(store)
            self.url = store
        if node is not None:
            self.node = checked_name(node, "node name")
        if slots is not None:
            self.slots = checked_slots(slots)
        if grace_period is not None:
            self.grace_period = grace_period
        if configuration is not None and self._named is None:
            self._configure(configuration)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until SIGINT or SIGTERM: drains on the first, forces on the second."""
        blocked_run(self)

    async def __aenter__(self) -> Horae:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shut()

    def start(self) -> None:
        """Runs in a thread beside a sync program, until `stop()`."""
        self._begin()
        try:
            self.home.start_thread()
            self.home.run_in_thread(self._open())
        except BaseException:
            self._phase = "stopped"
            if self.home.has_thread:
                self.home.run_in_thread(self.home.close())
                self.home.end_thread()
            raise

    def stop(self) -> None:
        """Stops what `start()` began: drains, hands back what did not finish, closes the store."""
        with self._ending:
            if self.home.has_thread:
                self.home.run_in_thread(self.shut())
                self.home.end_thread()

    async def open(self, host: Host | None = None, tuning: Tuning | None = None) -> Engine:
        """Starts the engine in the running loop: definitions first, then work."""
        self._begin()
        try:
            return await self._open(host, tuning)
        except BaseException:
            self._phase = "stopped"
            await self.home.close()
            raise

    def _begin(self) -> None:
        with self._guard:
            if self._phase != "stopped":
                raise Conflict(f"This app is {self._phase} already", hint="Stop it before you start it again.")
            self._phase = "starting"

    async def _open(self, host: Host | None = None, tuning: Tuning | None = None) -> Engine:
        self.specs()  # says what is wrong with them before anything is opened
        if self.home.is_idle_elsewhere and self.url != "sqlite://":
            # Sync calls before this opened the store in a thread of their own; it is not needed any more.
            await asyncio.to_thread(self.home.leave_thread)
        self.home.settle_here()
        store = await self.home.store()
        tools = self.make_tools(store, simulated=host is not None)
        self.registry.able(*await tools.abilities())
        if tools.external.enabled:
            tell_protections(self.configuration, store)
        await self.register(store)
        engine = Engine(
            store,
            self.registry,
            self.hooks,
            self.events,
            tuning or self.tuning,
            name=self.node,
            slots=self.slots,
            grace_period=self.grace_period,
            shutdown=self.shutdown,
            host=host,
            tools=tools,
        )
        await engine.start(lambda: self.prepare(store))
        self.engine = engine
        self._phase = "running"
        return engine

    async def reach_store(self) -> None:
        """Opens the store, before anything runs. Raises StoreUnavailable where it is away."""
        if not self.home.is_idle_elsewhere:
            self.home.settle_here()
            await self.home.store()

    def make_tools(self, vault: Kept, *, simulated: bool) -> Tools:
        return self.toolbox.tools(vault, simulated=simulated)

    async def prepare(self, store: Store) -> None:
        """Done once the node has joined and before it begins; for apps of another kind."""

    async def shut(self, between: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stops the engine, if it runs, and closes the store; `between` is awaited after the one, before the other."""
        with self._guard:
            if self._phase in ("starting", "stopping"):
                raise Conflict(f"This app is {self._phase} just now", hint="Wait for that first.")
            running, self._phase = self._phase == "running", "stopping"
        engine = self.engine
        try:
            if running and engine is not None:
                await engine.stop()
        finally:
            # A simulated crash in the middle of it has taken the engine away: what comes after is another life's.
            if self.engine is engine:
                await self._shut_store(between)

    async def _shut_store(self, between: Callable[[], Awaitable[None]] | None) -> None:
        self.engine = None
        try:
            if between is not None:
                await between()
        finally:
            try:
                await self.home.close()
            finally:
                self._phase = "stopped"

    def before_fork(self) -> None:
        """Closes a store that nothing uses, where a copy of it would do harm."""
        if self._phase == "stopped":
            self.home.rest()

    def after_fork(self) -> None:
        """In the child: an app that was never started. What its parent runs goes on there, and only there."""
        engine = self.forget_engine()
        self._guard, self._ending = threading.Lock(), threading.Lock()
        self.home.after_fork(engine)

    def forget_engine(self) -> Engine | None:
        """For simulations: takes the engine away as a crash does."""
        engine, self.engine, self._phase = self.engine, None, "stopped"
        return engine

    async def close(self) -> None:
        """Closes what operations on an app that was not started have opened."""
        if self.engine is not None:
            raise Conflict("This app runs; closing its store would stop it", hint="Use stop(), or leave its block.")
        if self.home.has_thread:
            await asyncio.to_thread(self.stop)
        else:
            await self.home.close()

    # ---- operations --------------------------------------------------------------------------------------------------

    @cached_property
    def sync(self) -> Blocking:
        """The same operations for sync code: `app.sync.trigger("nightly")`."""
        return Blocking(self)

    async def scrape(self) -> str:
        """The metrics as Prometheus reads them, with the catalog's totals of this moment where it answers in time."""
        try:
            async with asyncio.timeout(TOTALS_WITHIN):
                totals = await self.home.call(lambda store: store.totals())
                waiting = await self.home.call(waiting_now)
            self.metrics.set_totals(totals, Counter(str(run.waiting_for or CLAIM) for run in waiting))
        except (StoreError, TimeoutError):
            # What this node counted itself is worth reading all the same, then most of all.
            self.metrics.set_totals(None)
        return self.metrics.render()

    def ticker(self, name: str) -> Ticker:
        """The job's schedule as something that ticks, and can be started, stopped and asked."""
        return Ticker(self, checked_name(name))


def checked_slots(slots: int) -> int:
    """How many runs a node works on at once, if that is a number of them."""
    if type(slots) is not int or slots < 1:
        raise InvalidPolicy(f"Invalid max_concurrent_jobs {shown(slots)}: must be a whole number from 1")
    return slots
