"""Where an app's store lives: one event loop, which async code in other loops and sync code in any thread can reach.

The store is opened at first use, in the loop that asks first, or in the loop the engine runs in. Whoever calls from
another loop has the work done there. Sync code that calls before anything runs gets a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from horae.app.winding import wind_up
from horae.control.service import Kept
from horae.errors import Conflict, HoraeError
from horae.runners import transaction
from horae.runners.waiting import awaited

Answer = TypeVar("Answer")
CLOSING = 5.0


class Home:
    """The loop and the open store of one app."""

    def __init__(self, make: Callable[[], Any], ready: Callable[[Any], Awaitable[None]]) -> None:
        """`make` makes the store, not opened yet; `ready` opens it."""
        self._make = make
        self._ready = ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Kept | None = None
        self._opening: asyncio.Task[Kept] | None = None
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    async def call(self, work: Callable[[Kept], Awaitable[Answer]]) -> Answer:
        """Does `work` with the open store, from whatever loop this is awaited in."""
        self.refuse_inside_transaction()
        running = asyncio.get_running_loop()
        with self._guard:
            if not self._lives():
                self._settle_in(running)
            home = self._loop
        if home is running:
            return await work(await self.store())
        assert home is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._there(work), home))

    def call_blocking(self, work: Callable[[Kept], Awaitable[Answer]]) -> Answer:
        """The same from sync code. Raises Conflict in a thread whose event loop it would block."""
        self.refuse_inside_transaction()
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise Conflict(
                "app.sync was called in a thread that runs an event loop, which it would block",
                hint="Await the method of the app itself: await app.trigger(…).",
            )
        with self._guard:
            if not self._lives():
                self._start_thread()
            home = self._loop
        assert home is not None
        answer: Future[Answer] = asyncio.run_coroutine_threadsafe(self._there(work), home)
        return awaited(answer)

    async def _there(self, work: Callable[[Kept], Awaitable[Answer]]) -> Answer:
        return await work(await self.store())

    async def store(self) -> Kept:
        """The open store, in its own loop; several who ask at once wait for one opening."""
        if self._store is not None:
            return self._store
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        try:
            return await asyncio.shield(self._opening)
        finally:
            if self._opening is not None and self._opening.done():
                self._opening = None

    async def _open(self) -> Kept:
        store: Kept = self._make()
        try:
            await self._ready(store)
        except BaseException:
            with suppress(HoraeError):
                await store.close()
            raise
        self._store = store
        return store

    def settle_here(self) -> None:
        """Makes the running loop the home, unless the store lives in another that still runs."""
        running = asyncio.get_running_loop()
        with self._guard:
            if self._lives() and self._loop is not running:
                hint = "Stop it there first: app.stop() or app.close()."
                if self._thread is not None:
                    hint = "A store in memory lives where it was opened: start the app before app.sync, or use a file."
                raise Conflict("This app is at work in another event loop", hint=hint)
            if not self._lives():
                self._settle_in(running)

    def start_thread(self) -> asyncio.AbstractEventLoop:
        """A home in a thread of its own, for sync programs."""
        with self._guard:
            if self._lives() and self._thread is None:
                raise Conflict("This app is at work in another event loop", hint="Stop it there first.")
            if not self._lives():
                self._start_thread()
            assert self._loop is not None
            return self._loop

    def run_in_thread(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def close(self) -> None:
        """Closes the store. Called in the home's own loop."""
        store, self._store = self._store, None
        if store is not None:
            # A server that does not answer must not keep a program from ending.
            with suppress(TimeoutError):
                await asyncio.wait_for(store.close(), CLOSING)

    def leave_thread(self) -> None:
        """Closes the store that sync calls opened in a thread of its own, and ends the thread. Blocks until then."""
        if self._thread is not None:
            self.run_in_thread(self.close())
            self.end_thread()

    def end_thread(self) -> None:
        """Ends the thread this home started, if it did."""
        thread, self._thread = self._thread, None
        loop = self._loop
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            self._loop = None

    def refuse_inside_transaction(self) -> None:
        joining = transaction.current.get()
        if joining is not None and joining.is_open:
            raise Conflict(
                "The app was called while run.transaction is open",
                hint="Call it before the first statement: what it does is not part of that transaction.",
            )

    @property
    def is_idle_elsewhere(self) -> bool:
        """Whether the store lives in this home's own thread, and this is another."""
        return self._thread is not None and self._loop is not asyncio.get_running_loop()

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    def _lives(self) -> bool:
        return self._loop is not None and self._loop.is_running()

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> None:
        # A store of a loop that is gone cannot be closed any more, nor used: its connections belonged to that loop.
        if self._loop is not loop:
            self._store = None
            self._opening = None
        self._loop = loop

    def _start_thread(self) -> None:
        loop = asyncio.new_event_loop()
        started = threading.Event()

        def live() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set)
            try:
                loop.run_forever()
            finally:
                wind_up(loop)

        self._settle_in(loop)
        self._thread = threading.Thread(target=live, name="horae", daemon=True)
        self._thread.start()
        started.wait()
