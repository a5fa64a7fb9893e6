"""The selector of a virtual loop, which knows the file descriptors that virtual time waits for."""

from __future__ import annotations

from contextvars import ContextVar
from selectors import DefaultSelector, SelectorKey
from typing import Any

in_background: ContextVar[bool] = ContextVar("in_background", default=False)


class TrackingSelector(DefaultSelector):
    """A selector that also tracks which descriptors virtual time waits for.

    `strangers` are the descriptors that code outside the background registered or last changed. `silent` are those of
    them that time has waited for in vain. A silent descriptor stays silent until it has an event, even if it is
    registered again: otherwise a driver that polls ten times a second would get its time ten times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.strangers: set[int] = set()
        self.silent: set[int] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        return self._noted(super().register(fileobj, events, data))

    def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
        return self._noted(super().modify(fileobj, events, data))

    def unregister(self, fileobj: Any) -> SelectorKey:
        key = super().unregister(fileobj)
        self.strangers.discard(key.fd)
        return key

    def _noted(self, key: SelectorKey) -> SelectorKey:
        (self.strangers.discard if in_background.get() else self.strangers.add)(key.fd)
        return key
