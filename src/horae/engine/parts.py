"""What the parts of an engine ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from horae.engine.live import LiveAttempt, LiveRun
from horae.store.port import AttemptEnd, OutputChunk


class ThreadPool(Protocol):
    """Where sync tasks run: real threads, or the simulation's own turn-taking."""

    def submit(self, call: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...

    def close(self) -> None: ...


class Owner(Protocol):
    """Whoever is to be told: the completer."""

    def ended(self, run: LiveRun) -> None: ...

    def keep_output(self, chunk: OutputChunk) -> None: ...

    async def commit(self, run: LiveRun, attempt: LiveAttempt, end: AttemptEnd) -> None: ...

    def work_over(self) -> None: ...
