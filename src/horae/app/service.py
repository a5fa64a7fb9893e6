"""`app.run()`: a process that does nothing else, with signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from horae.app.winding import wind_up
from horae.errors import Conflict
from horae.logs import configure

if TYPE_CHECKING:
    from horae.app.horae import Horae
    from horae.engine.engine import Engine

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        configure()
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(_main(app))
        finally:
            left = wind_up(loop)
            asyncio.set_event_loop(None)
        if left:
            # Threads of the user's own that never end would keep the interpreter from ending, signal after signal.
            logging.getLogger("horae").warning("%d threads did not end and are left behind", left)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        return
    raise Conflict("app.run() was called in a running event loop", hint="Write: async with app: …")


async def _main(app: Horae) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    engine: Engine | None = None

    def stop() -> None:
        if told.is_set() and engine is not None:
            engine.force()
        told.set()

    # Signals reach a process' main thread alone; elsewhere whoever started it ends it.
    handled = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    for each in handled:
        loop.add_signal_handler(each, stop)
    try:
        engine = await app.open()
        failed = loop.create_task(engine.failed())
        waiting = loop.create_task(told.wait())
        await asyncio.wait({failed, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if failed.done():
            failed.result()
        failed.cancel()
    finally:
        await app.shut()
        for each in handled:
            loop.remove_signal_handler(each)
