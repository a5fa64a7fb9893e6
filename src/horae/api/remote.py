"""Marks store calls that are made on behalf of a remote client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from horae.store.protocols.store import from_outside


@contextmanager
def marking_remote_calls() -> Iterator[None]:
    """Marks store calls inside as made for a client of the server; see `store.protocols.store.from_outside`."""
    token = from_outside.set(True)
    try:
        yield
    finally:
        from_outside.reset(token)
