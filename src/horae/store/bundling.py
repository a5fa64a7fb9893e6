"""Several verbs in one transaction: a driver whose every transaction is a part of one that stays open.

A part writes all it has gathered before it ends, so that the next one sees it; nothing is committed and nobody is woken
before the whole is. A part that fails may have written half of what it says, so nothing can be kept after that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

from horae.errors import InvalidInput, StoreError
from horae.store.driver import Driver, JoinedTransaction, Migrator, RoleChange, Row, Transaction
from horae.store.records import Rows

Writes = Sequence[tuple[str, Sequence[Row]]]


class Part:
    """One verb's part of the transaction."""

    __slots__ = ("deferred", "now", "overlaps", "whole")

    def __init__(self, whole: Transaction) -> None:
        self.whole = whole
        self.now = whole.now
        self.overlaps = whole.overlaps
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return await self.whole.rows(name, **parameters)

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        return await self.whole.many(name, rows)

    async def batch(self, writes: Writes, /) -> list[int]:
        return await self.whole.batch(writes)

    async def trip(
        self, first: str, writes: Writes, then: str, meanwhile: Callable[[], None], /, **parameters: Any
    ) -> tuple[list[int], list[Row]]:
        return await self.whole.trip(first, writes, then, meanwhile, **parameters)

    async def ahead(self, writes: Writes, /) -> None:
        await self.whole.ahead(writes)

    def last(self, writes: Writes, /) -> None:
        self.deferred += writes

    async def provision(self, change: RoleChange, /) -> str | None:
        return await self.whole.provision(change)

    def wake(self) -> None:
        self.whole.wake()


class Bundle:
    """A driver on one open transaction of another. The transaction begins with `begin`, or else with the first verb
    that may write: until then verbs read as they would outside, and keep nobody waiting. The block of `open_until_end`
    ends it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._whole: Transaction | None = None
        self._stack = AsyncExitStack()
        self._over: str | None = None
        self.dialect = driver.dialect
        self.lock_grace = driver.lock_grace
        self.transaction_limit = driver.transaction_limit
        self.write_limit = driver.write_limit

    async def open(self) -> None:
        """It is."""

    async def close(self) -> None:
        """Its block does."""

    @asynccontextmanager
    async def open_until_end(self) -> AsyncIterator[None]:
        """Commits what was done in the block, and undoes it where the block raises or a verb failed."""
        try:
            async with self._stack:
                yield
                self.check()
        finally:
            self._over = self._over or "This transaction is over"

    async def begin(self) -> Transaction:
        if self._whole is None:
            self._whole = await self._stack.enter_async_context(self._driver.transaction())
        return self._whole

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[Transaction]:
        self.check()
        if self._whole is None and not write:
            async with self._driver.transaction(write=False) as before:
                yield before
            return
        part = Part(await self.begin())
        try:
            yield part
            if part.deferred:
                await part.whole.batch(part.deferred)
        except BaseException as error:
            if write or isinstance(error, StoreError) or not isinstance(error, Exception):
                self._over = "One of the verbs of this transaction failed, so nothing of it can be kept"
            raise

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        return self._driver.reading() if self._whole is None else self.transaction(write=False)

    def looking(self) -> AbstractAsyncContextManager[Transaction]:
        """Sees what the verbs before it wrote, so it is a part like them."""
        return self._driver.looking() if self._whole is None else self.transaction(write=False)

    def check(self) -> None:
        """Raises where the transaction is over, or can only be undone."""
        if self._over is not None:
            raise InvalidInput(self._over, hint="Let the first error end the block, and begin another.")

    def joined(self, limit: float, owner: str | None = None) -> AbstractAsyncContextManager[JoinedTransaction]:
        raise _not_here("A run's own transaction")

    async def end_strays(self) -> None:
        raise _not_here("Ending what was left of transactions")

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """What would be a transaction of its own goes the longer way."""
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
        raise _not_here("A SELECT over the catalog")

    def migration(self, *, write: bool = True) -> AbstractAsyncContextManager[Migrator]:
        raise _not_here("A migration")

    async def clock_reading(self) -> int:
        return await self._driver.clock_reading()

    async def changed(self, seen: int, timeout: float | None) -> int:
        return await self._driver.changed(seen, timeout)

    async def take_lock(self, node: UUID) -> bool:
        return await self._driver.take_lock(node)

    async def free_lock(self, node: UUID, *, left: bool = True) -> None:
        await self._driver.free_lock(node, left=left)

    def keep_locks(self) -> None:
        self._driver.keep_locks()

    def leave_lock(self, node: UUID) -> None:
        self._driver.leave_lock(node)

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        return await self._driver.free_locks(nodes)


def _not_here(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} cannot be part of several verbs' one transaction", hint="Ask the store itself, before or after."
    )
