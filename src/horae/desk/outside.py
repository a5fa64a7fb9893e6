"""Who asks through a server says so, for as long as that request lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from horae.store.port import from_outside


@contextmanager
def asking_from_outside() -> Iterator[None]:
    """What the store is asked inside is asked for others; see `store.port.from_outside`."""
    token = from_outside.set(True)
    try:
        yield
    finally:
        from_outside.reset(token)
