"""A driver whose server answers in real time, on simulated time: the clock stands still for every answer.

It moves while nobody asks anything, even inside a transaction.
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
"""What may need time to pass: until something happens, or until another task's own transaction lets go of a row."""


def held(driver: Driver, holding: Holding) -> Driver:
    """The driver; whatever it waits for is inside `holding`."""
    return cast("Driver", _Held(driver, holding))


class _Held:
    """Passes everything on to `_inner`: a driver, or one of its transactions."""

    def __init__(self, inner: Any, holding: Holding) -> None:
        self._inner = inner
        self._holding = holding

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in _BLOCKS:
            return functools.partial(_HeldBlock, value, self._holding)
        if name not in _WAITS and iscoroutinefunction(value):
            return functools.partial(_awaited, value, self._holding)
        return value


class _HeldBlock:
    """A transaction's block: its ends are held, what is done inside is held by itself."""

    def __init__(
        self,
        make: Callable[..., AbstractAsyncContextManager[Any]],
        holding: Holding,
        *limits: float | str | None,
        **options: bool,
    ) -> None:
        self._block = make(*limits, **options)
        self._holding = holding

    async def __aenter__(self) -> _Held:
        with self._holding():
            return _Held(await self._block.__aenter__(), self._holding)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with self._holding():
            return await self._block.__aexit__(kind, error, trace)


async def _awaited(verb: Callable[..., Awaitable[Any]], holding: Holding, *arguments: Any, **keywords: Any) -> Any:
    with holding():
        return await verb(*arguments, **keywords)
