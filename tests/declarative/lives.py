"""A declarative scheduler on real time, over a file of its own: brought into any state, and what a call does there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from horae.declarative import Registration, Scheduler, SchedulerError, SchedulerEvent, SchedulerState, TaskEvent

Answer = TypeVar("Answer")
STATES = tuple(str(state) for state in SchedulerState)
CALLS = ("initialize", "stop", "initialize, initialize", "initialize, stop", "stop, initialize", "stop, stop")
BEGINS = ["SchedulerInitializationStarted", "PollingStarted", "SchedulerInitializationCompleted"]
ENDS = ["SchedulerStopRequested", "PollingStopRequested", "PollingStopped", "SchedulerStopped"]
PATIENCE = 90.0
"""Real seconds that nothing here may take, however slow the machine is."""


class Life:
    """A scheduler with one task, due at once, whose callback lasts until `let_go`."""

    def __init__(self, url: str) -> None:
        self.heard: list[SchedulerEvent] = []
        self.calls = 0
        self.ended = 0
        self.scheduler = Scheduler(url, tz="UTC", listener=self._listen)
        self._free = asyncio.Event()
        self._called = asyncio.Event()
        self._heard = asyncio.Event()

    def _listen(self, event: SchedulerEvent) -> None:
        self.heard.append(event)
        self._heard.set()

    async def callback(self) -> None:
        self.calls += 1
        self._called.set()
        await self._free.wait()
        self.ended += 1

    @property
    def registrations(self) -> list[Registration]:
        return [("held", "* * * * *", self.callback, timedelta(minutes=5))]

    @property
    def names(self) -> list[str]:
        """The names of what was heard, but for what is about tasks: minutes pass when they like here."""
        return [each.name for each in self.heard if not isinstance(each, TaskEvent)]

    @property
    def state(self) -> str:
        return str(self.scheduler.state)

    def let_go(self) -> None:
        self._free.set()

    async def called_back(self) -> None:
        await asyncio.wait_for(self._called.wait(), PATIENCE)

    async def until(self, event: str) -> None:
        """Until an event of that name was heard."""
        async with asyncio.timeout(PATIENCE):
            while event not in [each.name for each in self.heard]:
                self._heard.clear()
                await self._heard.wait()

    def call(self, name: str) -> Coroutine[Any, Any, None]:
        return self.scheduler.initialize(self.registrations) if name == "initialize" else self.scheduler.stop()

    async def reach(self, state: str) -> asyncio.Task[None] | None:
        """Brings the scheduler into a state; returns the call that is still under way there, if one is."""
        if state == "Uninitialized":
            return None
        beginning = asyncio.create_task(self.call("initialize"))
        if state == "Initializing":
            await self.until("SchedulerInitializationStarted")
            return beginning
        await beginning
        if state == "Running":
            return None
        if state == "Stopped":
            self.let_go()
            await self.scheduler.stop()
            self._free.clear()
            return None
        await self.called_back()
        ending = asyncio.create_task(self.call("stop"))
        await self.until("PollingStopRequested")
        return ending


def live(store: Path | str, body: Callable[[Life], Awaitable[Answer]]) -> Answer:
    """What `body` answers for a scheduler over a file in a folder, or over a URL."""

    async def main() -> Answer:
        async with asyncio.timeout(PATIENCE):
            return await body(Life(f"sqlite:///{store}/state.db" if isinstance(store, Path) else store))

    return asyncio.run(main())


class Walked(NamedTuple):
    """What calls did: what each raised, which events followed, and the state in the end."""

    raised: str
    events: str
    state: str


async def walked(life: Life, state: str, calls: str) -> Walked:
    """Makes the calls one after the other, not waiting for their ends, and then lets everything end."""
    under_way = await life.reach(state)
    assert life.state == state
    since = len(life.names)
    raised: list[str] = []
    begun: list[asyncio.Task[None] | None] = []
    for name in calls.split(", "):
        try:
            begun.append(asyncio.create_task(life.call(name)))
        except SchedulerError as error:
            begun.append(None)
            raised.append(_told(error))
        else:
            raised.append("nothing")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    life.let_go()
    async with asyncio.timeout(PATIENCE):
        for number, each in enumerate(begun):
            if each is not None:
                try:
                    await each
                except SchedulerError as error:
                    raised[number] = f"{_told(error)} later"
        if under_way is not None:
            await under_way
        ended = life.state
        heard = life.names[since:]
        await life.scheduler.stop()
    return Walked(", ".join(raised), ", ".join(heard) or "none", ended)


def _told(error: SchedulerError) -> str:
    return f"{type(error).__name__} ({error.details['currentState']})"
