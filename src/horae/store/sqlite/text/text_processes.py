"""Child processes that run users' SQL text on SQLite, for jobs' transactions and SELECTs, and that can be killed.

A process is used again after a clean end. A thread waits for its answers, so that the event loop does not. When a
caller is cancelled, the process is killed, and SQLite rolls back what was not committed. Only a few texts of one owner
run at a time and further ones wait for their turn, so that no owner takes all processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any

from horae.errors import InvalidInput, StatementFailed, StoreUnavailable
from horae.store import foreign_statements
from horae.store.driver import Parameters, RoleChange, Row
from horae.store.protocols.people import Identity
from horae.store.records import Rows
from horae.store.sqlite.text.messages import GO, WAITING, WRITING, receive_plain, send
from horae.store.sqlite.text.sql_text import wrote_too_long
from horae.store.sqlite.text.write_turn import WriteTurn
from horae.store.turns import OwnerTurns

MOST_TEXTS, MOST_OF_ONE = 4, 2
"""Transactions of job text that run at once: in all, and of one owner. SELECTs of users have the same numbers again."""
MOST_IDLE = 2
MOST_USES = 500
"""Uses after which a process is replaced, with all that they have left behind in it."""
GRACE = 1.0
"""Seconds beyond its limit after which the process of a text is killed. Usually the text stops itself before."""
LONGEST_START = 60.0
"""Seconds that a process may take to start and to open the file."""
_BOOT = (
    "import json, sys; given = json.loads(sys.argv.pop()); sys.path[:] = given['path']; "
    "from horae.store.sqlite.text.child import main; main(given['socket'])"
)
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HORAE_UNDISTURBED")
"""Environment variables that the process gets. It needs no secret."""
_NEVER = float("inf")


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


class _ProcessEnded(Exception):
    """The process ended before it answered."""


class _ProcessTimeout(Exception):
    """The process was killed because it did not answer in time. `writing` says whether it had the write lock."""

    def __init__(self, *, writing: bool) -> None:
        super().__init__()
        self.writing = writing


class TextProcess:
    """One child process. Only one thread at a time may call its methods, except `kill`."""

    def __init__(self, path: str, patience: float, turn: WriteTurn) -> None:
        """`patience` is how many seconds a text waits for other writers."""
        self.uses = 0
        self._turn = turn
        self._fit, self._killed = True, False
        self.write_limit = _NEVER
        self._writes_until = _NEVER
        self._end, theirs = socket.socketpair()
        given = {"path": [entry for entry in sys.path if isinstance(entry, str)], "socket": theirs.fileno()}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own code
                [sys.executable, "-c", _BOOT, json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=environment(),
            )
        except BaseException:
            self._end.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.call("open", str(Path(path).absolute()), patience, until=monotonic() + LONGEST_START)

    def call(self, verb: str, *arguments: Any, until: float = _NEVER) -> Any:
        """Sends a command and waits for its answer. Raises the error that the child raised, _Gone, or _TooLate at the
        monotonic time `until`."""
        self._fit = False
        try:
            send(self._end, (verb, *arguments))
            while True:
                self._await_word(min(until, self._writes_until))
                message = receive_plain(self._end)
                if message is None:
                    raise _ProcessEnded
                kind, *rest = message
                if kind == WAITING:
                    self._writes_until = _NEVER
                    continue
                if kind == WRITING:
                    if not self._turn.take(self, lambda: self._killed):
                        raise _ProcessEnded
                    send(self._end, (GO,))
                    self._writes_until = monotonic() + self.write_limit + GRACE
                    continue
                # A process that was killed meanwhile stays unfit, although its answer still arrived.
                self._fit = not self._killed
                if kind == "raised":
                    raise rest[0]
                return rest[0]
        except (OSError, pickle.UnpicklingError):
            raise _ProcessEnded from None

    def _await_word(self, until: float) -> None:
        watch = select.poll()
        watch.register(self._end, select.POLLIN)
        left = None if until == _NEVER else max(0.0, until - monotonic()) * 1000
        if not watch.poll(left):
            self.kill()
            raise _ProcessTimeout(writing=until == self._writes_until)

    def begin(self, now: int, write_limit: float) -> None:
        self.write_limit, self._writes_until = write_limit, _NEVER
        self.call("begin", now, write_limit)

    @property
    def is_fit(self) -> bool:
        """Whether the process is alive and waits for a command."""
        return self._fit and self._process.poll() is None

    def commit(self) -> None:
        self.call("commit")
        self._writes_until = _NEVER
        self._turn.give_back(self)

    def roll_back(self) -> None:
        """Rolls back. A process that does not answer in time is killed, which rolls back as well."""
        if self.is_fit:
            self._writes_until = _NEVER
            with suppress(_ProcessEnded, _ProcessTimeout):
                self.call("roll_back", until=monotonic() + GRACE)
                self._turn.give_back(self)

    def kill(self) -> None:
        """Kills the process, from any thread. A thread that waits for its answer gets _Gone."""
        self._fit, self._killed = False, True
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._turn.look()

    def wait(self) -> None:
        self._process.wait()
        self._turn.give_back(self)

    def bury(self) -> None:
        """Kills the process, waits for its end and closes the socket. No thread may be waiting for an answer."""
        self.kill()
        self.wait()
        self._end.close()


class TextProcessPool:
    """The child processes of one open store."""

    def __init__(self, path: str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._write_turn = WriteTurn()
        self._idle: list[TextProcess] = []
        self._busy: set[TextProcess] = set()
        self._starting = Lock()
        self._made: set[TextProcess] = set()
        """All processes that may be alive. Changed only with `_starting` held."""
        self._threads: ThreadPoolExecutor | None = None
        self._turns = {kind: OwnerTurns(MOST_TEXTS, MOST_OF_ONE) for kind in ("text", "select")}
        self._closed = True

    def open(self) -> None:
        self._closed = False
        self._threads = ThreadPoolExecutor(MOST_TEXTS * 4, thread_name_prefix="horae-text")

    def close(self) -> None:
        """Kills all processes; callers that wait for one get StoreUnavailable."""
        with self._starting:
            self._closed = True
            made, self._made = self._made, set()
        for process in made:
            process.kill()
        for process in made:
            process.wait()
        idle, self._idle = self._idle, []
        for process in idle:
            process.bury()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def select(self, owner: str, sql: str, most: int, seconds: float, *, viewer: bool) -> Rows:
        async with self._lent("select", owner) as process:
            try:
                until = monotonic() + seconds + GRACE
                answer: Rows = await self.within(
                    process, partial(process.call, until=until), "select", sql, most, seconds, viewer
                )
            except _ProcessTimeout:
                raise foreign_statements.too_slow(seconds) from None
            return answer

    @asynccontextmanager
    async def lent(self, owner: str) -> AsyncIterator[TextProcess]:
        """Lends a process for one transaction, when it is the owner's turn."""
        async with self._lent("text", owner) as process:
            yield process

    @asynccontextmanager
    async def _lent(self, kind: str, owner: str) -> AsyncIterator[TextProcess]:
        async with self._turns[kind].taken(owner):
            process = await self._taken_out()
            self._busy.add(process)
            process.uses += 1
            try:
                yield process
            finally:
                self._busy.discard(process)
                is_wanted = not self._closed and process.uses < MOST_USES and len(self._idle) < MOST_IDLE
                if process.is_fit and is_wanted:
                    self._idle.append(process)
                else:
                    process.kill()
                    await self.whole(self._bury, process)

    async def _taken_out(self) -> TextProcess:
        while self._idle:
            process = self._idle.pop()
            if process.is_fit:
                return process
            await self.whole(self._bury, process)
        return await self._started()

    async def _started(self) -> TextProcess:
        """Starts a process. Where the caller is cancelled meanwhile, the thread that starts the process ends it,
        because the event loop may be closed by then."""
        unwanted = Event()
        starting = asyncio.ensure_future(self._in_thread(self._make, unwanted))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with self._starting:
                unwanted.set()
                made = starting.done() and not starting.cancelled() and starting.exception() is None
            if made:
                self._in_thread(self._bury, starting.result())
            elif not starting.done():
                # No caller is left for the error that the thread will raise.
                starting.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def _bury(self, process: TextProcess) -> None:
        process.bury()
        with self._starting:
            self._made.discard(process)

    def _make(self, unwanted: Event) -> TextProcess:
        try:
            process = TextProcess(self._path, self._patience, self._write_turn)
        except (OSError, _ProcessEnded, _ProcessTimeout) as error:
            raise StoreUnavailable(
                f"No process could be started for a text: {error}", hint="See the node's standard error."
            ) from error
        with self._starting:
            if not unwanted.is_set() and not self._closed:
                self._made.add(process)
                return process
        process.bury()
        raise StoreUnavailable("The store was closed, or nobody waits any more", hint="Nothing was begun.")

    async def within(self, process: TextProcess, work: Callable[..., Any], *arguments: Any) -> Any:
        """Runs `work`, which uses the process, in a thread. A caller that is cancelled kills the process and waits
        until the thread has finished."""
        future = asyncio.ensure_future(self._in_thread(work, *arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            process.kill()
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            future.exception()
            raise
        except _ProcessEnded:
            raise StoreUnavailable(
                "The process of the text ended before the text did: it was killed, or had no memory left",
                hint="Nothing of it was written. A text may take 1 GiB of memory.",
            ) from None

    async def whole(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Runs `work` in a thread to its end. A caller that is cancelled meanwhile gets CancelledError afterwards."""
        future = asyncio.ensure_future(self._in_thread(work, *arguments))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        future.result()
        if cancelled is not None:
            raise cancelled

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        if self._threads is None or (self._closed and work == self._make):
            raise StoreUnavailable("The store is closed", hint="Await its open() first.")
        try:
            return asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments))
        except RuntimeError:
            # The store was closed meanwhile: the work that is left takes no time.
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(work(*arguments))
            return done


class ProcessJoinedTransaction:
    """A run's transaction in a child process: `check_owner`, the text, the settlement and the commit all run there, in
    one transaction."""

    overlaps = False

    def __init__(self, apart: TextProcessPool, process: TextProcess, now: int, clock: Callable[[], int]) -> None:
        self._apart = apart
        self._process = process
        self._clock = clock
        self._failed = False
        self.now = now
        self.wakes = False
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    @property
    def spoiled(self) -> bool:
        return self._failed

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        rows: list[Row] = await self._told("rows", name, parameters)
        return rows

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        return (await self.batch([(name, rows)]))[0] if rows else 0

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        counts: list[int] = await self._told("batch", [(name, list(rows)) for name, rows in writes]) if writes else []
        return counts

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        meanwhile()
        await self.rows(first, **parameters)
        return await self.batch(writes), await self.rows(then, **parameters)

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        await self.batch(writes)

    def last(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        self.deferred += writes

    async def provision(self, change: RoleChange, /) -> str | None:
        return None

    def wake(self) -> None:
        self.wakes = True

    async def foreign(self, sql: str, parameters: Parameters = None, /) -> Rows:
        raise InvalidInput("A text of others has no statements beside it", hint="Give all of it at once.")

    async def run_text(self, sql: str, identity: Identity, most: int, /) -> Rows:
        self._failed = True
        try:
            rows: Rows = await self._told("text", sql, identity, most)
        except StoreUnavailable as error:
            if error.__cause__ is None and error.__suppress_context__:
                # The text made its own process end, by the resources it used: the text failed, not the store.
                raise StatementFailed(error.message, hint=error.hint) from None
            raise
        self._failed = False
        return rows

    async def conclude(self) -> None:
        self.now = self._clock()
        await self._told("conclude", self.now)

    async def commit(self) -> None:
        await self.batch(self.deferred)
        try:
            await self._apart.whole(self._process.commit)
        except (_ProcessEnded, _ProcessTimeout):
            raise StoreUnavailable(
                "The process of the text ended while it committed: it is not known whether that was done",
                hint="Repeat the call; what was done is recognised.",
                outcome_unknown=True,
            ) from None

    async def _told(self, verb: str, *arguments: Any) -> Any:
        try:
            return await self._apart.within(self._process, self._process.call, verb, *arguments)
        except _ProcessTimeout:
            raise wrote_too_long(self._process.write_limit) from None
