"""The SQLite driver, on apsw: one connection, the catalog's file attached as `sys`, WAL mode, every commit synced.

Statements run in the event loop's thread, because each takes microseconds. An asyncio lock keeps tasks of one event
loop out of each other's transactions. Only one process at a time can hold the file's write lock.
The driver waits for it with sleeps of the event loop, with jitter, so that processes which poll in step do not starve
another one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from threading import Event
from time import monotonic, time_ns
from typing import Any, TypeVar
from uuid import UUID

import apsw

from horae.core.time.instant import EPOCH
from horae.errors import InvalidInput, NotACatalog, StoreError, StoreMissing, StoreUnavailable, shown
from horae.store.driver import Clock, Row, Statement, statements
from horae.store.records import Rows
from horae.store.sqlite import file_at_rest, read_connections
from horae.store.sqlite.failures import translated
from horae.store.sqlite.liveness import FileLocks
from horae.store.sqlite.modes import PRIVATE, create_file
from horae.store.sqlite.text import sql_text
from horae.store.sqlite.text.authorizer import Variables
from horae.store.sqlite.text.text_processes import ProcessJoinedTransaction, TextProcessPool
from horae.store.sqlite.transaction import SqliteJoinedTransaction, SqliteMigrator, SqliteTransaction

BUSY_PATIENCE = 30.0
MOST_SELECTS = 4
"""SELECTs that run at once, in threads of their own; further ones wait."""
POLL, IDLE_POLL = 0.1, 0.2
"""Seconds between two polls for commits of other processes: usually, and after IDLE_AFTER polls without any."""
IDLE_AFTER = 50
"""Polls in a row that find nothing until the driver polls less often. Waking up is most of an idle node's work."""
CACHE_KIB = 65_536
CHECKPOINT_PAGES = 4000
"""WAL pages between two checkpoints. A page that is written often in between goes to the file only once, so this is
more than SQLite's default of 1000."""
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
_MILLISECOND = 1_000_000
Made = TypeVar("Made", bound="SqliteTransaction")


