"""The pools of connections that we use: psycopg's, but that they end where their program does."""

from __future__ import annotations

import asyncio
from select import POLLIN, poll
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from horae.store.driver import Row

Connection = AsyncConnection[Row]
FRESH = 1.0
"""Seconds for which a connection that was used is taken to be there still."""


class Pool(AsyncConnectionPool[Connection]):
    """A worker of psycopg's that is cancelled while it works takes that for a fault of the work, and waits for more: a
    program that ends by an error, without closing its store, would never end."""

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]  # a queue in all that a worker asks of it


class _UntilCancelled:
    """What a worker has to do, until its task is cancelled."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


class Checked:
    """A pool's `check`: whether a connection that was idle for a while, or has been told something meanwhile, is there
    still. A server that ends a connection says so, and nobody has to ask."""

    def __init__(self) -> None:
        self._used: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    async def __call__(self, connection: Connection) -> None:
        is_old = monotonic() - self._used.get(connection, float("-inf")) > FRESH
        if is_old or has_been_told(connection):
            await Pool.check_connection(connection)
        self._used[connection] = monotonic()


def has_been_told(connection: Connection) -> bool:
    """Whether something has come that nobody asked for: most often, that the server ends the connection."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return bool(waiting.poll(0))
