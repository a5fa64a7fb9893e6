"""What every part of the desk has: the service it asks, and what it was told by whoever set it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from horae.control.calculator import Calculate, Calculator, ThreadCalculator
from horae.control.doctor import Examination, examine
from horae.control.service import Kept, Service
from horae.core.access import LOCAL_NAME
from horae.desk.shapes import Shape


@dataclass(frozen=True, slots=True)
class Known:
    """A setting of ALTER SYSTEM that this release knows."""

    name: str
    default: Any = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """`sign_in` is how whoever asks came in: local, open, session or token."""

    version: str = ""
    sign_in: str = "local"
    settings: tuple[Known, ...] = ()
    examine: Callable[[Kept], Awaitable[Examination]] = examine
    """How a catalog is examined, by somebody who knows more of its surroundings."""
    calculator: Calculator = field(default_factory=ThreadCalculator)
    """What calculates the answers to users who do not have the catalog themselves."""


class Receipt(Protocol):
    """Keeps the answer to a request that must be done once, in the transaction that does it: `store` is of that one. It
    raises where another has answered the request meanwhile, which undoes the transaction."""

    @property
    def noted(self) -> bytes:
        """What was noted, as JSON, by another who was at this request before and is gone; else nothing."""

    async def note(self, store: Kept, answer: Shape) -> None:
        """Keeps what is done so far of a request that takes several transactions."""

    def settle(self) -> None:
        """The transaction of the last `note` was committed."""

    async def finish(self, store: Kept, answer: Shape) -> None:
        """Keeps the answer."""


class Part:
    """Some of the operations. All of them together are the desk."""

    def __init__(self, service: Service, about: About | None = None) -> None:
        self.service = service
        self.about = About() if about is None else about

    def turn(self) -> AbstractAsyncContextManager[Calculate]:
        """The turn of whoever asks to have something calculated. `local` could do so beside us anyway."""
        name = self.service.who.name
        return (ThreadCalculator() if name == LOCAL_NAME else self.about.calculator).turn(name)
