"""Processes: a pool of warm child processes for tasks with isolation="process".

A thread starts each process and stays with it until it has ended, because the kernel ties a child to the thread that
started it. The thread reads the messages and passes them to the event loop. A process is used again only after a clean
success.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pickle
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from horae.executors import outcome
from horae.executors.messages import CANCELLED, DIED, OUT_OF_MEMORY, Failure, ProcessWork, check, locate
from horae.executors.output import logs_children
from horae.executors.process import Process
from horae.executors.threads import Threads

__all__ = ["CANCELLED", "DIED", "Failure", "ProcessHandle", "ProcessWork", "Processes", "check", "locate"]

MOST_USES = 500
"""Tasks after which a process is replaced, so that leaks of tasks do not add up."""
END_GRACE = 1.0
"""Seconds that a process that is no longer needed may take to end by itself."""

Done = Callable[[Any, Failure | None], None]
Request = Callable[[str, tuple[Any, ...]], Awaitable[Any]]


class ProcessHandle:
    """One piece of work under way. All methods must be called in the loop's thread."""

    def __init__(self, owner: Processes, number: int, work: ProcessWork, done: Done, request: Request) -> None:
        self._owner = owner
        self.number = number
        self.work = work
        self.done = done
        self.request = request
        self.output: Callable[[str], None]
        self.process: Process | None = None
        self.begun = False
        self.again = False
        """Whether the work was given to a second process because the first died before it could begin."""
        self.cancelled = False
        self.over = False
        self.timer: asyncio.TimerHandle | None = None
        self.questions: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """The process that runs the work; None before it has started and after the work is over."""
        return None if self.process is None else self.process.pid

    def cancel(self) -> None:
        """Asks the task and everything it started to stop (SIGTERM). What is left after `cancel_grace` is killed."""
        if not self.over and not self.cancelled and self.process is not None:
            self.cancelled = True
            self.process.signal(signal.SIGTERM)
            self.timer = self._owner.loop.call_later(self._owner.cancel_grace, self.kill)

    def kill(self) -> None:
        """Kills the task's process and everything it started."""
        if not self.over and self.process is not None:
            self.cancelled = True
            self.process.signal(signal.SIGKILL)


