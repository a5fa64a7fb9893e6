"""A driver for a server that answers in real time, used on simulated time: the clock stands still during answers.

The clock moves while no statement is waited for, even inside a transaction.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, cast

from horae.store.driver import Driver

Holding = Callable[[], AbstractContextManager[None]]
_BLOCKS = frozenset({"joined", "looking", "migration", "reading", "transaction"})
_WAITS = frozenset({"changed", "foreign", "run_text"})
"""Verbs that may need time to pass: until a change happens, or until another task's transaction releases a row."""


def hold_time_during(driver: Driver, holding: Holding) -> Driver:
    """Wraps a driver so that `holding` is entered around everything it waits for."""
    return cast("Driver", _HoldingDriver(driver, holding))


class _HoldingDriver:
    """Forwards everything to `_inner`, a driver or one of its transactions."""

    def __init__(self, inner: Any, holding: Holding) -> None:
        self._inner = inner
        self._holding = holding

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in _BLOCKS:
            return functools.partial(_HoldingBlock, value, self._holding)
        if name not in _WAITS and iscoroutinefunction(value):
            return functools.partial(_awaited, value, self._holding)
        return value


class _HoldingBlock:
    """A transaction's block. Its begin and its end are held; statements inside are held on their own."""

    def __init__(
        self,
        make: Callable[..., AbstractAsyncContextManager[Any]],
        holding: Holding,
        *limits: float | str | None,
        **options: bool,
    ) -> None:
        self._block = make(*limits, **options)
        self._holding = holding

    async def __aenter__(self) -> _HoldingDriver:
        with self._holding():
            return _HoldingDriver(await self._block.__aenter__(), self._holding)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with self._holding():
            return await self._block.__aexit__(kind, error, trace)


async def _awaited(verb: Callable[..., Awaitable[Any]], holding: Holding, *arguments: Any, **keywords: Any) -> Any:
    with holding():
        return await verb(*arguments, **keywords)
