"""The child process that runs users' SQL text on a SQLite catalog; it gets its commands over a socket, one by one.

The child has a connection of its own and ends with its parent, the node. A statement can be stuck in one step of
SQLite's virtual machine, where no time limit is checked. So the parent kills the child, and SQLite rolls back what was
not committed.
"""

from __future__ import annotations

import os
import pickle
import resource
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from random import uniform
from time import monotonic, sleep
from typing import Any

import apsw

from horae.errors import StoreUnavailable
from horae.store.protocols.people import Identity
from horae.store.records import Rows
from horae.store.sqlite import read_connections
from horae.store.sqlite.driver import attach, prepared_statements
from horae.store.sqlite.failures import translated
from horae.store.sqlite.text import named_connection_child, sql_text
from horae.store.sqlite.text.authorizer import Variables
from horae.store.sqlite.text.messages import WAITING, WRITING, plain, receive, send
from horae.store.sqlite.transaction import SqliteTransaction

MEMORY = 1024 * 1024 * 1024
"""Bytes of address space of the process: the interpreter, and the values and sorting of one text."""
_PR_SET_DUMPABLE = 4
NICER = 10
"""The nice value of the process, so that the node's own work goes first where processors are scarce."""


def main(number: int) -> None:
    """Runs the process. `number` is the descriptor of its end of the socket."""
    limit_resources()
    os.set_inheritable(number, False)  # noqa: FBT003 - it takes no names
    end = socket.socket(fileno=number)
    told: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    threading.Thread(target=_listen, args=(end, told), name="horae-listen", daemon=True).start()
    work = TextCommands(lambda said: send(end, said), told.get)
    while True:
        verb, *arguments = told.get()
        try:
            answer = ("done", getattr(work, verb)(*arguments))
        except Exception as error:  # noqa: BLE001 - it is raised again where it was asked for
            answer = ("raised", _sendable(error))
        send(end, answer)


def limit_resources() -> None:
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        # Keep other programs of the same user from reading or controlling this process.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    with suppress(OSError):
        os.nice(NICER)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _listen(end: socket.socket, told: SimpleQueue[tuple[Any, ...]]) -> None:
    """Puts messages of the parent into the queue. Ends the process as soon as the parent is gone, because the process
    may hold the write lock."""
    try:
        while (message := receive(end)) is not None:
            told.put(message)
    finally:
        os._exit(0)


def _sendable(error: Exception) -> Exception:
    """The error in a form that can be pickled, without its cause and traceback. An error that cannot be pickled becomes
    a RuntimeError with its type and message."""
    error.__cause__ = error.__context__ = None
    try:
        plain(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a driver's objects may refuse in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None)


class TextCommands:
    """The commands of this process. Each is a method, and ends before the next one begins."""

    def __init__(self, say: Callable[[Any], None], hear: Callable[[], tuple[Any, ...]]) -> None:
        self._say = say
        self._hear = hear
        self._variables = Variables()
        self._prepared: Mapping[str, str] = {}
        self._connection: apsw.Connection
        self._transaction: SqliteTransaction
        self._path = ""
        self._patience = 0.0
        self._limit: WriteTimeLimit
        self._holds = False

    def open(self, path: str, patience: float) -> None:
        self._path, self._patience = path, patience
        self._prepared = prepared_statements()

    def _attached(self) -> apsw.Connection:
        if not hasattr(self, "_connection"):
            connection = apsw.Connection(":memory:")
            self._patiently(lambda: attach(connection, self._path))
            connection.execute(sql_text.SORT_IN_MEMORY).fetchall()
            self._variables.register(connection)
            read_connections.register(connection)
            self._connection = connection
        return self._connection

    def begin(self, now: int, write_limit: float) -> None:
        """Begins a transaction that takes the write lock at its first write."""
        connection = self._attached()
        self._limit = WriteTimeLimit(write_limit, self._tell)
        self._holds = False
        with translated(self._path):
            connection.execute("BEGIN")
        self._transaction = SqliteTransaction(connection, self._prepared, now)

    def rows(self, name: str, parameters: dict[str, Any]) -> list[Any]:
        rows: list[Any] = _done(self._transaction.rows(name, **parameters))
        return rows

    def batch(self, writes: Sequence[tuple[str, Sequence[Any]]]) -> list[int]:
        counts: list[int] = _done(self._transaction.batch(writes))
        return counts

    def text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a text. Where another process wrote meanwhile, so that this snapshot is too old to write, takes the
        write lock and runs the text again on a new snapshot. By then it has written nothing, and no answer was sent."""
        try:
            return self._run(sql, identity, most)
        except (StoreUnavailable, apsw.BusyError):
            if self._holds or not self._limit.wants_to_write:
                raise
        self._take_the_place()
        return self._run(sql, identity, most)

    def _run(self, sql: str, identity: Identity, most: int) -> Rows:
        return sql_text.run_text(self._connection, sql, identity, most, self._limit, self._variables)

    def conclude(self, now: int) -> None:
        """Ends the part of the text: from now on only the catalog's own statements run, with the write lock."""
        if not self._limit.wants_to_write:
            self._take_the_place()
        self._transaction.now = now

    def _take_the_place(self) -> None:
        """Rolls back and begins again with the write lock. The wait does not count against the write limit; where it
        takes too long, StoreUnavailable is raised."""
        connection = self._connection
        with translated(self._path):
            connection.execute("ROLLBACK")
        self._limit.wait_to_write()
        self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        self._holds = True
        self._limit.begin_to_write()

    def _tell(self, word: str) -> None:
        self._say((word,))
        if word == WRITING:
            self._hear()

    def commit(self) -> None:
        with translated(self._path):
            self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")

    def select(self, sql: str, most: int, seconds: float, viewer: bool) -> Rows:  # noqa: FBT001 - sent over a socket
        return sql_text.select_from_file(
            self._path, sql, most, seconds, lambda: False, viewer=viewer, pragma=sql_text.SORT_IN_MEMORY
        )

    def elsewhere(self, sql: str, variables: Mapping[str, str], most: int, patience: float) -> Rows:
        """Runs a text on a file that is not a catalog."""
        return named_connection_child.run(self._path, sql, variables, most, patience)

    def _patiently(self, step: Any) -> None:
        """Repeats `step` while another process holds the write lock, with growing, jittered pauses."""
        ends, pause = monotonic() + self._patience, 0.0005
        while True:
            try:
                with translated(self._path):
                    step()
                return
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, apsw.BusyError) or monotonic() > ends:
                    raise
            sleep(pause * uniform(0.5, 1.5))  # noqa: S311 - spreads waiters, guards nothing
            pause = min(pause * 1.5, 0.02)


class WriteTimeLimit(sql_text.TimeLimit):
    """The time limit of a text in a child process, which counts from its first write: from then on other writers wait.
    Reading has no limit here, because the caller has its own."""

    def __init__(self, write_limit: float, say: Callable[[str], None]) -> None:
        self._write_limit = write_limit
        self._say = say
        self._ends_at = float("inf")

    @property
    def wants_to_write(self) -> bool:
        return self._ends_at != float("inf")

    def begin_to_write(self) -> None:
        if not self.wants_to_write:
            self._say(WRITING)
            self._ends_at = monotonic() + self._write_limit

    def wait_to_write(self) -> None:
        """Stops the time limit where a write that was begun must wait for another writer."""
        if self.wants_to_write:
            self._say(WAITING)
            self._ends_at = float("inf")

    def is_over(self) -> bool:
        return monotonic() > self._ends_at

    def error(self) -> Exception:
        return sql_text.wrote_too_long(self._write_limit)


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("a statement on SQLite waits for nothing")
