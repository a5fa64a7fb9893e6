"""Calculation of answers that need no store, in a thread of this process or in a process that can be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ParamSpec, Protocol, TypeVar

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class Calculate(Protocol):
    """Calls a module's function with picklable arguments and returns its result. Raises what the function raises, and
    InvalidInput where the call exceeds its limit of time or memory."""

    async def __call__(
        self, function: Callable[Given, Answer], /, *arguments: Given.args, **named: Given.kwargs
    ) -> Answer: ...


class Calculator(Protocol):
    """Calculates for users. The requests of one user take turns."""

    def turn(self, name: str) -> AbstractAsyncContextManager[Calculate]:
        """Waits for a turn of the user `name`. Raises RateLimited where too many requests of the user wait already."""


async def in_thread(function: Callable[Given, Answer], /, *arguments: Given.args, **named: Given.kwargs) -> Answer:
    return await asyncio.to_thread(function, *arguments, **named)


class ThreadCalculator:
    """Calculates in this process without limits: for the command line, and for programs that opened the store
    themselves."""

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Calculate]:
        yield in_thread
