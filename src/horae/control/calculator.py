"""Where an answer that takes no store is calculated: in a thread of this process, or in a process that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ParamSpec, Protocol, TypeVar

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


class Calculate(Protocol):
    """Calls a function of a module with values that can be pickled, answers what it answers, and raises what it
    raises. Raises InvalidInput where that takes longer or more memory than it may."""

    async def __call__(
        self, function: Callable[Given, Answer], /, *arguments: Given.args, **named: Given.kwargs
    ) -> Answer: ...


class Calculator(Protocol):
    """What calculates for users, each of them in turn."""

    def turn(self, name: str) -> AbstractAsyncContextManager[Calculate]:
        """The turn of the user called `name`. Raises RateLimited where too many of theirs wait already."""


async def in_thread(function: Callable[Given, Answer], /, *arguments: Given.args, **named: Given.kwargs) -> Answer:
    return await asyncio.to_thread(function, *arguments, **named)


class ThreadCalculator:
    """Calculates in this process without a limit: for the command line, and for whoever opened the store."""

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Calculate]:
        yield in_thread
