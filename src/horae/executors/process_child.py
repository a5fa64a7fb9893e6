"""The child process of tasks with isolation="process": takes work from a socket, one at a time, and answers there.

The main thread runs tasks. A second thread listens: it receives work and answers, sends printed text about once a
second, and ends the process when the engine is gone. The process leads its own group, which ends with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import inspect
import itertools
import logging
import os
import pickle
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from horae.executors import outcome
from horae.executors.messages import CLOSED, OUT_OF_MEMORY, SURROUNDINGS, Channel, ProcessWork
from horae.executors.output import Capture, Output, keep_everything
from horae.executors.run import Cancelled, Run, StopFlag
from horae.security.concealment import conceal

_PR_SET_PDEATHSIG = 1


def main(given: Mapping[str, Any]) -> None:
    """Runs the process until it receives the message to end. `given` is what `Process` wrote on the command line."""
    if given["concealed"]:
        # Closes this process's memory to other processes of its user: it receives the node's environment and the task's
        # secrets.
        conceal()
    die_with(given["parent"], given["lifeline"])
    for descriptor in (given["socket"], given["lifeline"]):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no names
    limit_memory(given["memory"])
    # The socket is never closed here: the engine takes its end for the end of this process.
    channel = Channel(socket.socket(fileno=given["socket"]))
    try:
        early = adopt_environment(channel)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # else it stays as it is
    Capture(tee=given["tee"]).install()
    TaskProcess(channel, given["memory"], given["flush_every"]).serve(early)


def adopt_environment(channel: Channel) -> list[tuple[Any, ...]]:
    """Requests the engine's environment and arguments and adopts them; returns the messages that arrived meanwhile."""
    channel.send(CLOSED)
    early: list[tuple[Any, ...]] = []
    while (messages := channel.receive()) is not None:
        for at, (kind, *parts) in enumerate(messages):
            if kind == SURROUNDINGS:
                variables, sys.argv[:] = parts
                os.environ.clear()
                os.environ.update(variables)
                return early + messages[at + 1 :]
            early.append(messages[at])
    os._exit(1)  # the engine is gone


def die_with(parent: int, lifeline: int) -> None:
    """Makes the kernel end this process and everything it started when the engine's process ends, in whatever way.

    The lifeline is a pipe that is never written to. On Linux its end sends SIGKILL to the whole group. The parent's
    death sends SIGKILL to this process alone, in case another process holds the pipe open. On other systems the
    listening thread notices the end.
    """
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the request took effect


