"""How a task in a thread waits for the loop. A simulation has to know: while a thread works, its time stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class _Here(threading.local):
    park: Callable[[Future[Any]], None] | None = None
    """Called with what this thread is about to wait for."""


here = _Here()


def awaited(answer: Future[Answer]) -> Answer:
    """The answer, once the loop has it."""
    if here.park is not None:
        here.park(answer)
    return answer.result()
