"""Runs several verbs in one transaction: a driver whose transactions are parts of one outer transaction.

A part writes everything it has gathered before it ends, so that the next part sees it. Nothing is committed and no loop
is woken before the outer transaction is committed. A writing part that fails may have written half of its changes, so
the outer transaction can then only be rolled back.
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


class VerbTransaction:
    """One verb's part of the outer transaction."""

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


class SharedTransactionDriver:
    """A driver whose transactions are parts of one transaction of another driver.

    That transaction begins with `begin`, or else with the first verb that may write. Until then, verbs read outside of
    it and block no other writer. The block of `open_until_end` ends it.
    """

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
        """Does nothing: the wrapped driver is open already."""

    async def close(self) -> None:
        """Does nothing: the block of `open_until_end` ends the transaction."""

    @asynccontextmanager
    async def open_until_end(self) -> AsyncIterator[None]:
        """Commits when the block ends. Rolls back where the block raises or a verb has failed."""
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
        part = VerbTransaction(await self.begin())
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
        """Is a part of the open transaction, so that it sees what the verbs before it wrote."""
        return self._driver.looking() if self._whole is None else self.transaction(write=False)

    def check(self) -> None:
        """Raises InvalidInput where the transaction is over or can only be rolled back."""
        if self._over is not None:
            raise InvalidInput(self._over, hint="Let the first error end the block, and begin another.")

    def joined(self, limit: float, owner: str | None = None) -> AbstractAsyncContextManager[JoinedTransaction]:
        raise _not_in_bundle("A run's own transaction")

    async def end_strays(self) -> None:
        raise _not_in_bundle("Ending what was left of transactions")

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """Returns None: such a statement is a transaction of its own, so the caller uses ordinary statements."""
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
        raise _not_in_bundle("A SELECT over the catalog")

    def migration(self, *, write: bool = True) -> AbstractAsyncContextManager[Migrator]:
        raise _not_in_bundle("A migration")

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


def _not_in_bundle(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} cannot be part of several verbs' one transaction", hint="Ask the store itself, before or after."
    )
