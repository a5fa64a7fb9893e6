"""The PostgreSQL driver with a tap in its write transactions; see `drivers`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.torture.drivers import AFTER, BEFORE, STATEMENT, Tap, no_tap

from horae.store.driver import Row
from horae.store.postgres.driver import PostgresDriver
from horae.store.postgres.transaction import PostgresTransaction


class TappedPostgresTransaction(PostgresTransaction):
    """A transaction that calls its tap before each statement."""

    def __init__(self, inner: PostgresTransaction, tap: Tap) -> None:
        super().__init__(inner._connection, inner._prepared, inner.now)
        self.inner = inner
        self.tap = tap

    async def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        await self.tap(STATEMENT, name)
        return await super().rows(name, **parameters)

    async def many(self, name: str, rows: Sequence[Row], /) -> int:
        await self.tap(STATEMENT, name)
        return await super().many(name, rows)

    async def batch(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> list[int]:
        """One by one, so that each has its tap."""
        return [await self.many(name, rows) for name, rows in writes]

    async def trip(
        self,
        first: str,
        writes: Sequence[tuple[str, Sequence[Row]]],
        then: str,
        meanwhile: Callable[[], None],
        /,
        **parameters: Any,
    ) -> tuple[list[int], list[Row]]:
        await self.rows(first, **parameters)
        meanwhile()
        return await self.batch(writes), await self.rows(then, **parameters)

    async def ahead(self, writes: Sequence[tuple[str, Sequence[Row]]], /) -> None:
        await self.batch(writes)

    def wake(self) -> None:
        self.inner.wake()


class TappedPostgres(PostgresDriver):
    """The PostgreSQL driver with a tap in its write transactions."""

    tap: Tap = staticmethod(no_tap)

    async def alone(self, name: str, /, **parameters: Any) -> list[Row] | None:
        """The statement is its own commit."""
        await self.tap(STATEMENT, name)
        await self.tap(BEFORE, "COMMIT")
        rows = await super().alone(name, **parameters)
        await self.tap(AFTER, "COMMIT")
        return rows

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[PostgresTransaction]:
        async with super().transaction(write=write) as transaction:
            if not write:
                yield transaction
                return
            tapped = TappedPostgresTransaction(transaction, self.tap)
            yield tapped
            await tapped.batch(tapped.deferred)
            await self.tap(BEFORE, "COMMIT")
        await self.tap(AFTER, "COMMIT")
