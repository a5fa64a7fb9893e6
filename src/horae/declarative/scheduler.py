"""The declarative `Scheduler`: initialize(registrations), stop(), and the states between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from horae.core.declarative import PREFIX, task_name
from horae.core.time.zone import zone, zone_name
from horae.declarative import events
from horae.declarative.application import DeclarativeApp, read_declared
from horae.declarative.errors import (
    SchedulerAlreadyActiveError,
    SchedulerError,
    SchedulerInitializationError,
    SchedulerStopError,
)
from horae.declarative.host import host_zone
from horae.declarative.registrations import RegisteredTask, checked_registrations
from horae.declarative.state import TaskState, read_task
from horae.engine.handlers import is_async
from horae.errors import InvalidInput, shown
from horae.events import AttemptEnded, AttemptStarted, RunEnded, RunParked

_log = logging.getLogger("horae.declarative")
Listener = Callable[[events.SchedulerEvent], None]


class SchedulerState(StrEnum):
    """The state of a scheduler between its calls."""

    UNINITIALIZED = "Uninitialized"
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class Scheduler:
    """Runs the registered callbacks when their cron expressions come due, over one catalog.

    `tz` is the zone of the cron expressions, a name or a ZoneInfo; None means the host's zone. `listener` is called
    with every event; it must be a plain function.

        scheduler = Scheduler("sqlite:///state.db")
        await scheduler.initialize([("report", "0 * * * *", report, timedelta(minutes=5))])
    """

    def __init__(
        self, store: str = "sqlite:///horae.db", tz: str | tzinfo | None = None, listener: Listener | None = None
    ) -> None:
        if listener is not None and (not callable(listener) or is_async(listener)):
            raise InvalidInput(f"{shown(listener)} cannot listen: it has to be a plain function of one event")
        self.app = DeclarativeApp(store)
        """The app behind the scheduler, with the operations, events and metrics of every app."""
        self.zone = host_zone() if tz is None else zone_name(tz)
        zone(self.zone)  # raises now for an unknown zone
        self.app.forgotten = self._forget
        self.app.dropped = self._dropped
        self.app.callbacks.stood_down = self._stood_down
        self._listener = listener
        self._state = SchedulerState.UNINITIALIZED
        self._identifier: UUID | None = None
        self._beginning: asyncio.Future[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polled: set[str] = set()
        """The jobs of the registered tasks, without those that were dropped."""
        self._retrying: dict[str, str] = {}
        self._errors: dict[str, str | None] = {}
        stream = self.app.events
        stream.listen(self._attempt_started, AttemptStarted)
        stream.listen(self._attempt_ended, AttemptEnded)
        stream.listen(self._run_parked, RunParked)
        stream.listen(self._run_ended, RunEnded)

    @property
    def state(self) -> SchedulerState:
        return self._state

    @property
    def identifier(self) -> str | None:
        """An id that is generated at the first initialize() and that marks the runs of this scheduler. None before."""
        return None if self._identifier is None else str(self._identifier)

    # ---- the two calls -----------------------------------------------------------------------------------------------

    def initialize(self, registrations: Any) -> Coroutine[Any, Any, None]:
        """Starts the scheduler with these registrations, each `(name, cron expression, async callback, retry delay)`.

        Invalid registrations raise here, before anything is awaited. Tasks of the catalog that are not registered stay
        there but do not run. Raises SchedulerAlreadyActiveError while the scheduler is initializing or running. While
        it is stopping, the returned coroutine first waits for the stop.
        """
        self._check_inactive()
        registered = checked_registrations(registrations, self.zone)
        return self.app.perform(self._initialize(registered))

    def stop(self) -> Coroutine[Any, Any, None]:
        """Stops the scheduler: nothing new is started, and the call returns when every callback has ended.

        It waits for an initialize() that is under way. It does nothing if the scheduler does not run. If the caller is
        cancelled, the stop goes on, and another stop() waits for it. Raises SchedulerStopError in a callback, and in
        another event loop than the scheduler's.
        """
        return self.app.perform(self._stop())

    def _check_inactive(self) -> None:
        if self._beginning is not None:
            raise SchedulerAlreadyActiveError("initializing")
        if self._state is SchedulerState.RUNNING:
            raise SchedulerAlreadyActiveError("running")

    async def _initialize(self, registered: list[RegisteredTask]) -> None:
        self._check_inactive()
        over = self._beginning = asyncio.get_running_loop().create_future()
        try:
            if self._ending is not None:
                await asyncio.shield(self._ending)
            self._enter(SchedulerState.INITIALIZING)
            self._tell(events.SchedulerInitializationStarted(self._now()))
            try:
                await self._begin(registered)
            except BaseException as error:
                self._enter(SchedulerState.UNINITIALIZED)
                self._loop = None
                self._tell(events.SchedulerInitializationFailed(self._now(), error))
                if isinstance(error, SchedulerError) or not isinstance(error, Exception):
                    raise
                raise SchedulerInitializationError(error) from error
        finally:
            self._beginning = None
            over.set_result(None)

    async def _begin(self, registered: list[RegisteredTask]) -> None:
        if self._identifier is None:
            self._identifier = uuid4()
        self.app.node = PREFIX + str(self._identifier)
        self.app.take(registered)
        self._loop = asyncio.get_running_loop()
        await self.app.open(*self.app.surroundings())
        try:
            self._opened(registered)
        except BaseException:
            await self.app.shut()
            raise

    def _opened(self, registered: list[RegisteredTask]) -> None:
        """Announces the start. No callback has started yet, because that would take an await."""
        self._retrying = {each.job_name: each.retry_run for each in self.app.standings if each.retry_run is not None}
        self._errors.clear()
        self._polled = {each.spec.name for each in registered}
        if self._polls:
            self._tell(events.PollingStarted(self._now()))
        self._enter(SchedulerState.RUNNING)
        self._tell(events.SchedulerInitializationCompleted(self._now()))

    async def _stop(self) -> None:
        if self._is_called_back(asyncio.current_task()):
            raise SchedulerStopError(
                "stop() was awaited by a callback, which it would wait for",
                hint="Let a task of its own await it: asyncio.create_task(scheduler.stop()).",
            )
        if self._state is not SchedulerState.STOPPED and self._loop not in (None, asyncio.get_running_loop()):
            raise SchedulerStopError(
                "stop() was awaited in another event loop than the one the scheduler works in",
                hint="Await it in the loop that awaited initialize().",
            )
        while self._beginning is not None:
            await asyncio.shield(self._beginning)
        if self._state is SchedulerState.RUNNING:
            self._enter(SchedulerState.STOPPING)
            self._ending = asyncio.get_running_loop().create_task(self._end())
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end(self) -> None:
        polls = self._polls
        self._polled = set()
        try:
            self._tell(events.SchedulerStopRequested(self._now()))
            if polls:
                self._tell(events.PollingStopRequested(self._now()))
            await self.app.shut()
        finally:
            # After a simulated crash during the stop, the state belongs to the restarted scheduler.
            if self._ending is asyncio.current_task():
                if polls:
                    self._tell(events.PollingStopped(self._now()))
                self._enter(SchedulerState.STOPPED)
                self._ending = self._loop = None
                self._tell(events.SchedulerStopped(self._now()))

    def _is_called_back(self, task: asyncio.Task[Any] | None) -> bool:
        engine = self.app.engine
        if engine is None or task is None:
            return False
        return any(attempt.handle is task for run in engine.ledger.runs.values() for attempt in run.attempts.values())

    def _forget(self) -> None:
        """Resets the scheduler as a killed process would be: only the catalog is left."""
        self._state = SchedulerState.UNINITIALIZED
        if self._ending is not None:
            self._ending.cancel()
        self._identifier = self._beginning = self._ending = self._loop = None
        self._polled = set()
        self._retrying, self._errors = {}, {}

    def _dropped(self, job: str) -> None:
        """Notes that a job was dropped. Polling stops with the last one."""
        if job in self._polled and self._state is SchedulerState.RUNNING:
            self._polled.discard(job)
            if not self._polls:
                self._tell(events.PollingStopped(self._now()))

    @property
    def _polls(self) -> bool:
        return bool(self._polled)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _enter(self, state: SchedulerState) -> None:
        _log.debug("scheduler: %s -> %s", self._state, state)
        self._state = state

    def _now(self) -> datetime:
        return self.app.clock()

    def _tell(self, event: events.SchedulerEvent) -> None:
        # The engine logs the events of runs already, so task events are logged at DEBUG.
        _log.log(logging.DEBUG if isinstance(event, events.TaskEvent) else logging.INFO, "%s", event)
        if self._listener is None:
            return
        try:
            self._listener(event)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - a listener's error must not stop the scheduler
            _log.exception("the listener failed at %s", event.name)

    def _stood_down(self, job: str) -> None:
        self._tell(events.SchedulerStoodDown(self._now(), task_name(job)))

    def _attempt_started(self, event: AttemptStarted) -> None:
        waiting = self._retrying.pop(event.job, None)
        task = task_name(event.job)
        if waiting is not None and waiting == event.run_id:
            self._tell(events.TaskRetryStarted(self._now(), task))
            return
        if waiting is not None:
            self._tell(events.TaskRetryPreempted(self._now(), task))
        self._tell(events.TaskRunStarted(self._now(), task))

    def _attempt_ended(self, event: AttemptEnded) -> None:
        if event.error is not None:
            self._errors[event.run_id] = event.error

    def _run_parked(self, event: RunParked) -> None:
        self._retrying[event.job] = event.run_id
        error = self._errors.pop(event.run_id, None)
        self._tell(events.TaskRunFailed(self._now(), task_name(event.job), error, event.until))

    def _run_ended(self, event: RunEnded) -> None:
        self._errors.pop(event.run_id, None)
        if event.state == "COMPLETED":
            self._tell(events.TaskRunCompleted(self._now(), task_name(event.job)))


async def read_state(store: str | Scheduler) -> dict[str, TaskState]:
    """The state of every task in a catalog, by name: those registered now and those that are dormant.

    `store` is the catalog's URL, or a scheduler, started or not. Raises TaskTryDeserializeError for an unreadable task,
    and StoreMissing if there is no catalog.
    """
    if isinstance(store, str):
        tasks = await read_declared(store)
    elif not isinstance(store, Scheduler):
        raise InvalidInput(f"Cannot read the state of {shown(store)}", hint="Give a catalog's URL, or a scheduler.")
    elif store.app.engine is None and store.app.url != "sqlite://":
        tasks = await read_declared(store.app.url)  # opening the scheduler's own store would create the file
    else:
        tasks = await store.app.home.call(lambda opened: opened.declared())
        if store.app.engine is None:
            await store.app.close()
    return {state.name: state for state in map(read_task, tasks)}
