"""The event loop that owns an app's store, and the calls to it from other loops and threads.

The store opens at first use, in the loop that asks first or in the engine's loop. A call from another loop or thread is
carried out in the owning loop. Sync code that calls before anything runs gets a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from horae.app.process.loop_end import close_loop
from horae.errors import Conflict, HoraeError
from horae.executors import transaction
from horae.executors.loop_wait import awaited
from horae.services.service import ServiceCatalog
from horae.store.sqlite.driver import SqliteDriver

Answer = TypeVar("Answer")
CLOSE_SECONDS = 5.0
_MEMORY = ":memory:"
_inherited: set[str] = set()
"""SQLite files that were open in the parent when this process was forked."""
_parent_objects: list[object] = []
"""Objects that belong to the parent process. They are kept for ever, because collecting them would close connections
that the parent uses."""


class StoreLoop:
    """The event loop and the open store of one app."""

    look_every = 30.0
    """Seconds after which a ticker that is not notified of a change reads its job again."""

    def __init__(self, make: Callable[[], Any], ready: Callable[[Any], Awaitable[None]]) -> None:
        """`make` makes the store without opening it; `ready` opens it."""
        self._make = make
        self._ready = ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: ServiceCatalog | None = None
        self._opening: asyncio.Task[ServiceCatalog] | None = None
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._file: str | None = None
        """The SQLite file that is open or being opened."""
        self._under_way = 0
        """Calls from other loops or threads that have not finished."""
        self._pid = os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    async def call(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        """Awaits `work` with the open store, in the owning loop. May be awaited in any loop."""
        self.refuse_inside_transaction()
        self._notice_fork()
        running = asyncio.get_running_loop()
        with self._guard:
            if not self._lives():
                self._settle_in(running)
            home = self._loop
            self._under_way += home is not running
        if home is running:
            return await work(await self.store())
        assert home is not None
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._there(work), home))
        finally:
            self._ended()

    async def wait_for(self, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer | None:
        """Awaits `work`, which may last until a scheduled time comes. A simulation awaits it on simulated time and
        returns None if the simulation ends first."""
        return await work()

    def call_blocking(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        """Like `call`, for sync code. Raises Conflict in a thread whose event loop it would block."""
        self.refuse_inside_transaction()
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise Conflict(
                "app.sync was called in a thread that runs an event loop, which it would block",
                hint="Await the method of the app itself: await app.trigger(…).",
            )
        self._notice_fork()
        with self._guard:
            if not self._lives():
                self._start_thread()
            home = self._loop
            self._under_way += 1
        assert home is not None
        try:
            answer: Future[Answer] = asyncio.run_coroutine_threadsafe(self._there(work), home)
            return awaited(answer)
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._guard:
            self._under_way -= 1

    async def _there(self, work: Callable[[ServiceCatalog], Awaitable[Answer]]) -> Answer:
        return await work(await self.store())

    async def store(self) -> ServiceCatalog:
        """The open store; awaited in the owning loop. Concurrent callers share one opening."""
        if self._store is not None:
            return self._store
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        try:
            return await asyncio.shield(self._opening)
        finally:
            if self._opening is not None and self._opening.done():
                self._opening = None

    async def _open(self) -> ServiceCatalog:
        made = self._make()
        file = self._file_of(made)
        if file in _inherited:
            raise _refused(file)
        self._file = file
        store: ServiceCatalog = made
        try:
            await self._ready(made)
        except BaseException:
            with suppress(HoraeError):
                await store.close()
            self._file = None
            raise
        self._store = store
        return store

    def settle_here(self) -> None:
        """Makes the running loop the owner. Raises Conflict if another loop that still runs is the owner."""
        self._notice_fork()
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
        """Starts an owning loop in a thread of its own, for sync programs."""
        self._notice_fork()
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
        """Closes the store. Awaited in the owning loop."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        store, self._store = self._store, None
        if store is not None:
            # A server that does not answer must not prevent the program from ending.
            with suppress(TimeoutError):
                await asyncio.wait_for(store.close(), CLOSE_SECONDS)
        self._file = None

    def leave_thread(self) -> None:
        """Closes the store that sync calls opened in a thread of its own, and ends that thread. Blocks until it has
        ended."""
        if self._thread is not None:
            self.run_in_thread(self.close())
            self.end_thread()

    def end_thread(self) -> None:
        """Ends the thread that `start_thread` or a sync call started, if there is one."""
        thread, self._thread = self._thread, None
        loop = self._loop
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            self._loop = None

    # ---- forks -------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Before a fork, closes a SQLite file that no call uses. Its next use opens it again, in both processes.

        A file in use stays open, and the child is refused that file.
        """
        if self._file is None or self._file.startswith(_MEMORY) or self._under_way:
            return
        if self._thread is not None:
            if self._thread is not threading.current_thread():
                self.leave_thread()
        elif not self._lives() and not _has_loop():
            loop = asyncio.new_event_loop()
            loop.run_until_complete(self.close())
            loop.close()

    def after_fork(self, *kept: object) -> None:
        """Forgets, in the child, the loop, the thread and the store, which belong to the parent, as `kept` does."""
        if self._file is not None:
            _inherited.add(self._file)
        _parent_objects.extend((self._store, self._opening, self._loop, *kept))
        self._loop = self._thread = self._store = self._opening = self._file = None
        self._guard = threading.Lock()
        self._under_way = 0
        self._pid = os.getpid()

    def _notice_fork(self) -> None:
        """Detects a fork that did not go through Python, so that no fork hook was called."""
        if self._pid != os.getpid():
            self.after_fork()

    def _file_of(self, store: Any) -> str | None:
        """The SQLite file of a store; None where it has another database."""
        driver = getattr(store, "driver", None)
        if not isinstance(driver, SqliteDriver):
            return None
        return f"{_MEMORY} {id(self)}" if driver.path == _MEMORY else str(Path(driver.path).resolve())

    def refuse_inside_transaction(self) -> None:
        joining = transaction.current.get()
        if joining is not None and joining.is_open:
            raise Conflict(
                "The app was called while run.transaction is open",
                hint="Call it before the first statement: what it does is not part of that transaction.",
            )

    @property
    def is_idle_elsewhere(self) -> bool:
        """Whether the owning loop is in a thread that this object started, and is not the running loop."""
        return self._thread is not None and self._loop is not asyncio.get_running_loop()

    @property
    def has_thread(self) -> bool:
        return self._thread is not None

    def _lives(self) -> bool:
        return self._loop is not None and self._loop.is_running()

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> None:
        # A store whose loop has ended can be neither used nor closed: its connections belonged to that loop.
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
                close_loop(loop)

        self._settle_in(loop)
        self._thread = threading.Thread(target=live, name="horae", daemon=True)
        self._thread.start()
        started.wait()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _refused(file: str) -> Conflict:
    if file.startswith(_MEMORY):
        return Conflict(
            "This process was forked, and a store in memory belongs to the process that opened it",
            hint="Use a file or PostgreSQL, which both processes can open.",
        )
    return Conflict(
        f"This process was forked while {file} was open in its parent, and SQLite cannot be used across a fork",
        hint="Start the app after the fork, in each worker (docs/web-servers.md), or app.stop() before it.",
    )
