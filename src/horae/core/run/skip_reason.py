"""The kinds of reasons for which runs are skipped, as a closed set.

A run's reason may name runs, nodes and handlers; a metric's label may not.
"""

from __future__ import annotations

from enum import StrEnum

from horae.core.run.overlap import OVERLAP, WAITING_FOR_HANDLER
from horae.core.run.pause import PAUSED as PAUSED_REASON

THREAD_OF_RUN = "thread of run "
"""The beginning of what `overlap.thread_reason` returns."""


class SkipReason(StrEnum):
    """The kinds of reasons of a SKIPPED run."""

    OVERLAP = "overlap"
    """Another run of its job has not ended."""
    QUEUE_FULL = "queue full"
    COALESCED = "coalesced"
    REPLACED = "replaced"
    PAUSED = "paused"
    DEPENDENCIES = "dependencies"
    """A dependency failed, or did not complete in time."""
    THREAD = "thread"
    """The thread of an earlier run is still running."""
    HANDLER = "handler"
    """Another run of its job waits for a handler that no live node has."""
    OTHER = "other"
    """The run has no reason, or one that this release does not know."""


_EXACT = {
    OVERLAP: SkipReason.OVERLAP,
    "queue full": SkipReason.QUEUE_FULL,
    "coalesced": SkipReason.COALESCED,
    "replaced": SkipReason.REPLACED,
    PAUSED_REASON: SkipReason.PAUSED,
    "dependencies": SkipReason.DEPENDENCIES,
}
_BEGINNINGS = {
    THREAD_OF_RUN: SkipReason.THREAD,
    f"{WAITING_FOR_HANDLER} ": SkipReason.HANDLER,
    "dependency ": SkipReason.DEPENDENCIES,
}


def skip_reason(reason: str | None) -> SkipReason:
    """The kind of a SKIPPED run's reason."""
    if reason is None:
        return SkipReason.OTHER
    found = _EXACT.get(reason)
    if found is not None:
        return found
    return next((kind for begin, kind in _BEGINNINGS.items() if reason.startswith(begin)), SkipReason.OTHER)
