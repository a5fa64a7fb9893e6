"""A process that runs an app and does nothing else: signals, what runs beside the engine, and how it all ends."""

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

from horae.app.winding import wind_up
from horae.errors import Conflict, StoreConflict, StoreUnavailable
from horae.logs import configure as configure_logs
from horae.runners.output import kept_in_log

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.engine.engine import Engine

__all__ = ["SIGNALS", "Companion", "blocked_run", "configure_logs", "kept_in_log", "run_beside"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RELOAD_SECONDS = 2.0
"""How long a reload that is under way may take to give up, when the process is to end."""
RETRY_SECONDS = 2.0
"""How soon a store that is away when a process starts is tried again."""
REMIND_SECONDS = 30.0
"""How often it is said that it is still away."""
_YOUNG = 10_000
"""Objects that may come to be before the youngest are looked through."""
_log = logging.getLogger("horae")


class Companion:
    """What lives beside the engine, in its loop: a server, say. Nothing of it has to be there."""

    reloads = False
    """Whether SIGHUP is heard; else it ends the process, as it ends others."""

    def waiting(self, seconds: float) -> None:
        """The store is away, and is tried again within so many seconds."""

    async def prepare(self) -> None:
        """Before the engine starts. What it raises keeps everything from starting."""

    async def begin(self, engine: Engine | None) -> None:
        """The engine runs, where one is to."""

    async def failed(self) -> None:
        """Returns when the process should end; raises where something cannot go on."""
        await asyncio.Event().wait()

    async def reload(self) -> None:
        """SIGHUP. Raises nothing."""

    def stopping(self, failed: bool) -> None:  # noqa: FBT001 - the one thing there is to say
        """Somebody said stop, or something failed: the engine is drained now."""

    def force(self) -> None:
        """Somebody said it again."""

    async def end(self) -> None:
        """The engine has stopped, and the store is still open. Called also where the start failed."""


def blocked_run(app: Horae) -> None:
    """Runs `app` until it is told to stop. Raises Conflict where that cannot be."""
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
    """Runs `app` in a loop of its own, with `companion` beside it, until SIGINT or SIGTERM: drains on the first, forces
    on the second. Raises what keeps it from starting, or from going on. Without `runs`, the companion is all there is,
    with the app's store."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_main(app, companion, runs=runs))
    finally:
        left = wind_up(loop)
        asyncio.set_event_loop(None)
    if left:
        # Threads of the user's own that never end would keep the interpreter from ending, signal after signal.
        _log.warning("%d threads did not end and are left behind", left)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


async def _main(app: Horae, companion: Companion, *, runs: bool) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    engine: Engine | None = None
    reloads = _Reloads(companion)
    failed = True

    def stop() -> None:
        if told.is_set():
            companion.force()
            if engine is not None:
                engine.force()
        if engine is not None:
            engine.process_ends = True
        told.set()

    # Signals reach a process' main thread alone; elsewhere whoever started it ends it.
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
    """Opens the store, and waits for one that is away, or whose tables another transaction has locked. False: somebody
    said stop meanwhile. Raises what no waiting mends: a password that is wrong, a database that does not exist."""
    app.specs()  # says what is wrong with them before anything is waited for
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
    """Until the store is tried again, or somebody says stop."""
    companion.waiting(RETRY_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), RETRY_SECONDS)


def _spare_collections() -> None:
    """What is there once everything runs stays: it need not be looked through again and again for what nobody uses.
    What comes later is looked through more seldom, since thousands of rows and runs come and go each second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)


async def _until(told: asyncio.Event, *others: Any) -> None:
    """Until somebody says stop, or one of the others has ended; what that raised is raised."""
    waiting = [asyncio.ensure_future(each) for each in (told.wait(), *others)]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


class _Reloads:
    """One at a time; whoever asks meanwhile has it done once more."""

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
        """Whatever a reload waits for, a file that does not answer, say, keeps nobody from ending."""
        self._again = False
        if self._task is not None and not self._task.done():
            self._task.cancel()
            _, left = await asyncio.wait([self._task], timeout=RELOAD_SECONDS)
            if left:
                _log.warning("a reload does not end and is left behind")
