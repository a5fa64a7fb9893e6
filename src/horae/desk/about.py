"""What every part of the desk has: the service it asks, and what it was told by whoever set it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from horae.control.doctor import Examination, examine
from horae.control.service import Kept, Service


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


class Part:
    """Some of the operations. All of them together are the desk."""

    def __init__(self, service: Service, about: About | None = None) -> None:
        self.service = service
        self.about = About() if about is None else about
