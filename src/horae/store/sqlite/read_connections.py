"""Read-only connections for pages and lists, which may use threads, beside the engine's connection.

Statements of the engine run in the event loop's thread, because they take microseconds. A page may need longer (to
count a year of runs), so pages have a few connections of their own. A statement begins in the event loop's thread;
where it has no answer in a moment, it begins again in a thread. Each read transaction is one snapshot. A statement is
interrupted when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from threading import Event
from time import thread_time_ns
from typing import Any, NamedTuple

import apsw

from horae.errors import StoreUnavailable, shown
from horae.store.driver import Row
from horae.store.sqlite import file_at_rest
from horae.store.sqlite.failures import translated
from horae.store.sqlite.transaction import SqliteTransaction

MOST_READERS = 3
"""The most connections, and so threads, in use. Further readers wait, which leaves processor time to the engine."""
BUSY_MS = 1000
CACHE_KIB = 16_384
MOMENT_NS = 5_000_000
"""Nanoseconds of processor time that a statement may take in the event loop's thread. Most take a tenth of it. A thread
would cost more, and far more while the loop is busy: each row would wait for the interpreter lock."""
_STEPS = 10_000
_FEW_STEPS = 1_000
_WRITES = "Nothing is written where one only looks"


def folded(*text: Any) -> str | None:
    """Text in lower case, in any alphabet; None for a value that is not text. The SQL function `folded`."""
    return text[0].lower() if isinstance(text[0], str) else None


def register(connection: apsw.Connection) -> None:
    connection.create_scalar_function("folded", folded, 1, deterministic=True)


class _ReadConnection(NamedTuple):
    connection: apsw.Connection
    rest: file_at_rest.RestingFile | None


class ReadConnections:
    """The read connections of one driver."""

    def __init__(self, path: str, prepared: Mapping[str, str], patience: float) -> None:
        """`patience` is how many seconds a reader waits for a free connection."""
        self._path = path
        self._patience = patience
        self._prepared = prepared
        self._idle: list[_ReadConnection] = []
        self._room = asyncio.Semaphore(MOST_READERS)
        self._threads: ThreadPoolExecutor | None = None
        self._under_way = 0
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        """Closes idle connections. A transaction under way goes on, and its connection is closed when it ends."""
        self._is_open = False
        self._end_threads()
        while self._idle:
            self._idle.pop().connection.close()

    def _end_threads(self) -> None:
        if self._threads is not None and not self._under_way:
            self._threads.shutdown(wait=False)
            self._threads = None

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience):
                await self._room.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"{MOST_READERS} looks at {shown(self._path)} have not ended for {self._patience:g} s",
                hint="Ask again, or for less at once.",
            ) from None
        try:
            yield
        finally:
            self._room.release()

    @asynccontextmanager
    async def transaction(self, now: int) -> AsyncIterator[SqliteReadTransaction]:
        async with self._entered():
            if self._threads is None:
                # A pool of their own, with a thread for each: other work in threads cannot delay a reader.
                self._threads = ThreadPoolExecutor(MOST_READERS, thread_name_prefix="horae-look")
            look = SqliteReadTransaction(self._path, self._kept(), self._threads, self._prepared, now)
            self._under_way += 1
            try:
                await look.begin()
                yield look
                opened = look.end()
            except BaseException:
                look.close()
                raise
            finally:
                self._under_way -= 1
                if not self._is_open:
                    self._end_threads()
            if self._is_open:
                self._idle.append(opened)
            else:
                opened.connection.close()

    def _kept(self) -> _ReadConnection | None:
        while self._idle:
            opened = self._idle.pop()
            if not file_at_rest.moved(self._path, opened.rest):
                return opened
            opened.connection.close()
        return None


class SqliteReadTransaction(SqliteTransaction):
    """A read transaction on one snapshot. A statement that takes longer than MOMENT_NS runs in a thread."""

    __slots__ = ("_opened", "_path", "_stopped", "_threads")

    def __init__(
        self,
        path: str,
        opened: _ReadConnection | None,
        threads: Executor,
        prepared: Mapping[str, str],
        now: int,
    ) -> None:
        self._path = path
        self._threads = threads
        self._opened = opened
        self._stopped = Event()
        self._prepared = prepared
        self.now = now
        self.wakes = False
        self.deferred = []

    async def begin(self) -> None:
        if self._opened is None:
            await self._within_thread(self._begin)
        else:
            # BEGIN reads nothing yet: a thread would take longer.
            self._begin()

    def _begin(self) -> list[Row]:
        if self._opened is None:
            self._opened = _opened(self._path)
        self._connection = self._opened.connection
        self._connection.set_progress_handler(self._stopped.is_set, _STEPS)
        with translated(self._path):
            self._connection.execute("BEGIN")
        return []

    def end(self) -> _ReadConnection:
        """Ends the transaction and returns the connection, ready for the next one."""
        with translated(self._path):
            self._connection.execute("ROLLBACK")
        self._connection.set_progress_handler(None)
        assert self._opened is not None
        file_at_rest.check(self._path, self._opened.rest)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.connection.close(force=True)

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        bound = self._bound(parameters)
        found = self._at_once(name, bound)
        return found if found is not None else await self._within_thread(lambda: self._rows(name, bound))

    def _at_once(self, name: str, bound: dict[str, Any]) -> list[Row] | None:
        """The rows, or None where they take longer than MOMENT_NS and must not block the event loop."""
        until = thread_time_ns() + MOMENT_NS
        self._connection.set_progress_handler(lambda: thread_time_ns() > until, _FEW_STEPS)
        try:
            return self._connection.execute(self._prepared[name], bound).fetchall()
        except apsw.InterruptError:
            return None
        except apsw.Error as error:
            with translated(name):
                raise error
        finally:
            self._connection.set_progress_handler(self._stopped.is_set, _STEPS)

    async def many(self, name: str, rows: object, /) -> int:
        raise AssertionError(_WRITES)

    async def _within_thread(self, work: Callable[[], list[Row]]) -> list[Row]:
        # A future, not a task: a loop that ends cancels its tasks, which then look done while their thread still works.
        thread = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._stopped.set()
            # The connection must not be used before its thread has finished.
            while not thread.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([thread])
            thread.exception()
            raise


def _opened(path: str) -> _ReadConnection:
    rest = file_at_rest.resting(path)
    connection = apsw.Connection(":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    try:
        with translated(path):
            connection.set_busy_timeout(BUSY_MS)
            connection.execute("ATTACH ? AS sys", (file_at_rest.reading(path, rest),))
            connection.execute(f"PRAGMA sys.cache_size = -{CACHE_KIB}").fetchall()
            connection.execute("PRAGMA query_only = ON").fetchall()
        register(connection)
    except BaseException:
        connection.close()
        raise
    return _ReadConnection(connection, rest)