class SqliteDriver:
    """The driver of one catalog file, or of `:memory:`. `clock` replaces the host's clock."""

    dialect = "sqlite"
    lock_grace = 0.0
    transaction_limit = 5.0
    write_limit: float | None = 5.0

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        patience: float = BUSY_PATIENCE,
        file_mode: Callable[[], int] = lambda: PRIVATE,
    ) -> None:
        """`patience` is how many seconds to wait for another writer. `file_mode` returns the mode of a new file."""
        self.path = path
        self._file_mode = file_mode
        self._clock = clock
        self._patience = patience
        self._connection: apsw.Connection | None = None
        self._rest: file_at_rest.RestingFile | None = None
        self._lock = asyncio.Lock()
        self._writers = asyncio.Lock()
        self._selects: ThreadPoolExecutor | None = None
        self._apart = TextProcessPool(path, patience)
        self._last = 0
        self._changes = 1
        self._fired: asyncio.Future[None] | None = None
        self._waiting = self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None
        self._version = -1
        self._locks = FileLocks(path)
        self._variables = Variables()
        self._prepared = prepared_statements()
        self._looks = read_connections.ReadConnections(path, self._prepared, patience)

    async def open(self) -> None:
        if self._connection is not None:
            return
        if self.path != ":memory:":
            _check_place(Path(self.path))
            self._create()
        connection = apsw.Connection(":memory:", flags=_FLAGS)
        try:
            await self._patiently(lambda: self._attach(connection))
            self._variables.register(connection)
            read_connections.register(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._selects = ThreadPoolExecutor(MOST_SELECTS, thread_name_prefix="horae-select")
        self._looks.open()
        self._apart.open()
        self._version = self._data_version()

    def _create(self) -> None:
        # SQLite would create a file that every user can read. A link may lead to a file that does not exist yet.
        file = Path(os.path.realpath(self.path))
        if not os.path.lexists(file):
            # Where the file cannot be created, SQLite will say why.
            with suppress(OSError):
                create_file(file, self._file_mode())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._locks.close()
        self._looks.close()
        self._apart.close()
        if self._selects is not None:
            self._selects.shutdown(wait=False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is not None:
            connection.close()

    @property
    def connection(self) -> apsw.Connection:
        if self._connection is None:
            raise StoreUnavailable(f"The store {shown(self.path)} is not open", hint="Await its open() first.")
        return self._connection

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[SqliteTransaction]:
        async with self._within(SqliteTransaction, write=write) as transaction:
            yield transaction

    def reading(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        return self.transaction(write=False)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[SqliteTransaction]:
        """In threads, on connections of its own. A catalog in memory has only one connection, so there it blocks the
        event loop."""
        self.connection  # noqa: B018 - raises where the store is not open
        if self.path == ":memory:":
            async with self.reading() as transaction:
                yield transaction
        else:
            async with self._looks.transaction(self._now()) as look:
                yield look

    @asynccontextmanager
    async def joined(
        self, limit: float, owner: str | None = None
    ) -> AsyncIterator[SqliteJoinedTransaction | ProcessJoinedTransaction]:
        """On the driver's one connection, for which other transactions wait. With an `owner`, in a child process; then
        `limit` is how many seconds it may write."""
        if owner is not None:
            async with self._joined_apart(limit, owner) as apart:
                yield apart
            return
        async with self._within(SqliteJoinedTransaction) as transaction:
            transaction.clock = self._now
            transaction.variables = self._variables
            transaction.ends_at = monotonic() + limit
            yield transaction

    @asynccontextmanager
    async def _joined_apart(self, limit: float, owner: str) -> AsyncIterator[ProcessJoinedTransaction]:
        self._check_file()
        async with self._apart.lent(owner) as process:
            transaction = ProcessJoinedTransaction(self._apart, process, self._now(), self._now)
            try:
                await self._apart.within(process, process.begin, transaction.now, limit)
                yield transaction
                await transaction.commit()
            except BaseException:
                await self._apart.whole(process.roll_back)
                raise
            if transaction.wakes:
                self._fire()

    def _check_file(self) -> None:
        if self.path == ":memory:":
            raise InvalidInput(
                "A catalog in memory takes no text of others: there is no file that a process of its own could open",
                hint="Use a file: sqlite:///horae.db.",
            )

    @asynccontextmanager
    async def _within(self, kind: type[Made], *, write: bool = True) -> AsyncIterator[Made]:
        async with self._turn(self._writers) if write else nullcontext():
            await self._patiently(lambda: self._begin(write=write))
        try:
            connection = self.connection
            transaction = kind(connection, self._prepared, self._now())
            try:
                yield transaction
                await transaction.batch(transaction.deferred)
                with translated(self.path):
                    connection.execute("COMMIT")
                file_at_rest.check(self.path, self._rest)
            except BaseException:
                # A full disk has rolled the transaction back already; then this ROLLBACK fails.
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
                raise
            if transaction.wakes:
                self._fire()
        finally:
            self._lock.release()

    async def _begin(self, *, write: bool) -> None:
        """Takes the connection and begins. Gives the connection back where another process holds the write lock, so
        that readers need not wait for that process."""
        await self._taken(self._lock)
        try:
            if file_at_rest.moved(self.path, self._rest):
                await self._attach(self.connection)
            self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        except BaseException:
            self._lock.release()
            raise

    async def _taken(self, lock: asyncio.Lock) -> None:
        """Takes a lock of this process, and waits as long as for another process: the holder may be a task that keeps
        its transaction open."""
        try:
            async with asyncio.timeout(self._patience):
                await lock.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"Another transaction of this process has kept {shown(self.path)} for {self._patience:g} s",
                hint="Do slow work before the first statement of run.transaction.",
            ) from None

    @asynccontextmanager
    async def _turn(self, lock: asyncio.Lock) -> AsyncIterator[None]:
        await self._taken(lock)
        try:
            yield
        finally:
            lock.release()

    async def end_strays(self) -> None:
        """Does nothing: the child process that runs a text ends with its node."""

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Always None: SQLite has no network trip to save, and no statement that writes several tables."""
        return None

    async def select(
        self,
        sql: str,
        most: int,
        seconds: float,
        own: bool = False,  # noqa: FBT001, FBT002
        viewer: bool = False,  # noqa: FBT001, FBT002
        /,
    ) -> Rows:
        """In a child process, which is killed when the caller is cancelled or the store is closed. An `own` SELECT runs
        in a thread, or, in a catalog in memory, on its only connection in the event loop's thread."""
        if not own:
            self._check_file()
            self.connection  # noqa: B018 - raises where the store is not open
            return await self._apart.select("", sql, most, seconds, viewer=viewer)
        if self.path == ":memory:":
            async with self._turn(self._lock):
                return sql_text.select(self.connection, sql, most, seconds, lambda: False, viewer=viewer)
        self.connection  # noqa: B018 - raises where the store is not open
        stopped = Event()

        def is_over() -> bool:
            return stopped.is_set() or self._connection is None

        work = partial(sql_text.select_from_file, self.path, sql, most, seconds, is_over, viewer=viewer)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._selects, work)
        finally:
            stopped.set()

    @asynccontextmanager
    async def migration(self, *, write: bool = True) -> AsyncIterator[SqliteMigrator]:
        async with self.transaction() as transaction:
            yield SqliteMigrator(self.connection, self.path, transaction.now, injected=self._clock is not None)

    async def changed(self, seen: int, timeout: float | None) -> int:
        """Commits of this process wake the caller at once; commits of other processes are found by polling."""
        self._look()
        if self._changes == seen and (timeout is None or timeout > 0):
            loop = asyncio.get_running_loop()
            if self._fired is None:
                self._fired = loop.create_future()
            fired = self._fired
            self._waiting += 1
            self._look_again(loop)
            try:
                await asyncio.wait([fired], timeout=timeout)
            finally:
                self._waiting -= 1
            if fired.done():
                fired.result()
        return self._changes

    def _look(self) -> None:
        version = self._data_version()
        self._quiet += 1
        # A file that was opened at rest is reopened with the next transaction.
        if version != self._version or file_at_rest.moved(self.path, self._rest):
            self._version = version
            self._quiet = 0
            self._fire()

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the poll timer, unless it is set. A timer costs less than a task that sleeps, and an idle node does
        little else."""
        # No other process can change a catalog in memory.
        if self._timer is None and self.path != ":memory:":
            seconds = POLL if self._quiet < IDLE_AFTER else IDLE_POLL
            self._timer = loop.call_later(seconds, self._look_for_others, loop)

    def _look_for_others(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._waiting:
            return
        try:
            self._look()
        except StoreError as error:
            fired, self._fired = self._fired, None
            if fired is not None and not fired.done():
                fired.set_exception(error)
        else:
            if self._fired is not None:
                self._look_again(loop)

    def _fire(self) -> None:
        self._changes += 1
        fired, self._fired = self._fired, None
        if fired is not None and not fired.done():
            fired.set_result(None)

    async def take_lock(self, node: UUID) -> bool:
        return self._locks.take(str(node))

    async def free_lock(self, node: UUID, *, left: bool = True) -> None:
        self._locks.release(str(node), left=left)

    def keep_locks(self) -> None:
        self._locks.renew()

    def leave_lock(self, node: UUID) -> None:
        self._locks.leave(str(node))

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        return {node for node in nodes if self._locks.is_free(node)}

    def _data_version(self) -> int:
        with translated(self.path):
            return int(self.connection.pragma("data_version", schema="sys"))

    def _now(self) -> int:
        self._last = max(self._last, self._read_clock())
        return self._last

    def _read_clock(self) -> int:
        if self._clock is None:
            return time_ns() // _MILLISECOND
        elapsed = self._clock() - EPOCH
        return elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000

    async def clock_reading(self) -> int:
        return self._read_clock()

    async def _attach(self, connection: apsw.Connection) -> None:
        rest = file_at_rest.resting(self.path)
        attach(connection, self.path, rest)
        self._rest = rest

    async def _patiently(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeats `step` while another process holds the write lock, with growing, jittered pauses."""
        ends = monotonic() + self._patience
        pause = 0.0005
        while True:
            try:
                with translated(self.path):
                    await step()
                return
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, apsw.BusyError) or monotonic() > ends:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads waiters, guards nothing
            pause = min(pause * 1.5, 0.02)


