"""What every group of verbs stands on: a driver, the definitions known so far, and one transaction's work at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from horae.core.custom import Schedules
from horae.store.definitions import DefinitionCache
from horae.store.driver import Driver
from horae.store.passed import collect_passed
from horae.store.records import Passed
from horae.store.work import Work

Listener = Callable[[Sequence[Passed]], None]


class Transacting:
    """Verbs of its subclasses are blocks of `_work`: committed when the block ends, undone when it raises."""

    def __init__(self, driver: Driver, find: Callable[[str], Schedules | None] | None = None) -> None:
        """`find` gives the schedule behind the import path of a user's own, None where this process has none."""
        self.driver = driver
        self._cache = DefinitionCache(find)
        self._unplannable: set[str] = set()
        self._listener: Listener | None = None

    @asynccontextmanager
    async def _work(self, *, write: bool = True) -> AsyncIterator[Work]:
        work: Work | None = None
        try:
            async with self.driver.transaction(write=write) as transaction:
                work = Work(transaction, self._cache)
                yield work
                await self._collect(work)
                work.finish()
        except BaseException:
            if work is not None:
                work.unlearn()
            raise
        self._tell(work)

    async def _collect(self, work: Work) -> None:
        """Before the commit; nothing is asked where nobody listens."""
        if self._listener is not None and work.ended_unstarted:
            await collect_passed(work)

    def _tell(self, work: Work) -> None:
        """After the commit."""
        if self._listener is not None and work.passed:
            self._listener(sorted(work.passed, key=lambda each: each.order))

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Work]:
        """For one statement, or several whose answers need not be of one moment."""
        async with self.driver.reading() as transaction:
            yield Work(transaction, self._cache)

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[Work]:
        """As `_reading`, for what may take a while."""
        async with self.driver.looking() as transaction:
            yield Work(transaction, self._cache)
