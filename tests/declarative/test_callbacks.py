"""Callbacks: whatever can be awaited without arguments is one, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from tests.declarative.place import EVERY, GOOD, MINUTE, Place, callback

from horae.declarative import InvalidRegistrationError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def plain() -> None: ...


async def yields() -> AsyncIterator[int]:
    yield 1


async def asks(first: int) -> None: ...


async def asks_by_name(*, first: int) -> None: ...


async def asks_for_two(first: int, second: int = 2) -> None: ...


class Plain:
    def __call__(self) -> None: ...

    async def method(self) -> None: ...

    async def asking(self, first: int) -> None: ...


class Awaited:
    async def __call__(self) -> None: ...


SYNC = "must be an async function, so that others can run beside it"
FIRST = "is called without arguments, but asks for first"
CALLBACKS: list[tuple[Any, str]] = [
    (plain, SYNC),
    (lambda: None, SYNC),
    (lambda: callback(), SYNC),
    (functools.partial(plain), SYNC),
    (Plain(), SYNC),
    (Plain, SYNC),
    (Awaited, SYNC),
    (print, SYNC),
    (yields, SYNC),
    (MagicMock(), SYNC),
    (asks, FIRST),
    (asks_by_name, FIRST),
    (asks_for_two, FIRST),
    (functools.partial(asks_for_two, second=1), FIRST),
    (Plain().asking, FIRST),
    (Plain.method, "is called without arguments, but asks for self"),
]


@pytest.mark.parametrize(("given", "reason"), CALLBACKS, ids=[str(number) for number in range(len(CALLBACKS))])
def test_a_callback_that_cannot_be_awaited_without_arguments_is_refused(place: Place, given: Any, reason: str) -> None:
    error = place.refused([GOOD, ("other", EVERY, given, MINUTE)])
    assert type(error) is InvalidRegistrationError
    assert str(error) == f'Invalid callback of task "other": {reason}'
    assert error.details == {"field": "callback", "value": given, "reason": reason}


def wrapped_with_its_argument() -> Callable[[], Coroutine[Any, Any, None]]:
    @functools.wraps(asks)
    async def wrapper() -> None:
        await asks(1)

    return wrapper


def wrapping_itself() -> Callable[[], Coroutine[Any, Any, None]]:
    async def wrapper() -> None: ...

    wrapper.__wrapped__ = wrapper  # type: ignore[attr-defined]  # as a confused decorator does
    return wrapper


async def asks_for_nothing(first: int = 1, *rest: int, second: int = 2, **others: int) -> None: ...


@pytest.mark.parametrize(
    "given",
    [
        callback,
        functools.partial(callback),
        functools.partial(asks, 1),
        functools.partial(functools.partial(asks), first=1),
        functools.partial(Awaited()),
        Plain().method,
        Awaited(),
        Awaited().__call__,
        AsyncMock(),
        AsyncMock(return_value=3),
        asks_for_nothing,
        wrapped_with_its_argument(),
        wrapping_itself(),
    ],
    ids=[str(number) for number in range(13)],
)
def test_whatever_can_be_awaited_without_arguments_is_a_callback(place: Place, given: Any) -> None:
    place.accepted([("good", EVERY, given, MINUTE)])
