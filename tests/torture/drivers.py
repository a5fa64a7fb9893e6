"""Real drivers with a tap: something is called before every statement, just before each COMMIT and just after it.

A tap may kill the process there, stop it, or hold the transaction up until a test lets it go on. The half for
PostgreSQL is in `tapped_postgres`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from horae.store.catalog.catalog import Catalog
from horae.store.driver import Clock, Driver, Row
from horae.store.records import Capacity, ClaimResult, CreationResult, HeartbeatResult, Settlement, SettlementResult
from horae.store.sqlite.driver import SqliteDriver
from horae.store.sqlite.transaction import SqliteTransaction

if TYPE_CHECKING:
    from tests.torture.tapped_postgres import TappedPostgres

STATEMENT, BEFORE, AFTER = "statement", "before", "after"
"""Where a tap is called: before a statement, just before COMMIT, just after it."""

Tap = Callable[[str, str], Awaitable[None]]
"""Takes where it is called, and the statement's name or ``COMMIT``."""

VERB: ContextVar[str] = ContextVar("verb", default="")
"""The verb that the present task is in; empty outside those that are told apart here."""


async def no_tap(where: str, name: str) -> None:
    return None


class TappedSqliteTransaction(SqliteTransaction):
    """A transaction that calls its tap before each statement."""

    def __init__(self, inner: SqliteTransaction, tap: Tap) -> None:
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

    def wake(self) -> None:
        self.inner.wake()


class TappedSqlite(SqliteDriver):
    """The SQLite driver with a tap in its write transactions."""

    tap: Tap = staticmethod(no_tap)

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncIterator[SqliteTransaction]:
        async with super().transaction(write=write) as transaction:
            if not write:
                yield transaction
                return
            tapped = TappedSqliteTransaction(transaction, self.tap)
            yield tapped
            await tapped.batch(tapped.deferred)
            await self.tap(BEFORE, "COMMIT")
        await self.tap(AFTER, "COMMIT")


class TappedCatalog(Catalog):
    """A catalog that says in `VERB` which of the engine's verbs the present task is in."""

    async def create_due_runs(self, limit: int = 500, start: Capacity | None = None) -> CreationResult:
        VERB.set("create_due_runs")
        return await super().create_due_runs(limit, start)

    async def claim_runs(self, capacity: Capacity) -> ClaimResult:
        VERB.set("claim_runs")
        return await super().claim_runs(capacity)

    async def settle(self, node: UUID, settlements: Sequence[Settlement]) -> tuple[SettlementResult, ...]:
        VERB.set("settle")
        return await super().settle(node, settlements)

    async def heartbeat(self, node: UUID, known: Any, working: Any = None) -> HeartbeatResult:
        VERB.set("heartbeat")
        return await super().heartbeat(node, known, working)


@dataclass
class Blow:
    """A signal that a process sends itself the n-th time one verb comes to one place.

    Written ``settle:before:2`` or, for another signal than SIGKILL, ``plan:after:1:SIGSTOP``.
    """

    verb: str
    where: str
    times: int
    signal: signal.Signals = signal.SIGKILL
    seen: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> Blow:
        verb, where, times, *rest = text.split(":")
        return cls(verb, where, int(times), signal.Signals[rest[0]] if rest else signal.SIGKILL)

    def __str__(self) -> str:
        return f"{self.verb}:{self.where}:{self.times}:{self.signal.name}"

    async def tap(self, where: str, name: str) -> None:
        if VERB.get() == self.verb and where == self.where:
            self.seen += 1
            if self.seen == self.times:
                os.kill(os.getpid(), self.signal)


def is_postgres(url: str) -> bool:
    return url.startswith("postgresql://")


def driver_for(url: str, *, connections: int = 4, clock: Clock | None = None) -> TappedSqlite | TappedPostgres:
    """The driver of a PostgreSQL URL or of an SQLite file's path."""
    if is_postgres(url):
        # Imported late: loading psycopg is half of what it takes to start a worker, and those on a file need none.
        from tests.torture.tapped_postgres import TappedPostgres

        return TappedPostgres(url, connections=connections, clock=clock)
    return TappedSqlite(url, clock=clock)


@asynccontextmanager
async def opened(url: str, *, connections: int = 4, clock: Clock | None = None) -> AsyncIterator[TappedCatalog]:
    """An open catalog, closed at the end."""
    driver: Driver = driver_for(url, connections=connections, clock=clock)
    store = TappedCatalog(driver)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
