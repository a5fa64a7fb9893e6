"""A pool of warm processes for calculations. A process that takes too long, or whose caller has gone, is killed.

A process is started when a call finds none idle. It is a new program with an environment without secrets. The caller
limits how many calls are under way.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from horae.errors import InvalidInput, ServerUnavailable
from horae.executors.calculator_child import ANSWERED, NO_MEMORY, RAISED
from horae.executors.messages import OUT_OF_MEMORY
from horae.executors.process import Process
from horae.executors.threads import Threads

MOST_USES = 500
"""Calls after which a process is replaced, so that leaks of calls do not add up."""
MEMORY = 2 << 30
"""Bytes of address space that a process may have."""
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Environment variables that a process receives."""
LESS = "Ask for less: a shorter horizon, fewer definitions or occurrences, simpler constraints."


class UnportableCall(Exception):
    """The function, or a value, cannot be sent to another process."""


class CalculationTimedOut(Exception):
    """The call exceeded its time limit, and its process was killed."""


class _Died(Exception):
    """The process ended with that exit code before it answered."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class _Worker:
    """One process, with the call that it currently runs."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.answer: asyncio.Future[tuple[str, Any]] | None = None
        self.number = 0
        self.is_gone = False


class Calculators:
    """A pool of processes for one event loop, the one in which it is first used.

    `memory` is the limit of each process's address space in bytes. At most `idle` idle processes are kept.
    """

    def __init__(self, *, idle: int = 2, memory: int = MEMORY) -> None:
        self._most_idle = idle
        self._memory = memory
        self._numbers = itertools.count(1)
        self._threads: Threads | None = None
        self._workers: set[_Worker] = set()
        """Workers whose processes have not ended."""
        self._idle: list[_Worker] = []
        self._is_closed = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def pids(self) -> list[int]:
        """The processes that have been started and have not ended."""
        return [pid for worker in self._workers if (pid := worker.process.pid) is not None]

    async def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], *, seconds: float
    ) -> Any:
        """Calls the function in a child process; returns or raises what it returns or raises.

        Raises Overdue if it takes longer than `seconds`, InvalidInput if it needs more memory than allowed, Unportable
        if the call cannot be sent, ServerUnavailable if its process was lost.
        """
        data = await asyncio.to_thread(_pickled, function, arguments, dict(named))
        while True:
            worker = self._taken()
            is_used = worker.process.uses > 1
            try:
                async with asyncio.timeout(seconds):
                    kind, value = await self._asked(worker, data)
            except TimeoutError:
                self._kill(worker)
                raise CalculationTimedOut from None
            except _Died as died:
                if died.code == OUT_OF_MEMORY:
                    raise self._too_large() from None
                if is_used and not self._is_closed:
                    continue  # the process may have ended while it was idle, so the call is tried once more
                raise ServerUnavailable(
                    f"The process that worked this out ended before it had the answer (exit code {died.code})",
                    hint="Ask again.",
                ) from None
            except BaseException:
                # The caller does not wait for the answer any more.
                self._kill(worker)
                raise
            self._give_back(worker, is_clean=kind != NO_MEMORY)
            if kind == ANSWERED:
                return value
            if kind == RAISED:
                raise value
            raise self._too_large() if kind == NO_MEMORY else UnportableCall(value)

    async def close(self) -> None:
        """Kills all processes and waits until they have ended. Calls under way raise ServerUnavailable."""
        self._is_closed = True
        self._idle.clear()
        for worker in list(self._workers):
            worker.process.signal(signal.SIGKILL)
        if self._workers:
            self._all_gone = asyncio.get_running_loop().create_future()
            await self._all_gone
        if self._threads is not None:
            self._threads.close()

    def _too_large(self) -> InvalidInput:
        return InvalidInput(
            f"To work this out takes more than {self._memory >> 20} MiB of memory, and was ended",
            hint=LESS,
            details={"bytes": self._memory},
        )

    # ---- one process -------------------------------------------------------------------------------------------------

    def _taken(self) -> _Worker:
        if self._is_closed:
            raise ServerUnavailable("The server is ending", hint="Ask again when a server is back.")
        worker = self._idle.pop() if self._idle else self._started()
        worker.process.uses += 1
        return worker

    def _started(self) -> _Worker:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = Threads(loop)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        worker = _Worker(Process(memory=self._memory, module="calculator_child", environment=environment))
        self._workers.add(worker)
        live = partial(worker.process.live, partial(_post, loop, partial(self._told, worker)))
        self._threads.submit(live, lambda _, error: self._lived(worker, error))
        return worker

    async def _asked(self, worker: _Worker, data: bytes) -> tuple[str, Any]:
        assert self._threads is not None
        if worker.is_gone:
            raise _Died(None)
        worker.number = number = next(self._numbers)
        worker.answer = asyncio.get_running_loop().create_future()
        # An error is ignored: the thread of a process that is gone reports it.
        self._threads.submit(partial(worker.process.send, "work", number, data), lambda *_: None)
        try:
            return await worker.answer
        finally:
            worker.answer = None

    def _told(self, worker: _Worker, kind: Any, *parts: Any) -> None:
        if kind == "gone":
            self._gone(worker, parts[0])
        elif kind == worker.number and worker.answer is not None and not worker.answer.done():
            worker.answer.set_result((parts[0], parts[1]))

    def _lived(self, worker: _Worker, error: BaseException | None) -> None:
        if error is not None:  # the system has no process or descriptor left
            worker.process.close()
            self._gone(worker, None)

    def _gone(self, worker: _Worker, code: int | None) -> None:
        worker.is_gone = True
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.answer is not None and not worker.answer.done():
            worker.answer.set_exception(_Died(code))
        if self._all_gone is not None and not self._workers and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _give_back(self, worker: _Worker, *, is_clean: bool) -> None:
        is_fit = is_clean and worker.process.uses < MOST_USES and not worker.is_gone and not self._is_closed
        if is_fit and len(self._idle) < self._most_idle:
            self._idle.append(worker)
        else:
            self._kill(worker)

    def _kill(self, worker: _Worker) -> None:
        """Kills the process. Nothing is lost, because it has no store, no files and no children."""
        worker.process.signal(signal.SIGKILL)


def _pickled(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
    try:
        return pickle.dumps((function, arguments, named), pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UnportableCall(str(error)) from error


def _post(loop: asyncio.AbstractEventLoop, told: Callable[..., None], *message: Any) -> None:
    """Called in the process's thread, which also unpickles the answer, because that may take long. Raises RuntimeError
    if the loop is closed."""
    if len(message) == 3:
        number, kind, data = message
        message = (number, kind, pickle.loads(data) if data else None)  # noqa: S301 - our own child process wrote it
    loop.call_soon_threadsafe(told, *message)
