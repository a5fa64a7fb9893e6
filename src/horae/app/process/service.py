"""A process that runs an app and nothing else: signals, what runs beside the engine, and the shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from horae.app.process.loop_end import close_loop
from horae.errors import Conflict, StoreConflict, StoreUnavailable
from horae.executors.output import kept_in_log
from horae.logs import configure as configure_logs

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.engine.engine import Engine

__all__ = ["SIGNALS", "Companion", "blocked_run", "configure_logs", "kept_in_log", "run_beside"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RELOAD_SECONDS = 2.0
"""Seconds that a reload under way may take to stop when the process ends."""
RETRY_SECONDS = 2.0
"""Seconds between two tries to open a store that is unavailable at start."""
REMIND_SECONDS = 30.0
"""Seconds between two warnings that the store is still unavailable."""
_YOUNG = 10_000
"""Allocations after which the garbage collector examines the youngest generation."""
_log = logging.getLogger("horae")


class Companion:
    """Something that runs beside the engine in its event loop, such as a server. A subclass overrides only what it
    needs."""

    reloads = False
    """Whether SIGHUP reloads. Otherwise SIGHUP ends the process, which is its default effect."""

    def waiting(self, seconds: float) -> None:
        """The store is unavailable and is tried again within `seconds`."""

    async def prepare(self) -> None:
        """Called before the engine starts. An error raised here prevents the start."""

    async def begin(self, engine: Engine | None) -> None:
        """Called once the engine runs. `engine` is None in a process without an engine."""

    async def failed(self) -> None:
        """Returns when the process should end; raises if it cannot go on."""
        await asyncio.Event().wait()

    async def reload(self) -> None:
        """Called on SIGHUP. Must not raise."""

    def stopping(self, failed: bool) -> None:  # noqa: FBT001 - its only argument
        """Called before the engine drains, after a stop signal or a failure."""

    def force(self) -> None:
        """Called on a second stop signal."""

    async def end(self) -> None:
        """Called after the engine has stopped, while the store is still open; also if the start failed."""


def blocked_run(app: Horae) -> None:
    """Runs `app` until a stop signal.

    Raises Conflict in a task's child process, and in a thread whose event loop is running.
    """
    if os.environ.get("HORAE_CHILD"):
        raise Conflict(
            "app.run() was called while a task's process imported its module",
            hint='Write it under: if __name__ == "__main__":',
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        configure_logs()
        run_beside(app, Companion())
        return
    raise Conflict("app.run() was called in a running event loop", hint="Write: async with app: …")


def run_beside(app: Horae, companion: Companion, *, runs: bool = True) -> None:
    """Runs `app` in an event loop of its own, with `companion` beside it, until SIGINT or SIGTERM.

    The first signal drains, the second one ends the grace period. Raises the error that prevents the start or that ends
    the process. Without `runs` there is no engine: the companion runs alone, with the app's store.
    """
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_main(app, companion, runs=runs))
    finally:
        left = close_loop(loop)
        asyncio.set_event_loop(None)
    if left:
        # The user's threads that never end would prevent the interpreter from exiting, whatever the signal.
        _log.warning("%d threads did not end and are left behind", left)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


async def _main(app: Horae, companion: Companion, *, runs: bool) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    engine: Engine | None = None
    reloads = _Reloader(companion)
    failed = True

    def stop() -> None:
        if told.is_set():
            companion.force()
            if engine is not None:
                engine.force()
        if engine is not None:
            engine.process_ends = True
        told.set()

    # Signals reach the main thread only. In another thread the code that started the app stops it.
    handled: dict[int, Callable[[], None]] = {}
    if threading.current_thread() is threading.main_thread():
        handled = dict.fromkeys(SIGNALS, stop)
        if companion.reloads:
            handled[signal.SIGHUP] = reloads.ask
    for each, handler in handled.items():
        loop.add_signal_handler(each, handler)
    try:
        is_prepared = is_begun = False
        while not is_begun:
            if not await _store_there(app, companion, told):
                failed = False
                return
            try:
                if not is_prepared:
                    await companion.prepare()
                    is_prepared = True
                engine = await app.open() if runs else None
                is_begun = True
            except (StoreUnavailable, StoreConflict) as error:
                _log.warning("the store did not let the node begin, which tries again: %s", error.message)
                await _pause(told, companion)
        _spare_collections()
        await companion.begin(engine)
        await _until(told, companion.failed(), *([] if engine is None else [engine.failed()]))
        failed = False
    finally:
        companion.stopping(failed)
        await reloads.over()
        await app.shut(companion.end)
        for each in handled:
            loop.remove_signal_handler(each)


async def _store_there(app: Horae, companion: Companion, told: asyncio.Event) -> bool:
    """Opens the store, and keeps trying while it is unavailable or another transaction has locked its tables.

    Returns False after a stop signal. Raises errors that waiting does not cure: a wrong password, a missing database.
    """
    app.specs()  # raises for a bad definition before it waits for the store
    loop = asyncio.get_running_loop()
    began, said = loop.time(), float("-inf")
    while not told.is_set():
        opening = loop.create_task(app.reach_store())
        stopped = loop.create_task(told.wait())
        try:
            await asyncio.wait({opening, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return False
            opening.result()
        except (StoreUnavailable, StoreConflict) as error:
            if loop.time() - said >= REMIND_SECONDS:
                said = loop.time()
                _log.warning("waiting for the store, %d s so far: %s", said - began, error.message)
            await _pause(told, companion)
        else:
            if said > float("-inf"):
                _log.info("the store is there, after %d s", loop.time() - began)
            return True
        finally:
            for each in (opening, stopped):
                each.cancel()
            await asyncio.gather(opening, stopped, return_exceptions=True)
    return False


async def _pause(told: asyncio.Event, companion: Companion) -> None:
    """Waits until the store is to be tried again, or until a stop signal."""
    companion.waiting(RETRY_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), RETRY_SECONDS)


def _spare_collections() -> None:
    """Takes the objects that exist at start out of garbage collection, since they stay, and examines new objects less
    often, since thousands of rows and runs come and go each second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)


async def _until(told: asyncio.Event, *others: Any) -> None:
    """Waits for a stop signal or for the first of the others to end. Raises the error of the one that ended."""
    waiting = [asyncio.ensure_future(each) for each in (told.wait(), *others)]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class _Reloader:
    """Runs one reload at a time. Requests that arrive during a reload cause one more."""

    def __init__(self, companion: Companion) -> None:
        self._companion = companion
        self._again = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        self._again = True
        if self._task is not None and not self._task.done():
            _log.info("asked to reload while a reload is under way: it is done once more after it")
        else:
            self._task = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        while self._again:
            self._again = False
            await self._companion.reload()

    async def over(self) -> None:
        """Ends a reload under way, which may wait for a file that does not answer, so that the process can end."""
        self._again = False
        if self._task is not None and not self._task.done():
            self._task.cancel()
            _, left = await asyncio.wait([self._task], timeout=RELOAD_SECONDS)
            if left:
                _log.warning("a reload does not end and is left behind")
