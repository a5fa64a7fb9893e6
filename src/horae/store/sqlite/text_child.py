"""The process that runs text of others on a SQLite catalog, told over a socket what to do, one thing after another.

It has a connection of its own, and ends with whoever started it. A statement can be stuck in one step of SQLite's
machine, where nothing looks at a clock. So whoever started the process kills it; what it had not committed is undone by
the file itself.
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
from horae.store.records import Rows
from horae.store.sqlite import looking, running, target_text
from horae.store.sqlite.driver import attach, prepared_statements
from horae.store.sqlite.failures import translated
from horae.store.sqlite.guarding import Variables
from horae.store.sqlite.text_messages import WAITING, WRITING, plain, receive, send
from horae.store.sqlite.transaction import SqliteTransaction
from horae.store.vault import Identity

MEMORY = 1024 * 1024 * 1024
"""Bytes of address space: one text's values and sorting, beside the interpreter."""
_PR_SET_DUMPABLE = 4
NICER = 10
"""How much the node's own work goes before this process' where there are not processors enough."""


def main(number: int) -> None:
    """The life of the process; `number` is its end of the socket."""
    limit_resources()
    os.set_inheritable(number, False)  # noqa: FBT003 - it takes no names
    end = socket.socket(fileno=number)
    told: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    threading.Thread(target=_listen, args=(end, told), name="horae-listen", daemon=True).start()
    work = Work(lambda said: send(end, said), told.get)
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

        # No program of the same account looks into it, or speaks for it.
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
    """Ends the process when the other side is gone, whatever it is doing: it may hold the writer's place."""
    try:
        while (message := receive(end)) is not None:
            told.put(message)
    finally:
        os._exit(0)


def _sendable(error: Exception) -> Exception:
    """An error of the driver's keeps its kind and its words, not the objects it came with."""
    error.__cause__ = error.__context__ = None
    try:
        plain(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a driver's objects may refuse in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None)


class Work:
    """What this process can be told. Every verb is a method, and runs to its end before the next."""

    def __init__(self, say: Callable[[Any], None], hear: Callable[[], tuple[Any, ...]]) -> None:
        self._say = say
        self._hear = hear
        self._variables = Variables()
        self._prepared: Mapping[str, str] = {}
        self._connection: apsw.Connection
        self._transaction: SqliteTransaction
        self._path = ""
        self._patience = 0.0
        self._limit: TextLimit
        self._holds = False

    def open(self, path: str, patience: float) -> None:
        self._path, self._patience = path, patience
        self._prepared = prepared_statements()

    def _attached(self) -> apsw.Connection:
        if not hasattr(self, "_connection"):
            connection = apsw.Connection(":memory:")
            self._patiently(lambda: attach(connection, self._path))
            connection.execute(running.WITHOUT_FILES).fetchall()
            self._variables.register(connection)
            looking.register(connection)
            self._connection = connection
        return self._connection

    def begin(self, now: int, write_limit: float) -> None:
        """A transaction that takes the writer's place at its first write, and not before."""
        connection = self._attached()
        self._limit = TextLimit(write_limit, self._tell)
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
        """Where another writes meanwhile, so that this snapshot is too old to write on, everything is done again from a
        snapshot of the writer's own. Nothing was written by then, and nobody was answered."""
        try:
            return self._run(sql, identity, most)
        except (StoreUnavailable, apsw.BusyError):
            if self._holds or not self._limit.wants_to_write:
                raise
        self._take_the_place()
        return self._run(sql, identity, most)

    def _run(self, sql: str, identity: Identity, most: int) -> Rows:
        return running.run_text(self._connection, sql, identity, most, self._limit, self._variables)

    def conclude(self, now: int) -> None:
        """From here on the catalog's own statements write."""
        if not self._limit.wants_to_write:
            self._take_the_place()
        self._transaction.now = now

    def _take_the_place(self) -> None:
        """Waiting for another to end its writing is no writing: where that takes too long, the store is to blame."""
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

    def select(self, sql: str, most: int, seconds: float, viewer: bool) -> Rows:  # noqa: FBT001 - told over a socket
        return running.select_from_file(
            self._path, sql, most, seconds, lambda: False, viewer=viewer, pragma=running.WITHOUT_FILES
        )

    def elsewhere(self, sql: str, variables: Mapping[str, str], most: int, patience: float) -> Rows:
        """A text on a file that is no catalog."""
        return target_text.run(self._path, sql, variables, most, patience)

    def _patiently(self, step: Any) -> None:
        """Repeats `step` while another process is in the way, with pauses that grow and never fall into step."""
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


class TextLimit(running.Limit):
    """Reading takes as long as it takes: whoever waits has a limit. From the first write on, others wait."""

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
        """What was begun could not go on: another writes."""
        if self.wants_to_write:
            self._say(WAITING)
            self._ends_at = float("inf")

    def is_over(self) -> bool:
        return monotonic() > self._ends_at

    def error(self) -> Exception:
        return running.wrote_too_long(self._write_limit)


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that never waits comes to."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise AssertionError("a statement on SQLite waits for nothing")
