"""A PostgreSQL driver on virtual time, of which any await may hang for ever, by a seed.

A connection that hangs keeps its socket, and nothing that is sent arrives and nothing comes: another socket that nobody
has the end of takes its place. A connection that is being made may hang likewise. The server is told at once that the
other side is gone, for its own limits are of real time: this is about who waits here.

Time moves where nothing but what hangs is waited for. Who asks the server for real has real patience.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import pytest
from psycopg import waiting
from psycopg_pool import base, pool_async

from horae.store.postgres import keepalive, listen_connection, pool
from horae.store.postgres.pool import PostgresConnection
from horae.testing.alternation import shut_down
from horae.testing.virtual_loop import VirtualLoop

REAL_PATIENCE = 60.0
"""Real seconds that an answer of the server may take: so long only where it never comes."""
TELLERS = (keepalive, listen_connection, pool, waiting, base, pool_async)
"""Modules that measure how long something has taken."""


class HangingLoop(VirtualLoop):
    """Listens for notices without waiting for one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, patience=REAL_PATIENCE)

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]  # asyncio's own types are stricter
        if callback is not listen_connection._finish:
            super().add_reader(fd, callback, *args)
            return
        with self.background():
            super().add_reader(fd, callback, *args)


class Hanging:
    """Decides by `seed` which wait hangs: each does with the chance `often`, while `is_on`."""

    def __init__(self, seed: int, often: float) -> None:
        self.loop = HangingLoop(seed)
        self.hung = 0
        self._silent = self.loop._selector.silent
        self.is_on = False
        self._often = often
        self._random = Random(seed)
        self._deaf: set[Any] = set()
        self._kept = ExitStack()

    def _strikes(self) -> bool:
        return self.is_on and self._random.random() < self._often

    def cut(self, connection: PostgresConnection) -> None:
        """Lets a connection hang from now on."""
        if connection.pgconn in self._deaf:
            return
        near, far = socket.socketpair()
        with near:
            near.setblocking(False)
            os.dup2(near.fileno(), connection.pgconn.socket)
        self._kept.enter_context(far)
        self._deaf.add(connection.pgconn)
        self.hung += 1

    def waited(self, connection: PostgresConnection, work: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """What the connection waits for; any of its waits may be the one that hangs."""
        try:
            wanted = next(work)
            while True:
                if self._strikes():
                    self.cut(connection)
                number = connection.pgconn.socket
                if connection.pgconn in self._deaf:
                    self._silent.add(number)
                try:
                    ready = yield wanted
                finally:
                    # The next connection may be given that number.
                    self._silent.discard(number)
                wanted = work.send(ready)
        except StopIteration as ended:
            return ended.value

    def connected(self, work: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """A connection that is being made."""
        try:
            wanted = next(work)
            while True:
                if self._strikes():
                    self.hung += 1
                    yield from self._never()
                ready = yield wanted
                wanted = work.send(ready)
        except StopIteration as ended:
            return ended.value

    def _never(self) -> Generator[Any, Any, None]:
        near, far = socket.socketpair()
        with near, far:
            self._silent.add(near.fileno())
            try:
                while True:
                    yield near.fileno(), waiting.WAIT_R
            finally:
                self._silent.discard(near.fileno())

    def close(self) -> None:
        self.is_on = False
        shut_down(self.loop)
        self._kept.close()


@contextmanager
def hanging(seed: int, often: float = 0.02) -> Iterator[Hanging]:
    faults = Hanging(seed, often)
    wait, wait_conn = PostgresConnection.wait, waiting.wait_conn_async

    async def waits(self: PostgresConnection, gen: Any, *how: Any, **more: Any) -> Any:
        return await wait(self, faults.waited(self, gen), *how, **more)

    async def connects(gen: Any, *how: Any, **more: Any) -> Any:
        return await wait_conn(faults.connected(gen), *how, **more)

    with pytest.MonkeyPatch.context() as patched:
        for module in TELLERS:
            patched.setattr(module, "monotonic", faults.loop.time)
        patched.setattr(PostgresConnection, "wait", waits)
        patched.setattr(waiting, "wait_conn_async", connects)
        try:
            yield faults
        finally:
            faults.close()
