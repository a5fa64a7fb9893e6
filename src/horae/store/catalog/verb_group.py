"""The base of every group of verbs: a driver, the cached definitions, and one transaction's work at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from horae.core.schedule.custom import ScheduleLike
from horae.store.catalog.definition_cache import DefinitionCache
from horae.store.catalog.unit_of_work import UnitOfWork
from horae.store.catalog.unreported_ends import collect_unreported
from horae.store.driver import Driver
from horae.store.records import UnreportedRun

Listener = Callable[[Sequence[UnreportedRun]], None]


class VerbGroup:
    """The verbs of its subclasses are blocks of `_work`: committed when the block ends, rolled back when it raises."""

    def __init__(self, driver: Driver, find: Callable[[str], ScheduleLike | None] | None = None) -> None:
        """`find` returns the schedule for a custom schedule's import path, or None where this process has none."""
        self.driver = driver
        self._cache = DefinitionCache(find)
        self._unplannable: set[str] = set()
        self._listener: Listener | None = None

    @asynccontextmanager
    async def _work(self, *, write: bool = True) -> AsyncIterator[UnitOfWork]:
        work: UnitOfWork | None = None
        try:
            async with self.driver.transaction(write=write) as transaction:
                work = UnitOfWork(transaction, self._cache)
                yield work
                await self._collect(work)
                work.finish()
        except BaseException:
            if work is not None:
                work.unlearn()
            raise
        self._tell(work)

    async def _collect(self, work: UnitOfWork) -> None:
        """Called before the commit. Reads nothing where there is no listener."""
        if self._listener is not None and work.ended_unstarted:
            await collect_unreported(work)

    def _tell(self, work: UnitOfWork) -> None:
        """Called after the commit."""
        if self._listener is not None and work.passed:
            self._listener(sorted(work.passed, key=lambda each: each.order))

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[UnitOfWork]:
        """A read of one statement, or of several that need not see the same moment."""
        async with self.driver.reading() as transaction:
            yield UnitOfWork(transaction, self._cache)

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[UnitOfWork]:
        """As `_reading`, for reads that may take a while."""
        async with self.driver.looking() as transaction:
            yield UnitOfWork(transaction, self._cache)
