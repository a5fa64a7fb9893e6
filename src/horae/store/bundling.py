"""Several verbs in one transaction: a driver whose every transaction is a part of one that stays open.

A part writes all it has gathered before it ends, so that the next one sees it; nothing is committed and nobody is woken
before the whole is. A part that fails may have written half of what it says, so nothing can be kept after that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

from horae.errors import InvalidInput, StoreError
from horae.store.driver import Driver, JoinedTransaction, Migrator, RoleChange, Row, Transaction
from horae.store.records import Rows

Writes = Sequence[tuple[str, Sequence[Row]]]


class Part:
    """One verb's part of the transaction."""

    __slots__ = ("_whole", "deferred", "now", "overlaps")

    def __init__(self, whole: Transaction) -> None:
        self._whole = whole
        self.now = whole.now
        self.overlaps = whole.overlaps
        self.deferred: list[tuple[str, Sequence[Row]]] = []

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return await self._whole.rows(name, **parameters)

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        return await self._whole.many(name, rows)

    async def batch(self, writes: Writes, /) -> list[int]:
        return await self._whole.batch(writes)

    async def trip(
        self, first: str, writes: Writes, then: str, meanwhile: Callable[[], None], /, **parameters: Any
    ) -> tuple[list[int], list[Row]]:
        return await self._whole.trip(first, writes, then, meanwhile, **parameters)

    async def ahead(self, writes: Writes, /) -> None:
        await self._whole.ahead(writes)

    def last(self, writes: Writes, /) -> None:
        self.deferred += writes

    async def provision(self, change: RoleChange, /) -> str | None:
        return await self._whole.provision(change)

    def wake(self) -> None:
        self._whole.wake()


class Bundle:
    """A driver on one open transaction of another."""

    def __init__(self, driver: Driver, whole: Transaction) -> None:
        self._driver = driver
        self._whole = whole
        self._over: str | None = None
        self.dialect = driver.dialect
        self.lock_grace = driver.lock_grace
        self.transaction_limit = driver.transaction_limit

    async def open(self) -> None:
        """It is."""

    async def close(self) -> None:
        """Its block does."""

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[Part]:
        self.check()
        part = Part(self._whole)
        try:
            yield part
            if part.deferred:
                await self._whole.batch(part.deferred)
        except BaseException as error:
            if write or isinstance(error, StoreError) or not isinstance(error, Exception):
                self._over = "One of the verbs of this transaction failed, so nothing of it can be kept"
            raise

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        return self.transaction(write=False)

    def looking(self) -> AbstractAsyncContextManager[Transaction]:
        """Sees what the verbs before it wrote, so it is a part like them."""
        return self.transaction(write=False)

    def check(self) -> None:
        """Raises where the transaction is over, or can only be undone."""
        if self._over is not None:
            raise InvalidInput(self._over, hint="Let the first error end the block, and begin another.")

    def end(self) -> None:
        self._over = self._over or "This transaction is over"

    def joined(self, limit: float) -> AbstractAsyncContextManager[JoinedTransaction]:
        raise _not_here("A run's own transaction")

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """What would be a transaction of its own goes the longer way."""
        return None

    async def select(self, sql: str, most: int, seconds: float, own: bool = False, /) -> Rows:  # noqa: FBT001, FBT002
        raise _not_here("A SELECT over the catalog")

    def migration(self) -> AbstractAsyncContextManager[Migrator]:
        raise _not_here("A migration")

    async def changed(self, seen: int, timeout: float | None) -> int:
        return await self._driver.changed(seen, timeout)

    async def take_lock(self, node: UUID) -> bool:
        return await self._driver.take_lock(node)

    async def free_lock(self, node: UUID) -> None:
        await self._driver.free_lock(node)

    async def free_locks(self, nodes: Sequence[str]) -> set[str]:
        return await self._driver.free_locks(nodes)


def _not_here(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} cannot be part of several verbs' one transaction", hint="Ask the store itself, before or after."
    )
