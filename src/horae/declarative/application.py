"""The app behind a declarative scheduler: its jobs are registrations, its clock is the host's, and it has no limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from horae.app.horae import Horae
from horae.app.store_loop import StoreLoop
from horae.app.stores import make_store, open_or_create, open_present
from horae.core.declarative import HANDLER, NAMESPACE, DeclarationResult, DeclaredTask, RegistrationStatus
from horae.core.job.definition import JobSpec, TaskSpec
from horae.declarative.host import host_clock
from horae.declarative.registrations import RegisteredTask
from horae.declarative.state import read_task
from horae.engine.attempts.tools import EngineCatalog, TaskResources
from horae.engine.engine import EngineHost
from horae.engine.handlers import Handler, HandlerRegistry
from horae.engine.limits import EngineSettings
from horae.events import DefinitionsRegistered
from horae.store.protocols.store import Store
from horae.store.repeat import repeat_verb

Work = Coroutine[Any, Any, None]
_log = logging.getLogger("horae.declarative")
NO_LIMIT = 1_000_000
"""Callbacks that may run at once; the specification has no limit."""
CALLBACK_GRACE = 100 * 366 * 86_400.0
"""Seconds that stop() waits for callbacks: they may run without limit."""


class CallbackRegistry(HandlerRegistry):
    """Callbacks by the name of their job. To the catalog they are one handler, which this node has."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: dict[str, Handler] = {}
        self.stands_down = False
        self.stood_down: Callable[[str], None] = lambda job: None
        """Called with the first job that was refused."""

    def take(self, registered: Sequence[RegisteredTask]) -> None:
        """Replaces the callbacks by those of new registrations."""
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
        """Handles a run of a task that is not registered here, because another scheduler has begun on this catalog
        since.

        The other scheduler's registrations count: this one starts no further runs.
        """
        if not self.stands_down:
            self.stands_down = True
            self.stood_down(job)
            _log.warning("another scheduler has registered other tasks (%s among them): this one starts no more", job)
        return True


_ONE = frozenset({HANDLER})


class DeclarativeApp(Horae):
    """The app of one scheduler. Call `take` with the registrations before it is opened."""

    def __init__(self, store: str) -> None:
        # A callback may block the event loop without limit, and that must not stop the others. If another node has
        # taken a run over meanwhile, the next heartbeat finds out.
        settings = {"late_after": None}
        super().__init__(store, namespace=NAMESPACE, max_concurrent_jobs=NO_LIMIT, settings=settings)
        self.grace_period = CALLBACK_GRACE
        self.callbacks = CallbackRegistry()
        self.registry = self.callbacks
        self.clock: Callable[[], datetime]
        self.home = StoreLoop(lambda: make_store(self.url, clock=lambda: self.clock()), open_or_create)
        self.surroundings: Callable[[], tuple[EngineHost | None, EngineSettings | None]]
        self.perform: Callable[[Work], Work]
        """Awaits the scheduler's calls: in the loop that awaits them, or in a simulation's."""
        self.forgotten: Callable[[], None] = lambda: None
        """Called when a simulation kills the simulated process."""
        self.dropped: Callable[[str], None] = lambda name: None
        """Called with the name of a job that was dropped through this app."""
        self.leave_simulation()
        self.standings: tuple[DeclarationResult, ...] = ()
        self._specs: list[JobSpec] = []

    def leave_simulation(self) -> None:
        self.clock, self.surroundings, self.perform = host_clock, lambda: (None, None), lambda work: work

    def take(self, registered: Sequence[RegisteredTask]) -> None:
        self._specs = [each.spec for each in registered]
        self.callbacks.take(registered)

    async def drop(self, name: str, keep_history: bool = False) -> None:  # noqa: FBT001, FBT002 - the public signature
        await super().drop(name, keep_history)
        self.dropped(name)

    async def register(self, store: Store) -> None:
        """Writes nothing: `prepare` declares the registrations once this node has joined."""

    def make_tools(self, vault: EngineCatalog, *, simulated: bool) -> TaskResources:
        return self.toolbox.tools(vault, simulated=simulated, obeys_system=False)

    async def prepare(self, store: Store) -> None:
        for task in await store.declared():
            read_task(task)  # raises for an unreadable task before anything is written
        self.standings = await repeat_verb(lambda: store.declare(self._specs))
        kinds = [each.standing for each in self.standings]
        self.events.emit(
            DefinitionsRegistered(
                kinds.count(RegistrationStatus.NEW),
                kinds.count(RegistrationStatus.OVERRIDDEN),
                len(kinds) - kinds.count(RegistrationStatus.NEW) - kinds.count(RegistrationStatus.OVERRIDDEN),
            )
        )


async def read_declared(url: str) -> tuple[DeclaredTask, ...]:
    """Reads a catalog's declarative tasks. Creates nothing: raises StoreMissing if there is no catalog."""
    store = await open_present(url)
    try:
        return await store.declared()
    finally:
        await store.close()
