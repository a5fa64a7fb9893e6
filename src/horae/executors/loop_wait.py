"""How a task in a thread waits for the event loop.

A simulation must know of these waits, because its time stands still while a thread works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class _Here(threading.local):
    park: Callable[[Future[Any]], None] | None = None
    """Called with the future that this thread is about to wait for."""


here = _Here()


def awaited(answer: Future[Answer]) -> Answer:
    """Waits until the loop has set the future; returns its result or raises its error."""
    if here.park is not None:
        here.park(answer)
    return answer.result()
