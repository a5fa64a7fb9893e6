"""The `Horae` app: definitions, operations and the engine of one program, over one catalog."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo
from functools import cached_property
from types import TracebackType
from typing import Any

from horae.app.definitions import Definitions
from horae.app.fork import watch_forks
from horae.app.process.import_paths import handler_finder
from horae.app.process.node_tools import Toolbox, find_configuration
from horae.app.process.protection import log_protections
from horae.app.process.service import blocked_run
from horae.app.store_loop import StoreLoop
from horae.app.stores import make_store, open_or_create
from horae.app.sync import SyncOperations
from horae.app.ticker import Ticker
from horae.config import Configuration
from horae.core.job.ids import checked_name
from horae.core.job.policies import checked_choice
from horae.core.time.duration import DurationLike, parse_duration
from horae.engine.attempts.tools import EngineCatalog, TaskResources
from horae.engine.engine import Engine, EngineHost
from horae.engine.limits import SHUTDOWNS, EngineSettings, parse_tuning
from horae.errors import Conflict, InvalidPolicy, StoreError, shown
from horae.events import Stream
from horae.logs import attach
from horae.metrics import CLAIM, Metrics
from horae.services.explain.wait_facts import waiting_now
from horae.store.catalog.catalog import Catalog
from horae.store.protocols.store import Store

TOTALS_WITHIN = 5.0
"""Seconds that `scrape` waits for the catalog's totals. Scrapers seldom wait longer than 10 s for the whole page."""


