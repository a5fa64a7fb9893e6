"""What attempts print, as chunks for the catalog: about one a second while they last, and what is left at their end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from horae.core import ids
from horae.engine.live import LiveAttempt
from horae.engine.told import storable
from horae.runners.output import Output
from horae.store.port import OutputChunk

EVERY = 1.0


class Printing:
    """Gathers chunks and hands them to `keep`, in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keep: Callable[[OutputChunk], None]) -> None:
        self._loop = loop
        self._keep = keep
        self._dirty: deque[LiveAttempt] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: LiveAttempt) -> None:
        attempt.output.notify = partial(self._printed, attempt)

    def _printed(self, attempt: LiveAttempt, _: Output) -> None:
        """In whatever thread the task printed."""
        self._dirty.append(attempt)
        if self._timer is None:
            self._loop.call_soon_threadsafe(self._flush_soon)

    def _flush_soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(EVERY, self._flush)

    def _flush(self) -> None:
        self._timer = None
        while self._dirty:
            attempt = self._dirty.popleft()
            if not attempt.over:
                self._chunk(attempt, attempt.output.take())

    def finish(self, attempt: LiveAttempt) -> None:
        """Keeps what is left of an attempt that has ended."""
        output = attempt.output
        # The two know each other; parted, they are freed at once and not by the next search for cycles.
        output.notify = None
        if not output.empty:
            self._chunk(attempt, output.close())

    def _chunk(self, attempt: LiveAttempt, text: str) -> None:
        if not text:
            return
        claim = attempt.run.claim
        task = ids.task_uuid(ids.job_uuid(claim.definition.spec.name), attempt.task_name)
        attempt_id = ids.attempt_id(ids.task_run_id(claim.run_id, task), attempt.number)
        number, attempt.chunks = attempt.chunks, attempt.chunks + 1
        chunk = OutputChunk(claim.run_no, attempt.position, attempt.number, attempt_id, number, storable(text))
        self._keep(chunk)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
