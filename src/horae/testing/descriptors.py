"""The descriptors that a virtual loop listens to, and which of them time waits for."""

from __future__ import annotations

from contextvars import ContextVar
from selectors import DefaultSelector, SelectorKey
from typing import Any

in_background: ContextVar[bool] = ContextVar("in_background", default=False)


class Descriptors(DefaultSelector):
    """Knows the `strangers`: descriptors that were registered, or last changed, by somebody not in the background; and
    of those the `silent`, which were waited for in vain. They stay so until they speak, whoever registers them again:
    a driver that looks up every tenth of a second would else be given its time ten times a second."""

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
