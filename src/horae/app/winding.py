"""How an event loop ends when something in it does not."""

from __future__ import annotations

import asyncio
import threading

PATIENCE = 1.0
"""Seconds that tasks and threads are waited for at the very end."""


def wind_up(loop: asyncio.AbstractEventLoop) -> int:
    """Closes a loop without waiting for what does not stop; returns how many threads of its executor are left.

    `asyncio.run` would wait for every task that refuses to be cancelled, and for every thread.
    """
    pending = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.wait(pending, timeout=PATIENCE))
    loop.run_until_complete(loop.shutdown_asyncgens())
    executor = getattr(loop, "_default_executor", None)
    threads: list[threading.Thread] = []
    if executor is not None:
        executor.shutdown(wait=False, cancel_futures=True)
        threads = list(getattr(executor, "_threads", ()))
        for thread in threads:
            thread.join(PATIENCE)
    for task in pending:
        if not task.done():
            # Said already: a task that was left behind is an event of its own.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio says it no other way
    loop.close()
    return sum(thread.is_alive() for thread in threads)
