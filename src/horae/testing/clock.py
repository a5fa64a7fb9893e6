"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from datetime import UTC, datetime

from horae.core.duration import DurationLike, parse_duration
from horae.core.instant import aware

_START = datetime(2026, 1, 1, tzinfo=UTC)


def whole_milliseconds(at: datetime, name: str = "time") -> datetime:
    """`at` in UTC, floored to the millisecond: what a catalog can keep of it."""
    moment = aware(at, name)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class ManualClock:
    """A settable clock in whole milliseconds, UTC. It may be set back, as a host's clock may be."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = whole_milliseconds(start, "start")

    def now(self) -> datetime:
        return self._now

    __call__ = now

    def set(self, at: datetime) -> None:
        self._now = whole_milliseconds(at, "at")

    def advance(self, duration: DurationLike) -> None:
        """Goes on by `duration`; the fraction of a millisecond it ends on is dropped."""
        self._now = whole_milliseconds(self._now + parse_duration(duration))
