"""A thread for an event loop on virtual time, which alternates with a loop on real time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from horae.testing.virtual_loop import VirtualLoop

_T = TypeVar("_T")
_P = ParamSpec("_P")
_FEW_ROUNDS = 10


def shut_down(loop: VirtualLoop) -> None:
    """Cancels every task, ignores their errors, ends asynchronous generators and executor threads, and closes the loop.

    Raises RuntimeError, after closing the loop, if tasks still run after repeated cancellation.
    """
    try:
        rounds = 0
        while left := asyncio.all_tasks(loop):  # a task that is ending may start others
            if rounds == _FEW_ROUNDS:
                raise RuntimeError(f"Cancelled {rounds} times, tasks would not end: {left}")
            rounds += 1
            with suppress(RuntimeError):
                loop.run_through(_ended(left))
    finally:
        try:
            loop.run_through(loop.shutdown_asyncgens())
            loop.run_through(loop.shutdown_default_executor())
        finally:
            loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    # In the order of creation, as far as their names tell, because a set has no order.
    for task in sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name())):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LoopThread:
    """The thread of a VirtualLoop, which alternates with the loop on real time that awaits it.

    The inner loop runs only during a `call`. In between it is idle and may be inspected from outside: an asyncio.Event
    that is set then is noticed by the next run. Calls are carried out one after another, in the order they were made.
    """

    def __init__(self, loop: VirtualLoop, *, grace: float = 5.0) -> None:
        """`grace` is how long a cancelled call waits for the inner loop to become idle, in real seconds."""
        self.loop = loop
        self.grace = grace
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="alternation")
        self._lock = threading.Lock()
        self._closed = False

    async def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Calls `function` in the thread, and returns or raises what it does. Cancelling the call interrupts the inner
        loop first."""
        if asyncio.get_running_loop() is self.loop:
            raise RuntimeError("The inner loop cannot wait for a call to itself")
        ended = False

        def perform() -> tuple[_T | None, BaseException | None]:
            nonlocal ended
            try:
                return function(*args, **kwargs), None
            except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
                return None, error
            finally:
                with self._lock:  # an interruption that comes later must not hit the next call
                    ended = True
                    self.loop.forget_interruption()

        work = self._thread.submit(perform)
        future = asyncio.wrap_future(work)
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            if not work.cancel():
                with self._lock:
                    if not ended:
                        self.loop.interrupt()
                await asyncio.wait({future}, timeout=self.grace)
            raise
        answer, error = future.result()
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError("What was called in the inner loop was cancelled there") from error
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]  # without an error it is the function's return value

    async def close(self) -> None:
        """Shuts the loop down (`shut_down`) and ends the thread. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.call(shut_down, self.loop)
        finally:
            # Waits for the thread only if the loop is closed, since only then it ends at once.
            self._thread.shutdown(wait=self.loop.is_closed())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
