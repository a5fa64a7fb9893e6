"""The app behind a declarative scheduler: jobs come from registrations, the clock is the host's, nothing is limited."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from horae.app.home import Home
from horae.app.horae import Horae
from horae.app.stores import make_store, open_present, ready
from horae.core.declarative import HANDLER, NAMESPACE, Declared, DeclaredTask, Standing
from horae.core.job import JobSpec, TaskSpec
from horae.declarative.host import host_clock
from horae.declarative.registrations import Registered
from horae.declarative.state import deserialized
from horae.engine.engine import Host
from horae.engine.registry import Handler, Registry
from horae.engine.tools import Kept, Tools
from horae.engine.tuning import Tuning
from horae.events import DefinitionsRegistered
from horae.store.port import Store
from horae.store.repeat import repeated

Work = Coroutine[Any, Any, None]
_log = logging.getLogger("horae.declarative")
NO_LIMIT = 1_000_000
"""Callbacks that may run at once; the specification knows no limit."""
FOREVER = 100 * 366 * 86_400.0
"""Seconds that stop() waits for callbacks: they may run for as long as they like."""


class Callbacks(Registry):
    """Callbacks by the name of their job. To the catalog they are one handler, which this node has."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: dict[str, Handler] = {}
        self.stands_down = False
        self.stood_down: Callable[[str], None] = lambda job: None
        """Called with the first job that was refused."""

    def take(self, registered: Sequence[Registered]) -> None:
        self._callbacks = {
            each.spec.name: Handler(each.spec.name, each.callback, is_async=True, takes_run=False)
            for each in registered
        }
        self.stands_down = False

    def resolve(self, job: str, task: TaskSpec) -> Handler | None:
        return self._callbacks.get(job)

    @property
    def names(self) -> frozenset[str]:
        return frozenset() if self.stands_down or not self._callbacks else _ONE

    def refuse(self, job: str) -> bool:
        """A run of a task that is not registered here: another scheduler has begun on this catalog, with other tasks.
        What it registered counts; from now on this one leaves everything to it."""
        if not self.stands_down:
            self.stands_down = True
            self.stood_down(job)
            _log.warning("another scheduler has registered other tasks (%s among them): this one starts no more", job)
        return True


_ONE = frozenset({HANDLER})


class Application(Horae):
    """The app of one scheduler. It is told what is registered (`take`) before it is opened."""

    def __init__(self, store: str) -> None:
        # A callback may hold the loop up for as long as it likes: that is no reason to stop the others. Should somebody
        # else have taken a run meanwhile, the next heartbeat says so.
        settings = {"late_after": None}
        super().__init__(store, namespace=NAMESPACE, max_concurrent_jobs=NO_LIMIT, settings=settings)
        self.grace_period = FOREVER
        self.callbacks = Callbacks()
        self.registry = self.callbacks
        self.clock: Callable[[], datetime]
        self.home = Home(lambda: make_store(self.url, clock=lambda: self.clock()), ready)
        self.surroundings: Callable[[], tuple[Host | None, Tuning | None]]
        self.perform: Callable[[Work], Work]
        """How the scheduler's calls are carried out: in the loop that awaits them, or in a simulation's."""
        self.forgotten: Callable[[], None] = lambda: None
        """Called when a simulation has killed the process this was in."""
        self.dropped: Callable[[str], None] = lambda name: None
        """Called with the name of a job that was dropped here."""
        self.leave_simulation()
        self.standings: tuple[Declared, ...] = ()
        self._specs: list[JobSpec] = []

    def leave_simulation(self) -> None:
        self.clock, self.surroundings, self.perform = host_clock, lambda: (None, None), lambda work: work

    def take(self, registered: Sequence[Registered]) -> None:
        self._specs = [each.spec for each in registered]
        self.callbacks.take(registered)

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        await super().drop(name, keep_history)
        self.dropped(name)

    async def register(self, store: Store) -> None:
        """Nothing yet: what is registered is declared once this node has joined."""

    def make_tools(self, vault: Kept, *, simulated: bool) -> Tools:
        return self.toolbox.tools(vault, simulated=simulated, obeys_system=False)

    async def prepare(self, store: Store) -> None:
        for task in await store.declared():
            deserialized(task)  # says what is wrong with it before anything is written
        self.standings = await repeated(lambda: store.declare(self._specs))
        kinds = [each.standing for each in self.standings]
        self.events.emit(
            DefinitionsRegistered(
                kinds.count(Standing.NEW),
                kinds.count(Standing.OVERRIDDEN),
                len(kinds) - kinds.count(Standing.NEW) - kinds.count(Standing.OVERRIDDEN),
            )
        )


async def read_declared(url: str) -> tuple[DeclaredTask, ...]:
    """What a catalog has of declarative tasks. Nothing is created: where there is none, that is raised."""
    store = await open_present(url)
    try:
        return await store.declared()
    finally:
        await store.close()
