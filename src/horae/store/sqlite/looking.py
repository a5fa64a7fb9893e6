"""Looking at a catalog file beside the engine: connections that can only read, used in threads.

Statements of the engine run in the event loop's own thread, because they take microseconds. What pages ask for may take
a while (a year of runs counted), so it has a few connections of its own; what does not come in a moment is begun anew
in a thread, and nothing in the loop waits for it. Each look is one snapshot. Whoever stops waiting for an answer has
its statement interrupted.
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

MOST_LOOKING = 3
"""Connections, and so threads at work: whoever comes later waits, and the machine keeps something for the engine."""
BUSY_MS = 1000
CACHE_KIB = 16_384
MOMENT_NS = 5_000_000
"""Time of the processor that a look may take in the event loop itself. Most take a tenth of it; handing them to a
thread would cost more, and far more where the loop is busy: each row would wait for its turn with the interpreter."""
_STEPS = 10_000
_FEW_STEPS = 1_000
_WRITES = "Nothing is written where one only looks"


def folded(*text: Any) -> str | None:
    """Text in small letters of any alphabet."""
    return text[0].lower() if isinstance(text[0], str) else None


def register(connection: apsw.Connection) -> None:
    connection.create_scalar_function("folded", folded, 1, deterministic=True)


class _Opened(NamedTuple):
    connection: apsw.Connection
    rest: file_at_rest.Rest | None


class Looks:
    """The connections of one driver."""

    def __init__(self, path: str, prepared: Mapping[str, str], patience: float) -> None:
        """`patience` is for how many seconds a look waits for others to end."""
        self._path = path
        self._patience = patience
        self._prepared = prepared
        self._idle: list[_Opened] = []
        self._room = asyncio.Semaphore(MOST_LOOKING)
        self._threads: ThreadPoolExecutor | None = None
        self._under_way = 0
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        """Whatever is under way ends by itself, and its connection is closed then."""
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
                f"{MOST_LOOKING} looks at {shown(self._path)} have not ended for {self._patience:g} s",
                hint="Ask again, or for less at once.",
            ) from None
        try:
            yield
        finally:
            self._room.release()

    @asynccontextmanager
    async def transaction(self, now: int) -> AsyncIterator[SqliteLook]:
        async with self._entered():
            if self._threads is None:
                # Their own, one for each look: whatever else is done in threads cannot make a look wait to begin.
                self._threads = ThreadPoolExecutor(MOST_LOOKING, thread_name_prefix="horae-look")
            look = SqliteLook(self._path, self._kept(), self._threads, self._prepared, now)
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

    def _kept(self) -> _Opened | None:
        while self._idle:
            opened = self._idle.pop()
            if not file_at_rest.moved(self._path, opened.rest):
                return opened
            opened.connection.close()
        return None


class SqliteLook(SqliteTransaction):
    """One snapshot. A statement that takes longer than a moment runs in a thread."""

    __slots__ = ("_opened", "_path", "_stopped", "_threads")

    def __init__(
        self,
        path: str,
        opened: _Opened | None,
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
            # To begin is to read nothing yet: a thread would take longer.
            self._begin()

    def _begin(self) -> list[Row]:
        if self._opened is None:
            self._opened = _opened(self._path)
        self._connection = self._opened.connection
        self._connection.set_progress_handler(self._stopped.is_set, _STEPS)
        with translated(self._path):
            self._connection.execute("BEGIN")
        return []

    def end(self) -> _Opened:
        """Gives the connection back, fit for the next."""
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
        """The rows, where they are had in a moment; None where they are not, and nobody is to wait for them here."""
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
        # A future, not a task: what a loop cancels when it ends would look done while its thread is still at it.
        thread = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._stopped.set()
            # Nobody may touch the connection before its thread has left it.
            while not thread.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([thread])
            thread.exception()
            raise


def _opened(path: str) -> _Opened:
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
    return _Opened(connection, rest)