@cache
def prepared_statements() -> Mapping[str, str]:
    """The catalog's statements by name, with parameters in SQLite's style."""
    return {name: _prepared(each) for name, each in statements("sqlite").items()}


def _prepared(statement: Statement) -> str:
    if statement.columns is None:
        return statement.text
    order = {name: f"?{index}" for index, name in enumerate(statement.columns, 1)}
    return statement.with_parameters(lambda name: order[name])


def _check_place(path: Path) -> None:
    """Raises an error that says what is wrong with a path. SQLite would only say that it cannot open it."""
    if path.is_dir():
        raise NotACatalog(f"{shown(str(path))} is a folder", hint="Name a file in it: sqlite:///folder/horae.db.")
    if not path.parent.is_dir():
        raise StoreMissing(f"No folder {shown(str(path.parent))} for the store", hint="Create it first.")


def attach(connection: apsw.Connection, path: str, rest: file_at_rest.RestingFile | None = None) -> None:
    """Attaches the file as `sys`, again where it is attached already, and sets the connection up. `rest` is the result
    of `file_at_rest.resting`.

    Pragmas run one at a time, because `execute` of several stops at the first row.
    """
    attached = {row[1] for row in connection.execute("PRAGMA database_list")}
    if "sys" in attached:
        connection.execute("DETACH sys")
    connection.execute("ATTACH ? AS sys", (file_at_rest.open_name(path, rest),))
    connection.execute("PRAGMA sys.schema_version").fetchall()
    if path != ":memory:":
        mode = connection.execute("PRAGMA sys.journal_mode").fetchall()[0][0]
        if mode != "wal" and not connection.readonly("sys"):
            connection.execute("PRAGMA sys.journal_mode = WAL").fetchall()
    connection.execute("PRAGMA sys.synchronous = FULL").fetchall()
    connection.execute(f"PRAGMA sys.cache_size = -{CACHE_KIB}").fetchall()
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.execute("PRAGMA foreign_keys = ON").fetchall()
    connection.execute("PRAGMA recursive_triggers = ON").fetchall()
