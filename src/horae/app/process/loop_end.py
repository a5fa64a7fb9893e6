"""Closes an event loop even if tasks or threads in it do not stop."""

from __future__ import annotations

import asyncio
import threading

END_WAIT_SECONDS = 1.0
"""Seconds to wait for the tasks, and for each thread, at the very end."""


def close_loop(loop: asyncio.AbstractEventLoop) -> int:
    """Closes a loop without waiting for tasks and threads that do not stop. Returns how many executor threads still
    run.

    `asyncio.run` would wait without limit for every task that ignores its cancellation, and for every thread.
    """
    pending = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.wait(pending, timeout=END_WAIT_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    executor = getattr(loop, "_default_executor", None)
    threads: list[threading.Thread] = []
    if executor is not None:
        executor.shutdown(wait=False, cancel_futures=True)
        threads = list(getattr(executor, "_threads", ()))
        for thread in threads:
            thread.join(END_WAIT_SECONDS)
    for task in pending:
        if not task.done():
            # Reported already, by the event of an abandoned task.
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - asyncio has no public way
    loop.close()
    return sum(thread.is_alive() for thread in threads)
