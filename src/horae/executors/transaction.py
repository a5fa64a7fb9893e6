"""`run.transaction`: a task's own writes are committed with the transaction that settles its attempt, or not at all.

The transaction begins at its first use. When the task returns, its end is settled in the same transaction, after the
fence was checked. When the task fails, is cancelled, or exceeds the limit, everything is rolled back. Calls on the app
are refused meanwhile: they would wait for a writer that this transaction holds, or seem to be part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from horae.core.access import LOCAL_NAME
from horae.errors import Conflict, HoraeError, StoreUnavailable, TransactionExpired
from horae.executors.loop_wait import awaited
from horae.store.protocols.people import Identity
from horae.store.protocols.store import Rows, Settlement, SettlementResult, TaskTransaction

Answer = TypeVar("Answer")

current: ContextVar[RunTransaction | None] = ContextVar("horae_transaction", default=None)

Opener = Callable[[float, bool], AbstractAsyncContextManager[TaskTransaction]]
"""Opens a transaction. Arguments: its limit in seconds, and whether it is for SQL text of users other than `local`.
Such a transaction waits for its turn; where the text runs apart, the limit counts writing only."""


class RunTransaction:
    """One attempt's transaction: it opens at the first statement and stays open until it is committed or rolled
    back."""

    __slots__ = (
        "_apart",
        "_context",
        "_ended",
        "_ends_at",
        "_is_apart",
        "_is_of_others",
        "_joined",
        "_limit",
        "_lock",
        "_loop",
        "_open",
        "_over",
        "_timer",
        "expired",
        "lost",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, opener: Opener, limit: float, write_limit: float | None = None
    ) -> None:
        """`write_limit` is the limit for SQL text of other users where the store runs it apart; None: `limit` counts
        for it too."""
        self._apart = write_limit
        self._loop = loop
        self._open = opener
        self._limit = limit
        self._lock = asyncio.Lock()
        self._context: AbstractAsyncContextManager[TaskTransaction] | None = None
        self._joined: TaskTransaction | None = None
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Task[None] | None = None
        self.expired = False
        self.lost = False
        """Whether the connection was lost during use. Nothing was written, and nothing more can be."""
        self._ended = False
        self._is_apart = False
        self._is_of_others = False

    @property
    def is_open(self) -> bool:
        return self._joined is not None

    async def execute(self, sql: str, parameters: Any = None) -> Any:
        return await self._within(lambda joined: joined.execute(sql, parameters))

    async def run_text(self, sql: str, identity: Identity, most: int) -> Rows:
        """Runs a SQL job's whole text as `identity`; see `TaskTransaction.run_text`."""
        if identity.name != LOCAL_NAME and self._joined is None:
            self._is_of_others = True
            if self._apart is not None:
                self._limit, self._is_apart = self._apart, True
        return await self._within(lambda joined: joined.run_text(sql, identity, most))

    async def _within(self, work: Callable[[TaskTransaction], Awaitable[Answer]]) -> Answer:
        async with self._lock:
            try:
                return await self._do(work)
            except StoreUnavailable:
                self.lost = True
                await self._close()
                raise

    async def _do(self, work: Callable[[TaskTransaction], Awaitable[Answer]]) -> Answer:
        if self._joined is None:
            await self._begin()
        if self._ended:
            # The attempt ended while the transaction was being opened.
            await self._close()
            raise self._too_late()
        joined = self._joined
        assert joined is not None
        if self._is_apart:
            # Reading may take as long as the job's timeout allows; the store limits writing itself.
            return await work(joined)
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await work(joined)
        except TimeoutError:
            await self._close()
            self.expired = True
            raise self._too_long() from None

    async def _begin(self) -> None:
        if self.expired:
            raise self._too_long()
        if self._ended:
            raise self._too_late()
        if self.lost:
            raise StoreUnavailable(
                "run.transaction was lost with its connection", hint="The attempt ends as LOST and is tried again."
            )
        context = self._open(self._limit, self._is_of_others)
        self._joined = await context.__aenter__()
        self._context = context
        self._ends_at = self._loop.time() + self._limit
        if not self._is_apart:
            self._timer = self._loop.call_later(self._limit, self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._over = self._loop.create_task(self.roll_back())

    async def settle(self, settlement: Settlement) -> SettlementResult:
        """Settles the attempt and commits. Raises what the commit raises; the transaction is closed in any case."""
        self._ended = True
        async with self._lock:
            if self._joined is None:
                raise self._too_long()
            try:
                answer = await self._joined.settle(settlement)
            except BaseException:
                await self._close()
                raise
            context = self._forget()
            await context.__aexit__(None, None, None)
            return answer

    async def roll_back(self) -> None:
        """Rolls everything back for good: later statements of an abandoned task are refused."""
        self._ended = True
        async with self._lock:
            await self._close()

    async def _close(self) -> None:
        """Ends the transaction without a settlement, which rolls it back."""
        if self._context is not None:
            context = self._forget()
            with suppress(HoraeError):
                await context.__aexit__(None, None, None)

    def _forget(self) -> AbstractAsyncContextManager[TaskTransaction]:
        context, self._context, self._joined = self._context, None, None
        assert context is not None
        if self._timer is not None:
            self._timer.cancel()
        return context

    def end(self) -> None:
        """Notes that the attempt has ended, so that no transaction can begin any more."""
        self._ended = True

    def _too_late(self) -> Conflict:
        return Conflict(
            "run.transaction is over: its attempt has ended", hint="Execute everything before the task returns."
        )

    def _too_long(self) -> TransactionExpired:
        return TransactionExpired(
            f"run.transaction lasted longer than {self._limit:g} s and was rolled back",
            hint="Do slow work before its first statement, or raise the setting transaction_limit.",
        )


class AsyncTransaction:
    """`run.transaction` in async tasks: `rows = await run.transaction.execute(…)`."""

    def __init__(self, joining: RunTransaction) -> None:
        self._joining = joining
        current.set(joining)

    async def execute(self, sql: str, parameters: Any = None) -> Any:
        return await self._joining.execute(sql, parameters)

    def commit(self) -> None:
        raise refusal("commit")

    def rollback(self) -> None:
        raise refusal("rollback")


class SyncTransaction:
    """`run.transaction` in sync tasks, which run in a thread: every statement is passed to the loop and waited for."""

    def __init__(self, joining: RunTransaction, loop: asyncio.AbstractEventLoop) -> None:
        self._joining = joining
        self._loop = loop
        current.set(joining)

    def execute(self, sql: str, parameters: Any = None) -> Any:
        return awaited(asyncio.run_coroutine_threadsafe(self._joining.execute(sql, parameters), self._loop))

    def commit(self) -> None:
        raise refusal("commit")

    def rollback(self) -> None:
        raise refusal("rollback")


def refusal(verb: str) -> Conflict:
    return Conflict(
        f"run.transaction has no {verb} of its own",
        hint="It is committed together with the task's end when the task returns, and undone when it raises.",
    )