class Processes:
    """A pool of warm processes for one event loop. The caller limits how many tasks run at a time.

    `memory_limit` is the limit of each process's address space in bytes; None is three quarters of the machine's
    memory. At most `idle_limit` idle processes are kept. Printed text arrives every `flush_every` seconds and at the
    end of a task. With `tee` it also goes to this program's standard output and error, unless this program logs it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        memory_limit: int | None = None,
        idle_limit: int = 2,
        cancel_grace: float = 5.0,
        flush_every: float = 1.0,
        tee: bool = True,
    ) -> None:
        self.loop = loop
        self.cancel_grace = cancel_grace
        self._memory = memory_limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
        self._idle_limit = idle_limit
        self._flush_every = flush_every
        self._tee = tee
        self._threads = Threads(loop)
        self._numbers = itertools.count(1)
        self._processes: dict[Process, ProcessHandle | None] = {}
        """Every process that has not ended, with its current work."""
        self._idle: list[Process] = []
        self._closed = False
        self._all_gone: asyncio.Future[None] | None = None

    def submit(
        self, work: ProcessWork, *, done: Done, output: Callable[[str], None], request: Request
    ) -> ProcessHandle:
        """Runs the work in a process. Must be called in the loop's thread, where all callbacks are called too.

        `done(value, failure)` is called once, last. `output` receives the printed text in pieces. `request` answers the
        task's requests, and is cancelled when the task is over. Raises RuntimeError if the pool is closed.
        """
        if self._closed:
            raise RuntimeError("these processes were closed")
        handle = ProcessHandle(self, next(self._numbers), work, done, request)
        handle.output = output
        self._give(handle)
        return handle

    def warm(self, count: int) -> None:
        """Starts processes until `count` are idle."""
        while len(self._idle) < count and not self._closed:
            self._idle.insert(0, self._start())

    async def close(self) -> None:
        """Ends all processes: idle ones end by themselves within a second, busy ones are killed and reported as
        usual."""
        self._closed = True
        self._idle.clear()
        for process, handle in list(self._processes.items()):
            if handle is not None:
                handle.kill()
            else:
                self._retire(process)
        if self._processes:
            self._all_gone = self.loop.create_future()
            await self._all_gone
        self._threads.close()

    # ---- processes ---------------------------------------------------------------------------------------------------

    def _start(self) -> Process:
        process = Process(memory=self._memory, flush_every=self._flush_every, tee=self._tee and not logs_children())
        self._processes[process] = None
        post = partial(self._post, process)
        self._threads.submit(partial(process.live, post), partial(self._lived, process))
        return process

    def _lived(self, process: Process, _: Any, error: BaseException | None) -> None:
        if error is not None:
            process.close()
            what = "its process was lost" if process.pid else "no process could be started"
            self._gone(process, f"{what}: {outcome.told_error(error)}")

    def _post(self, process: Process, *message: Any) -> None:
        """Called in the process's thread. Raises RuntimeError if the loop is closed."""
        if message[0] == "end" and message[2] is not None:
            kind, number, text, *rest = message
            message = (kind, number, json.loads(text), *rest)
        self.loop.call_soon_threadsafe(self._told, process, message)

    def _told(self, process: Process, message: tuple[Any, ...]) -> None:
        kind, *parts = message
        handle = self._processes.get(process)
        if kind == "gone":
            self._gone(process, _death(parts[0], expected=handle is not None and handle.cancelled), code=parts[0])
        elif kind == "ask":
            self._ask(process, handle, *parts)
        elif handle is None or parts[0:1] != [handle.number]:
            return  # "ready", or a late message of work that is over
        elif kind == "begun":
            handle.begun = True
        elif kind == "output":
            handle.output(parts[1])
        elif kind == "end":
            self._end(process, handle, parts)

    def _give(self, handle: ProcessHandle) -> None:
        try:
            process = self._idle.pop() if self._idle else self._start()
        except OSError as error:  # no descriptor is left for its socket
            failure = Failure(DIED, f"no process could be started: {error}")
            self.loop.call_soon(self._finish, None, handle, None, failure)
            return
        self._processes[process] = handle
        handle.process = process
        process.uses += 1

        def sent(_: Any, error: BaseException | None) -> None:
            # The thread of a process that is gone reports it. Work that cannot be pickled was never sent.
            if error is not None and not isinstance(error, OSError) and not handle.over:
                failure = Failure(type(error).__name__, f"the task cannot be sent to a process: {error}")
                self._finish(process, handle, None, failure)
                self._retire(process)

        self._threads.submit(partial(_send_work, process, handle.number, handle.work), sent)

    def _end(self, process: Process, handle: ProcessHandle, parts: list[Any]) -> None:
        _, value, failure, rest, clean = parts
        reuse = clean and not handle.cancelled and not self._closed and process.uses < MOST_USES
        # The pool is updated first, because the callback may submit the next work immediately.
        if reuse and len(self._idle) < self._idle_limit:
            self._processes[process] = None
            self._idle.append(process)
        else:
            self._retire(process)
        try:
            if rest:
                handle.output(rest)
        finally:
            self._finish(process, handle, value, failure)

    def _gone(self, process: Process, reason: str, *, code: int | None = None) -> None:
        handle = self._processes.pop(process, None)
        if process in self._idle:
            self._idle.remove(process)
        if handle is not None and not handle.over:
            if process.ready and not handle.begun and not handle.again and not handle.cancelled and not self._closed:
                # The process died while it was idle, just before it received the work, so the work is tried once more.
                handle.again = True
                self._give(handle)
            else:
                stopped = handle.cancelled and code is not None and code < 0
                self._finish(process, handle, None, Failure(CANCELLED if stopped else DIED, reason))
        if self._all_gone is not None and not self._processes and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _finish(self, process: Process | None, handle: ProcessHandle, value: Any, failure: Failure | None) -> None:
        handle.over = True
        handle.process = None
        if process is not None and self._processes.get(process) is handle:
            self._processes[process] = None
        if handle.timer is not None:
            handle.timer.cancel()
        for question in handle.questions:
            question.cancel()
        handle.done(value, failure)

    def _retire(self, process: Process) -> None:
        """Tells a process to end, and kills it after END_GRACE."""
        self._processes[process] = None
        self._threads.submit(partial(process.send, "leave"), _ignore)
        self.loop.call_later(END_GRACE, process.signal, signal.SIGKILL)

    # ---- requests of tasks -------------------------------------------------------------------------------------------

    def _ask(
        self, process: Process, handle: ProcessHandle | None, work: int, number: int, name: str, data: bytes
    ) -> None:
        if handle is None or handle.number != work:
            self._answer(process, number, None, RuntimeError("the attempt that asks is over"))
            return
        task = self.loop.create_task(self._find_answer(process, handle, number, name, data))
        handle.questions.add(task)
        task.add_done_callback(handle.questions.discard)

    async def _find_answer(self, process: Process, handle: ProcessHandle, number: int, name: str, data: bytes) -> None:
        try:
            arguments = pickle.loads(data)  # noqa: S301 - our own child process wrote it
            value = await handle.request(name, arguments)
        except Exception as error:  # noqa: BLE001 - it is raised again in the task's process
            self._answer(process, number, None, error)
        else:
            self._answer(process, number, value, None)

    def _answer(self, process: Process, number: int, value: Any, error: BaseException | None) -> None:
        # In a thread, because pickling may take long and the process may read slowly.
        if not self._closed:
            self._threads.submit(lambda: process.send("answer", number, *outcome.answer(value, error)), _ignore)


def _send_work(process: Process, number: int, work: ProcessWork) -> None:
    process.send("work", number, pickle.dumps(work, pickle.HIGHEST_PROTOCOL))


def _ignore(_: Any, error: BaseException | None) -> None:
    """Ignores a message that could not be sent: the process is gone, and its thread reports that."""


def _death(code: int, *, expected: bool) -> str:
    """Describes how a process ended before its task did. `expected`: it had been asked to stop."""
    if code == OUT_OF_MEMORY:
        return f"its process ran out of memory (exit code {code})"
    if code >= 0:
        return f"its process ended with exit code {code} before the task did"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    hint = "; the system does so when memory runs out" if -code == signal.SIGKILL and not expected else ""
    return f"its process was killed by {name} (signal {-code}){hint}"
