"""Events in, the page that a scrape would show out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.observing.exposition import Page, parse

from horae.events import Event, Stream
from horae.metrics import Metrics


@dataclass(frozen=True)
class CatalogTotals:
    runs_running: int = 7
    runs_queued: int = 3
    runs_pending: int = 20
    runs_due: int = 5
    jobs_enabled: int = 40
    jobs_paused: int = 2
    jobs_disabled: int = 1


def counted(*events: Event, metrics: Metrics | None = None) -> Page:
    """The page after these events."""
    metrics = metrics or Metrics()
    stream = Stream()
    detach = metrics.attach(stream)
    for event in events:
        stream.emit(event)
    detach()
    return parse(metrics.render())
