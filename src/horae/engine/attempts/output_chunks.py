"""Writes the output of attempts to the catalog in chunks.

A chunk is written about once a second while an attempt runs, and the rest when it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from horae.core.job import ids
from horae.engine.attempts.text_limits import storable
from horae.engine.live_runs import LiveAttempt
from horae.executors.output import Output
from horae.store.protocols.store import OutputChunk

EVERY = 1.0
"""Seconds between two chunks of the same attempt."""


class OutputChunkWriter:
    """Collects chunks and passes them to `keep`, in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keep: Callable[[OutputChunk], None]) -> None:
        self._loop = loop
        self._keep = keep
        self._dirty: deque[LiveAttempt] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: LiveAttempt) -> None:
        attempt.output.notify = partial(self._printed, attempt)

    def _printed(self, attempt: LiveAttempt, _: Output) -> None:
        """Notes that the attempt has new output. Called in the thread in which the task printed."""
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
        """Passes on the rest of the output of an attempt that has ended."""
        output = attempt.output
        # The attempt and its output refer to each other. Without this link both are freed immediately, not by the next
        # garbage collection.
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