class Horae(Definitions):
    """A scheduler over one catalog: define jobs, then `run()`, `async with app`, or `start()` and `stop()`.

    app = Horae("sqlite:///horae.db")

    @app.job("hello", Every("10s"))
    def hello(): ...

    app.run()
    """

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
        """Creates an app; opens nothing.

        `store` is the catalog's URL: `sqlite:///FILE`, `sqlite://` for memory, or `postgresql://…`. `node` is the
        node's unique name. `max_concurrent_jobs` is how many runs this node takes at once. `grace_period` is how long
        runs may finish after a stop; `shutdown="cancel"` cancels them first instead of waiting. `defaults` are the
        settings of jobs that do not set their own. `settings` are those of the engine, as under `[scheduler]`; its key
        `configuration` is a Configuration or the path of its file. `timezone` is the zone of schedules that name none,
        in code and in job files; None means UTC.

        Raises InvalidStoreUrl, InvalidPolicy, InvalidConfiguration or another InvalidInput for a bad argument.
        """
        make_store(store)  # checks the URL now; opens nothing
        super().__init__(namespace, defaults, timezone)
        self.url = store
        self.node = None if node is None else checked_name(node, "node name")
        self.slots = check_concurrency(max_concurrent_jobs)
        self.grace_period = parse_duration(grace_period, name="grace_period").total_seconds()
        self.shutdown = checked_choice(shutdown, SHUTDOWNS, "shutdown")
        self._given = dict(settings or {})
        self._named = self._given.pop("configuration", None)
        self._configure(find_configuration(self._named))
        self.events = Stream()
        self.metrics = Metrics()
        self.metrics.attach(self.events)
        attach(self.events)
        self.home = StoreLoop(self._make_store, open_or_create)
        self._phase = "stopped"
        self._guard = threading.Lock()
        self._ending = threading.Lock()
        watch_forks(self)

    def _make_store(self) -> Catalog:
        file_mode = self.configuration.server.file_mode
        return make_store(self.url, modules=self.tuning.modules, file_mode=lambda: file_mode)

    def _configure(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.toolbox = Toolbox(configuration)
        self.tuning = parse_tuning({**configuration.scheduler, **self._given})
        self.registry.imports(self._find_handler(handler_finder(self.tuning.modules)))

    def adjust(
        self,
        *,
        store: str | None = None,
        node: str | None = None,
        slots: int | None = None,
        grace_period: float | None = None,
        configuration: Configuration | None = None,
    ) -> None:
        """Overrides what the app's code says, for its starter, such as the command line. Call it before the app is
        opened.

        `slots` is the node's concurrency limit. A configuration that the code names itself is kept.
        """
        if store is not None:
            make_store(store)
            self.url = store
        if node is not None:
            self.node = checked_name(node, "node name")
        if slots is not None:
            self.slots = check_concurrency(slots)
        if grace_period is not None:
            self.grace_period = grace_period
        if configuration is not None and self._named is None:
            self._configure(configuration)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the app and blocks until SIGINT or SIGTERM.

        The first signal drains; the second one ends the grace period. Raises Conflict if an event loop is already
        running in this thread: use `async with app` there.
        """
        blocked_run(self)

    async def __aenter__(self) -> Horae:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shut()

    def start(self) -> None:
        """Runs the app in a thread beside a sync program until `stop()`. Returns once the engine has started.

        Raises Conflict if the app is already running.
        """
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
        """Stops what `start()` began: drains, releases the runs that did not finish, and closes the store."""
        with self._ending:
            if self.home.has_thread:
                self.home.run_in_thread(self.shut())
                self.home.end_thread()

    async def open(self, host: EngineHost | None = None, tuning: EngineSettings | None = None) -> Engine:
        """Writes the definitions to the catalog and starts the engine in the running loop. Raises Conflict if it
        already runs."""
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

    async def _open(self, host: EngineHost | None = None, tuning: EngineSettings | None = None) -> Engine:
        self.specs()  # raises for a bad definition before anything is opened
        if self.home.is_idle_elsewhere and self.url != "sqlite://":
            # Earlier sync calls opened the store in a thread of its own, which is no longer needed.
            await asyncio.to_thread(self.home.leave_thread)
        self.home.settle_here()
        store = await self.home.store()
        tools = self.make_tools(store, simulated=host is not None)
        self.registry.able(*await tools.abilities())
        if tools.external.enabled:
            log_protections(self.configuration, store)
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
        """Opens the store before the engine starts. Raises StoreUnavailable if the store cannot be reached."""
        if not self.home.is_idle_elsewhere:
            self.home.settle_here()
            await self.home.store()

    def make_tools(self, vault: EngineCatalog, *, simulated: bool) -> TaskResources:
        """Makes the tools of this node's attempts. Subclasses override it."""
        return self.toolbox.tools(vault, simulated=simulated)

    async def prepare(self, store: Store) -> None:
        """Called once the node has joined and before it takes runs. Subclasses override it."""

    async def shut(self, between: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stops the engine if it runs, and closes the store. `between` is awaited after the engine has stopped.

        Raises Conflict while the app is starting or stopping.
        """
        with self._guard:
            if self._phase in ("starting", "stopping"):
                raise Conflict(f"This app is {self._phase} just now", hint="Wait for that first.")
            running, self._phase = self._phase == "running", "stopping"
        engine = self.engine
        try:
            if running and engine is not None:
                await engine.stop()
        finally:
            # After a simulated crash during the stop, the store belongs to the restarted engine.
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
        """Closes an idle SQLite store before a fork, because a copy of its connection would do harm."""
        if self._phase == "stopped":
            self.home.rest()

    def after_fork(self) -> None:
        """Resets the app in the child of a fork to one that was never started. The parent's runs go on in the parent
        alone."""
        engine = self.forget_engine()
        self._guard, self._ending = threading.Lock(), threading.Lock()
        self.home.after_fork(engine)

    def forget_engine(self) -> Engine | None:
        """Drops the engine without stopping it, as a crash would. Used by simulations and after a fork."""
        engine, self.engine, self._phase = self.engine, None, "stopped"
        return engine

    async def close(self) -> None:
        """Closes the store that operations opened on an app that was not started. Raises Conflict if the app is
        running."""
        if self.engine is not None:
            raise Conflict("This app runs; closing its store would stop it", hint="Use stop(), or leave its block.")
        if self.home.has_thread:
            await asyncio.to_thread(self.stop)
        else:
            await self.home.close()

    # ---- operations --------------------------------------------------------------------------------------------------

    @cached_property
    def sync(self) -> SyncOperations:
        """The app's operations as blocking calls for sync code: `app.sync.trigger("nightly")`."""
        return SyncOperations(self)

    async def scrape(self) -> str:
        """Returns the metrics in Prometheus' text format, with the catalog's current totals if it answers in time."""
        try:
            async with asyncio.timeout(TOTALS_WITHIN):
                totals = await self.home.call(lambda store: store.totals())
                waiting = await self.home.call(waiting_now)
            self.metrics.set_totals(totals, Counter(str(run.waiting_for or CLAIM) for run in waiting))
        except (StoreError, TimeoutError):
            # The node's own counters matter most while the catalog does not answer.
            self.metrics.set_totals(None)
        return self.metrics.render()

    def ticker(self, name: str) -> Ticker:
        """Returns a ticker for a job's schedule, which can be iterated, started, stopped and asked for its state."""
        return Ticker(self, checked_name(name))


def check_concurrency(slots: int) -> int:
    """Returns the concurrency limit. Raises InvalidPolicy unless it is a whole number from 1."""
    if type(slots) is not int or slots < 1:
        raise InvalidPolicy(f"Invalid max_concurrent_jobs {shown(slots)}: must be a whole number from 1")
    return slots