def limit_memory(size: int) -> None:
    """Limits the address space in bytes, and makes this process the first to be killed when the machine runs out of
    memory."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    size = size if hard == resource.RLIM_INFINITY else min(size, hard)
    with suppress(OSError, ValueError):  # not every system allows it
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


class TaskProcess:
    """Runs work, one piece after another."""

    def __init__(self, channel: Channel, memory: int, flush_every: float) -> None:
        self._channel = channel
        self._memory = memory
        self._flush_every = flush_every
        self._pid = os.getpid()
        self._works: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[tuple[Any, ...]], None]] = {}
        """Requests without an answer so far."""
        self._number = 0
        self._busy = False
        self._output: Output | None = None
        self._secrets: list[str] = []
        self._levels: Mapping[str, int] = {}
        self._flushing = threading.Lock()
        # Read by the handler of SIGTERM:
        self._in_task = False
        self._sending = False
        self._stop = StopFlag()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def serve(self, early: list[tuple[Any, ...]]) -> None:
        """Runs work until it receives the message to leave. `early` are messages that have arrived already."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        os.register_at_fork(after_in_child=self._after_fork)
        self._take_in(early)
        threading.Thread(target=self._listen, name="horae-listen", daemon=True).start()
        self._channel.send("ready")
        while (item := self._works.get()) is not None:
            self._work(*item)
            del item

    # ---- running work ------------------------------------------------------------------------------------------------

    def _work(self, number: int, data: bytes) -> None:
        self._number, self._stop = number, StopFlag()
        place = _here()
        text, note, failure = None, "", None
        try:
            try:
                work: ProcessWork = pickle.loads(data)  # noqa: S301 - the engine that started this process wrote it
                self._prepare(work)
                value = contextvars.copy_context().run(self._call, work)
            finally:
                self._in_task = False
            failure = outcome.interruption(self._stop)
            if failure is None:
                text, note = outcome.as_json(value, work.result_limit)
            del value
        except BaseException as error:  # noqa: BLE001 - any error ends the task, not the process
            failure = outcome.failure_of(error, asked=self._stop.asked, memory=self._memory, secrets=self._secrets)
        self._flush_streams()
        if os.getpid() != self._pid:
            os._exit(0 if failure is None else 1)  # a fork that the task made returned here: it must not answer
        clean = failure is None and place is not None and place == _here() and self._is_clean()
        with self._flushing:
            keep_everything(None)
            rest = "" if self._output is None else self._output.close()
            self._output, self._busy = None, False
            self._channel.send("end", number, text, failure, rest + note, clean)

    def _prepare(self, work: ProcessWork) -> None:
        for name in self._levels.keys() | work.levels.keys():
            level, logger = work.levels.get(name, logging.NOTSET), logging.getLogger(name)
            if logger.level != level:
                logger.setLevel(level)
        self._levels = work.levels
        self._secrets = []
        self._output = Output(work.output_limit)
        keep_everything(self._output)
        self._channel.send("begun", self._number)

    def _call(self, work: ProcessWork) -> Any:
        self._in_task = True
        function = outcome.load(work)
        arguments: tuple[Run, ...] = ()
        if work.takes_run:
            is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
            ask: Callable[..., Any] = self.ask_from_loop if is_async else self.ask
            arguments = (Run.in_child(work.facts, ask, self._stop, self._blacken),)
        value = function(*arguments)
        return asyncio.run(self._await(value)) if inspect.isawaitable(value) else value

    async def _await(self, awaitable: Awaitable[Any]) -> Any:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        try:
            return await awaitable
        finally:
            self._task = None

    def _blacken(self, secret: str) -> None:
        """Removes a secret from this process's output. The output also goes directly to the engine's streams, so the
        engine cannot remove it."""
        # Imported here, so that tasks without secrets start faster.
        from horae.security.redaction import Redactor

        self._secrets.append(secret)
        if self._output is not None:
            self._output.blacken_by(Redactor(self._secrets))

    def _on_sigterm(self, *_: Any) -> None:
        """Asks the task to stop: an async task at its next await, a sync one immediately. Ignored between tasks."""
        if not self._in_task or self._stop.asked:
            return
        self._stop.asked = True
        if self._task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, self._task)
        elif not self._sending:
            self._interrupt()

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        """Runs in the task's loop. The task notices the stop at its next await, unless it has ended."""
        if task.cancel():
            self._stop.seen = True

    def _interrupt(self) -> None:
        self._in_task = False
        self._stop.seen = True
        raise Cancelled("the task was asked to stop")

    def _is_clean(self) -> bool:
        """Returns whether the next task finds this process as this one did, as far as that is easy to check."""
        main = threading.main_thread()
        if any(thread is not main and not thread.daemon for thread in threading.enumerate()):
            return False
        if signal.getsignal(signal.SIGTERM) != self._on_sigterm or not hasattr(os, "waitid"):
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _flush_streams(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    # ---- requests to the engine --------------------------------------------------------------------------------------

    def ask(self, name: str, *arguments: Any) -> Any:
        """Sends a request and waits for the answer, in any thread. Raises what the engine raised."""
        answers: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._put(name, arguments, answers.put)
        return outcome.read_answer(*answers.get())

    async def ask_from_loop(self, name: str, *arguments: Any) -> Any:
        """Like `ask`, for async tasks."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, ...]] = loop.create_future()

        def arrived(parts: tuple[Any, ...]) -> None:
            if not answer.done():
                answer.set_result(parts)

        def arriving(parts: tuple[Any, ...]) -> None:
            with suppress(RuntimeError):  # the task did not wait for the answer, and its loop is closed
                loop.call_soon_threadsafe(arrived, parts)

        self._put(name, arguments, arriving)
        return outcome.read_answer(*(await answer))

    def _put(self, name: str, arguments: tuple[Any, ...], receive: Callable[[tuple[Any, ...]], None]) -> None:
        data = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        number = next(self._numbers)
        self._waiting[number] = receive
        message = ("ask", self._number, number, name, data)
        if threading.current_thread() is not threading.main_thread():
            self._channel.send(*message)
            return
        # An interruption during the send would leave half a message in the socket.
        self._sending = True
        try:
            self._channel.send(*message)
        finally:
            self._sending = False
        if self._stop.asked and self._in_task and self._task is None:
            self._interrupt()

    # ---- the listening thread ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while True:
            try:
                arrived = poll.poll(self._flush_every * 1000 if self._busy else None)
                if arrived:
                    self._take_in(self._channel.receive())
                else:
                    self._flush()
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except OSError:
                _end_group()

    def _take_in(self, messages: list[tuple[Any, ...]] | None) -> None:
        if messages is None:
            _end_group()
        for kind, *parts in messages or ():
            if kind == "work":
                self._busy = True
                self._works.put((parts[0], parts[1]))
            elif kind == "answer":
                receive = self._waiting.pop(parts[0], None)
                if receive is not None:
                    receive(tuple(parts[1:]))
            else:
                self._works.put(None)

    def _flush(self) -> None:
        with self._flushing:
            text = "" if self._output is None else self._output.take()
            if text:
                self._channel.send("output", self._number, text)

    def _after_fork(self) -> None:
        """Runs in a fork that the task makes: its text is not captured, and it must not hold the socket."""
        keep_everything(None)
        self._channel.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _here() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _end_group() -> None:
    """Ends the process and its group. The engine is gone, and another node may already run the task again."""
    os.killpg(0, signal.SIGKILL)
